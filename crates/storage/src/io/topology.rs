//! The memory nodes of the machine (NUMA), as the system describes them.

use std::fs;

/// Directory in which the system lists its nodes.
const NODES: &str = "/sys/devices/system/node";

/// Assignment of processors to memory nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    count: usize,
    /// Memory node of each processor, indexed by processor number; empty if there is only one node.
    of_processor: Vec<usize>,
}

impl Nodes {
    /// Returns a topology with one node that contains all processors.
    pub fn one() -> Nodes {
        Nodes { count: 1, of_processor: Vec::new() }
    }

    /// Reads the nodes from the system. If the system lists no nodes, the result has one node.
    pub fn of_this_machine() -> Nodes {
        let Ok(entries) = fs::read_dir(NODES) else { return Nodes::one() };
        let lists = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let number: usize = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            Some((number, fs::read_to_string(entry.path().join("cpulist")).ok()?))
        });
        Nodes::parse(lists.collect())
    }

    /// Parses the lists of processors of the nodes. Each entry is a node number and a list such as "0-3,8". Nodes without
    /// processors are left out.
    fn parse(mut lists: Vec<(usize, String)>) -> Nodes {
        lists.sort();
        let lists: Vec<Vec<usize>> =
            lists.iter().map(|(_, list)| processors(list)).filter(|list| !list.is_empty()).collect();
        if lists.len() < 2 {
            return Nodes::one();
        }
        let most = lists.iter().flatten().max().map_or(0, |most| most + 1);
        let mut of_processor = vec![0; most];
        for (node, list) in lists.iter().enumerate() {
            list.iter().for_each(|&processor| of_processor[processor] = node);
        }
        Nodes { count: lists.len(), of_processor }
    }

    /// Returns the number of nodes that have processors; at least 1.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the node of a processor.
    pub fn of(&self, processor: usize) -> usize {
        self.of_processor.get(processor).copied().unwrap_or(0)
    }

    /// Returns the node of the processor on which the calling thread runs now.
    pub(crate) fn of_this_thread(&self) -> usize {
        #[cfg(all(target_os = "linux", not(miri)))]
        return self.of(rustix::thread::sched_getcpu());
        #[cfg(not(all(target_os = "linux", not(miri))))]
        return 0;
    }
}

/// Parses a list of processors: "0-3,8" means 0, 1, 2, 3 and 8. Malformed parts are skipped.
fn processors(list: &str) -> Vec<usize> {
    /// Upper bound of processor numbers, larger than on any machine.
    const MOST: usize = 1 << 16;
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok().filter(|&last| last < MOST)?)
    };
    list.trim().split(',').filter_map(part).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(processors("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(processors("5"), [5]);
        assert!(processors("").is_empty() && processors("x-y,3-99999999").is_empty());
    }

    #[test]
    fn nodes_are_numbered_in_order_and_those_without_processors_do_not_count() {
        let list = |of: &[(usize, &str)]| of.iter().map(|(n, list)| (*n, (*list).to_owned())).collect();
        let nodes = Nodes::parse(list(&[(2, "4-5,9"), (0, "0-3"), (1, "")]));
        assert_eq!(nodes.count(), 2);
        assert_eq!([0, 3, 4, 9, 70].map(|processor| nodes.of(processor)), [0, 0, 1, 1, 0]);
        assert_eq!(Nodes::parse(list(&[(0, "0-7")])), Nodes::one());
        assert_eq!(Nodes::parse(Vec::new()), Nodes::one());
    }

    #[test]
    fn this_machine_has_a_node() {
        let nodes = Nodes::of_this_machine();
        assert!(nodes.count() >= 1 && nodes.of_this_thread() < nodes.count());
    }
}
