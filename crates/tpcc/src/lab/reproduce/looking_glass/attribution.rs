//! Instructions by component, from Callgrind's count of each machine instruction of the real binary.
//!
//! The line tables of the release say which functions were inlined around an instruction; it counts for the innermost of
//! these files that is a component's. Code of libraries that was not inlined counts for the code that calls it, in
//! proportion to what each caller's calls cost.

use std::collections::HashMap;

use super::component::{COMPONENTS, Component};

/// Instructions by component.
pub(super) type Split = [f64; COMPONENTS];

/// Which component an instruction of an object file, at an address in that file, belongs to.
pub(super) trait Places {
    fn component(&mut self, object: &str, address: u64) -> Option<Component>;
}

/// A function that was counted.
#[derive(Default)]
struct Function {
    /// Its instructions that no component owns.
    shared: f64,
    /// From where it was called, and what these calls cost.
    calls: Vec<(Caller, f64)>,
}

#[derive(Clone, Copy)]
enum Caller {
    Component(Component),
    Function(usize),
}

/// How often shares are passed on from callers to callees: library code calls library code a few deep.
const PASSES: usize = 40;

/// Functions by object file and name, numbered.
#[derive(Default)]
struct Functions {
    numbers: HashMap<(String, String), usize>,
    all: Vec<Function>,
}

impl Functions {
    fn number(&mut self, object: &str, name: &str) -> usize {
        *self.numbers.entry((object.to_owned(), name.to_owned())).or_insert_with(|| {
            self.all.push(Function::default());
            self.all.len() - 1
        })
    }
}

/// Reads what Callgrind wrote (`--dump-instr=yes`, nothing compressed); returns the split and all instructions. None when
/// it is no such file.
pub(super) fn split(text: &str, places: &mut impl Places) -> Option<(Split, f64)> {
    let mut functions = Functions::default();
    let mut split = [0.0; COMPONENTS];
    let mut total = 0.0;
    let (mut object, mut called_object, mut called_name) = (String::new(), String::new(), String::new());
    let mut current = None;
    let mut lines = text.lines();
    if !lines.clone().take(30).any(|line| line == "positions: instr") {
        return None;
    }
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("ob=") {
            object = name.to_owned();
        } else if let Some(name) = line.strip_prefix("fn=") {
            current = Some(functions.number(&object, name));
            called_object = object.clone();
        } else if let Some(name) = line.strip_prefix("cob=") {
            called_object = name.to_owned();
        } else if let Some(name) = line.strip_prefix("cfn=") {
            called_name = name.to_owned();
        } else if line.starts_with("calls=") {
            let (address, cost) = position(lines.next()?)?;
            let callee = functions.number(&called_object, &called_name);
            let caller = match (places.component(&object, address), current) {
                (Some(component), _) => Some(Caller::Component(component)),
                (None, Some(function)) if function != callee => Some(Caller::Function(function)),
                _ => None,
            };
            if let Some(caller) = caller {
                functions.all[callee].calls.push((caller, cost));
            }
            // The next call names its object again where it is another one.
            called_object = object.clone();
        } else if line.starts_with("0x") {
            let (address, cost) = position(line)?;
            total += cost;
            match places.component(&object, address) {
                Some(component) => split[component as usize] += cost,
                None => functions.all[current?].shared += cost,
            }
        }
    }
    for (function, shares) in functions.all.iter().zip(shares(&functions.all)) {
        for (of, share) in split.iter_mut().zip(shares) {
            *of += function.shared * share;
        }
    }
    Some((split, total))
}

/// For which components each function works: shares that sum to one, or less where some calls lead back to no component.
fn shares(functions: &[Function]) -> Vec<Split> {
    let mut shares = vec![[0.0; COMPONENTS]; functions.len()];
    for _ in 0..PASSES {
        for (number, function) in functions.iter().enumerate() {
            let mut sums = [0.0; COMPONENTS];
            for (caller, cost) in &function.calls {
                match caller {
                    Caller::Component(component) => sums[*component as usize] += cost,
                    Caller::Function(caller) => {
                        for (sum, share) in sums.iter_mut().zip(shares[*caller]) {
                            *sum += cost * share;
                        }
                    }
                }
            }
            let whole: f64 = function.calls.iter().map(|(_, cost)| cost).sum();
            if whole > 0.0 {
                shares[number] = sums.map(|sum| sum / whole);
            }
        }
    }
    shares
}

/// "0x1a2b 34".
fn position(line: &str) -> Option<(u64, f64)> {
    let (address, cost) = line.split_once(' ')?;
    Some((u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?, cost.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses below 0x100 of "us" are those of locks, below 0x200 of the log; all others are shared.
    struct Made;

    impl Places for Made {
        fn component(&mut self, object: &str, address: u64) -> Option<Component> {
            match (object, address) {
                ("us", 0..0x100) => Some(Component::Locks),
                ("us", 0x100..0x200) => Some(Component::Log),
                _ => None,
            }
        }
    }

    #[test]
    fn library_code_counts_for_its_callers() {
        let text = "version: 1\npositions: instr\nevents: Ir\n\nob=libc\nfn=copy\n0x10 30\ncfn=inner\ncalls=3 0x40\n0x12 10\n\n\
                    fn=inner\n0x40 10\n\nob=us\nfn=lock\n0x20 5\n0x24 7\ncob=libc\ncfn=copy\ncalls=3 0x10\n0x28 30\n\n\
                    fn=log\n0x110 8\ncob=libc\ncfn=copy\ncalls=1 0x10\n0x114 10\ncfn=lock\ncalls=1 0x20\n0x118 12\n\n\
                    fn=start\n0x900 4\n";
        let (split, total) = split(text, &mut Made).unwrap();
        assert_eq!(total, 64.0);
        // Of the 40 instructions of copy and what it calls, three quarters are for locks.
        assert_eq!(split[Component::Locks as usize], 12.0 + 30.0);
        assert_eq!(split[Component::Log as usize], 8.0 + 10.0);
        assert_eq!(split.iter().sum::<f64>(), 60.0, "code without a caller belongs to no component");
    }

    #[test]
    fn other_files_are_refused() {
        assert!(split("events: Ir\nsummary: 3\n", &mut Made).is_none());
    }
}
