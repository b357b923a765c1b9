//! Instructions and misses by component, from Callgrind's counts for each machine instruction of the real binary.
//!
//! The line tables of the release list the functions that were inlined around an instruction. The instruction counts for the
//! innermost of their files that belongs to a component. Code of libraries that was not inlined counts for the code that
//! calls it, in proportion to the costs of each caller's calls.

use std::collections::HashMap;

use super::component::{COMPONENTS, Component};

/// Number of occurrences of each event, in the order of the file. The first event is instructions.
pub(super) type Costs = Vec<f64>;

/// Costs of a counted run, split by component.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ComponentCosts {
    /// Names of the events, in the order of [`Costs`].
    pub(super) events: Vec<String>,
    pub(super) components: [Costs; COMPONENTS],
    /// Costs of all code, including code of no component.
    pub(super) all: Costs,
}

/// Share of each component in the costs of a function.
type Shares = [f64; COMPONENTS];

/// Maps an instruction of an object file, at an address in that file, to a component.
pub(super) trait ComponentMap {
    fn component(&mut self, object: &str, address: u64) -> Option<Component>;
}

/// A counted function.
#[derive(Default)]
struct Function {
    /// Costs of the function's instructions that belong to no component.
    shared: Costs,
    /// Callers of the function, and number of instructions of the calls of each.
    calls: Vec<(Caller, f64)>,
}

#[derive(Clone, Copy)]
enum Caller {
    Component(Component),
    Function(usize),
}

/// Maximum number of header lines of a file of Callgrind.
const HEADER: usize = 30;
/// Number of passes that propagate shares from callers to callees: library code calls library code to a small depth.
const PASSES: usize = 40;

/// Counted functions, and their indices by object file and name.
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

/// Parses the output of Callgrind (`--dump-instr=yes`, nothing compressed). Returns `None` if the text is not such a file.
pub(super) fn split(text: &str, places: &mut impl ComponentMap) -> Option<ComponentCosts> {
    let header = || text.lines().take(HEADER);
    if !header().any(|line| line == "positions: instr") {
        return None;
    }
    let events: Vec<String> =
        header().find_map(|line| line.strip_prefix("events: "))?.split_whitespace().map(str::to_owned).collect();
    if events.first().map(String::as_str) != Some("Ir") {
        return None;
    }
    let mut functions = Functions::default();
    let mut split = ComponentCosts { events, ..ComponentCosts::default() };
    let (mut object, mut called_object, mut called_name) = (String::new(), String::new(), String::new());
    let mut current = None;
    let mut lines = text.lines();
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
            let (address, mut costs) = position(lines.next()?)?;
            let callee = functions.number(&called_object, &called_name);
            let caller = match (places.component(&object, address), current) {
                (Some(component), _) => Some(Caller::Component(component)),
                (None, Some(function)) if function != callee => Some(Caller::Function(function)),
                _ => None,
            };
            if let Some(caller) = caller {
                functions.all[callee].calls.push((caller, costs.next()??));
            }
            // A call has a `cob=` line only if the callee is in another object than the caller.
            called_object = object.clone();
        } else if line.starts_with("0x") {
            let (address, costs) = position(line)?;
            let costs: Costs = costs.collect::<Option<_>>()?;
            add(&mut split.all, &costs, 1.0);
            match places.component(&object, address) {
                Some(component) => add(&mut split.components[component as usize], &costs, 1.0),
                None => add(&mut functions.all[current?].shared, &costs, 1.0),
            }
        }
    }
    for (function, shares) in functions.all.iter().zip(shares(&functions.all)) {
        for (of, share) in split.components.iter_mut().zip(shares) {
            add(of, &function.shared, share);
        }
    }
    Some(split)
}

/// Adds `share` times `costs` to `sums`.
fn add(sums: &mut Costs, costs: &[f64], share: f64) {
    if sums.len() < costs.len() {
        sums.resize(costs.len(), 0.0);
    }
    for (sum, cost) in sums.iter_mut().zip(costs) {
        *sum += share * cost;
    }
}

/// Computes the share of each component in each function. The shares of a function sum to one, or to less if some calls lead
/// back to no component.
fn shares(functions: &[Function]) -> Vec<Shares> {
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

/// Parses a line such as "0x1a2b 34 5": an address, and the number of occurrences of each event; trailing zeros are left
/// out.
fn position(line: &str) -> Option<(u64, impl Iterator<Item = Option<f64>>)> {
    let (address, costs) = line.split_once(' ')?;
    let address = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
    Some((address, costs.split_whitespace().map(|cost| cost.parse().ok())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses of "us" below 0x100 belong to locks, those below 0x200 to the log; all others are shared.
    struct ThreeRegions;

    impl ComponentMap for ThreeRegions {
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
        let text = "version: 1\npositions: instr\nevents: Ir D1mr\n\nob=libc\nfn=copy\n0x10 30 4\ncfn=inner\ncalls=3 0x40\n\
                    0x12 10 4\n\nfn=inner\n0x40 10 4\n\nob=us\nfn=lock\n0x20 5\n0x24 7 1\ncob=libc\ncfn=copy\n\
                    calls=3 0x10\n0x28 30 3\n\nfn=log\n0x110 8\ncob=libc\ncfn=copy\ncalls=1 0x10\n0x114 10 1\ncfn=lock\n\
                    calls=1 0x20\n0x118 12\n\nfn=start\n0x900 4\n";
        let split = split(text, &mut ThreeRegions).unwrap();
        assert_eq!(split.events, ["Ir", "D1mr"]);
        assert_eq!(split.all, [64.0, 9.0]);
        // Of the 40 instructions and 8 misses of copy and of its callees, three quarters are for locks.
        assert_eq!(split.components[Component::Locks as usize], [12.0 + 30.0, 1.0 + 6.0]);
        assert_eq!(split.components[Component::Log as usize], [8.0 + 10.0, 2.0]);
        let own: f64 = split.components.iter().filter_map(|costs| costs.first()).sum();
        assert_eq!(own, 60.0, "code without a caller belongs to no component");
    }

    #[test]
    fn other_files_are_refused() {
        for text in ["events: Ir\nsummary: 3\n", "positions: instr\nevents: Dr Ir\n", "positions: instr\n"] {
            assert_eq!(split(text, &mut ThreeRegions), None, "{text}");
        }
    }
}
