//! Formats any JSON values as text and as tables. Long values are cut.

use std::fmt::Write;

use maud::{Markup, html};
use serde_json::{Map, Value};

use super::html::{MOST_ROWS, cell, table};
use super::scale::short;
use super::schema::Schema;
use tpcc_core::workload::words::grouped;

/// Maximum length of a value in a cell, in bytes, not counting its last word.
const MOST_WORDS: usize = 4_000;
/// Maximum number of columns of a table.
const MOST_COLUMNS: usize = 32;
/// Maximum number of objects within one object that have their own table.
pub(super) const MOST_TABLES: usize = 100;

/// Formats a value as text.
pub(super) fn format_value(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

/// Appends the text of a value, or nothing if the text is long already.
fn write_value(to: &mut String, value: &Value) {
    if to.len() > MOST_WORDS {
        return;
    }
    match value {
        Value::Null => to.push_str("not known"),
        Value::String(text) => match text.char_indices().nth(MOST_WORDS) {
            Some((end, _)) => to.extend([&text[..end], "…"]),
            None => to.push_str(text),
        },
        Value::Bool(true) => to.push_str("yes"),
        Value::Bool(false) => to.push_str("no"),
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(whole), _) => to.push_str(&grouped(whole)),
            (None, Some(number)) => to.push_str(&short(number)),
            _ => to.push_str("not finite"),
        },
        Value::Array(all) => write_list(to, all.len(), all.iter(), write_value),
        Value::Object(all) => write_list(to, all.len(), all.iter(), |to, (key, value)| {
            to.push_str(key);
            to.push(' ');
            write_value(to, value);
        }),
    }
}

/// Appends parts separated by commas, and the number of omitted parts.
fn write_list<T>(
    to: &mut String,
    len: usize,
    all: impl Iterator<Item = T>,
    mut write_value: impl FnMut(&mut String, T),
) {
    for (written, part) in all.enumerate() {
        if written > 0 {
            to.push_str(", ");
        }
        if to.len() > MOST_WORDS {
            let _ = write!(to, "and {} more", grouped((len - written) as u64));
            return;
        }
        write_value(to, part);
    }
}

/// Returns a table of keys, values and descriptions. Lists of objects become separate tables.
pub(super) fn pairs(of: Option<&Map<String, Value>>, schema: &Schema, path: &[&str]) -> Markup {
    let Some(of) = of else { return html! { p.faint { "not known" } } };
    let is_table = |value: &Value| value.as_array().is_some_and(|all| all.iter().any(Value::is_object));
    let is_map = |value: &Value| value.as_object().is_some_and(|all| all.values().any(Value::is_object));
    let plain = || of.iter().filter(|(_, value)| !is_table(value) && !is_map(value));
    let rows = plain().map(|(key, value)| {
        let at: Vec<&str> = path.iter().copied().chain([key.as_str()]).collect();
        let (about, unit) = schema.about(&at);
        let unit = unit.filter(|_| value.is_number()).map_or(String::new(), |unit| format!(" {unit}"));
        vec![cell(key.replace('_', " ")), cell(format_value(value) + &unit), cell(about.unwrap_or_default())]
    });
    let tables = of.iter().filter(|(_, value)| is_table(value)).take(MOST_TABLES);
    let maps = of.iter().filter(|(_, value)| is_map(value)).take(MOST_TABLES);
    html! {
        @if plain().next().is_some() { (table(&["what", "value", "is"], 9, rows)) }
        @for (key, value) in tables {
            (list(key, value.as_array().into_iter().flatten().map(|value| ListEntry { name: None, value })))
        }
        @for (key, value) in maps {
            (list(key, value.as_object().into_iter().flatten().map(|(name, value)| ListEntry { name: Some(name), value })))
        }
    }
}

/// An entry of a list or of a map; only entries of a map have names.
struct ListEntry<'a> {
    name: Option<&'a str>,
    value: &'a Value,
}

impl ListEntry<'_> {
    /// Returns the text of the entry in a column.
    fn at(&self, column: &str) -> String {
        match (self.value.get(column), self.name, column) {
            (Some(value), ..) => format_value(value),
            (None, Some(name), "name") => name.to_owned(),
            (None, Some(_), "value") if !self.value.is_object() => format_value(self.value),
            _ => format_value(&Value::Null),
        }
    }
}

fn list<'a>(name: &str, entries: impl Iterator<Item = ListEntry<'a>> + Clone) -> Markup {
    let mut columns: Vec<&str> = vec!["name"];
    let mut are_all = true;
    for entry in entries.clone().take(MOST_ROWS) {
        let own = entry.value.as_object().into_iter().flat_map(Map::keys).map(String::as_str);
        let value = (entry.name.is_some() && !entry.value.is_object()).then_some("value");
        for key in own.chain(value) {
            if columns.contains(&key) {
                continue;
            }
            are_all &= columns.len() < MOST_COLUMNS;
            if !are_all {
                break;
            }
            columns.push(key);
        }
    }
    let heads: Vec<String> = columns.iter().map(|key| key.replace('_', " ")).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let rows = entries.map(|entry| columns.iter().map(|key| cell(entry.at(key))).collect());
    html! {
        p { b { (name.replace('_', " ")) } @if !are_all { " (its first " (MOST_COLUMNS) " columns)" } }
        div.scroll { (table(&heads, 1, rows)) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_words() {
        let value = json!({"a": [1, null, "x"], "b": {"c": true, "d": 1.5}});
        assert_eq!(format_value(&value), "a 1, not known, x, b c yes, d 1.5");
    }

    #[test]
    fn long_values_end_with_how_many_are_left_out() {
        let text = format_value(&json!(vec![7; 100_000]));
        assert!(text.len() < MOST_WORDS + 100 && text.ends_with(" more"), "{text:.100}");
        let text = format_value(&json!("é".repeat(100_000)));
        assert!(text.ends_with('…') && text.chars().count() == MOST_WORDS + 1);
        let deep = (0..12).fold(json!([1, 2, 3]), |inner, _| json!([inner.clone(), inner]));
        assert!(format_value(&deep).len() < 2 * MOST_WORDS);
    }

    #[test]
    fn tables_of_many_columns_and_rows_are_cut() {
        let entries: Vec<Value> = (0..5_000).map(|n| json!({ format!("key_{n:04}"): n })).collect();
        let text = pairs(json!({ "all": entries }).as_object(), &Schema::of_run(), &[]).into_string();
        assert!(text.contains("its first 32 columns") && text.contains("and 4,000 more"), "{text:.300}");
        assert!(text.matches("<td").count() <= 1 + MOST_ROWS * MOST_COLUMNS);
        let map = json!({ "of": { "one": { "bytes": 1 }, "two": 2 } });
        let text = pairs(map.as_object(), &Schema::of_run(), &[]).into_string();
        for part in ["<b>of</b>", ">one<", ">two<", ">bytes<", ">value<"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
