//! Formatting of numbers as text.

/// Formats a number with thousands separators: "1,234,567".
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number and its noun in the singular or plural: "1 worker", "2 workers".
pub fn counted(number: u64, of: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {of}{plural}", grouped(number))
}

/// Formats a size: "512 bytes", "1,536 MiB". Mebibytes are rounded up.
pub fn in_mib(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => counted(bytes, "byte"),
        _ => format!("{} MiB", grouped(bytes.div_ceil(1 << 20))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
        assert_eq!(counted(1, "worker"), "1 worker");
        assert_eq!(counted(0, "worker"), "0 workers");
        assert_eq!(
            (in_mib(1), in_mib(1 << 20), in_mib((1 << 31) + 1)),
            ("1 byte".into(), "1 MiB".into(), "2,049 MiB".into())
        );
    }
}
