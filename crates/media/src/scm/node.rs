//! The memory of one NUMA node: CXL memory, which the system shows as a node without processors, or the
//! memory of another socket.
//!
//! Pages are bound to the node and allocated at once: a full node is an error here, not the reason to kill a
//! process later.

use std::fs;
use std::path::Path;
use std::time::Duration;

use base::{Error, Result, format_bytes};

use super::facts::{Facts, Persistence};
use super::mapping::Mapping;
use super::region::{Durability, Region};

/// The directory with the system's nodes.
pub(super) const NODES: &str = "/sys/devices/system/node";

/// Allocates `len` bytes of the memory of `node`.
///
/// # Errors
/// `Invalid` if the system has no such node or forbids binding to it, `NoSpace` if the node has too little
/// memory.
pub(super) fn open(node: u32, len: u64) -> Result<Region> {
    let place = || format!("numa:{node}");
    has_room(Path::new(NODES), node, len).map_err(|error| error.at(place()))?;
    let bytes = usize::try_from(len).unwrap_or(usize::MAX);
    let failed = |what, error| Error::io(what, place(), error);
    let mapping = Mapping::anonymous(bytes).map_err(|e| failed("map memory", e))?;
    mapping.bind(node).map_err(|e| failed("bind memory to a NUMA node", e))?;
    mapping.populate().map_err(|e| failed("take the memory of a NUMA node", e))?;
    let facts = Facts {
        backend: "numa",
        byte_addressable: true,
        persistence: Persistence::Process,
        write_unit: 64,
        // Typical of CXL memory; the memory of another socket is faster.
        read_latency: Duration::from_nanos(250),
        numa_node: Some(node),
        emulated: None,
    };
    Ok(Region::new(mapping, Durability::Never, facts, None))
}

/// Checks that the system has the node.
///
/// # Errors
/// `Invalid`, with the nodes that it has.
pub(super) fn must_exist(node: u32) -> Result<()> {
    exists(Path::new(NODES), node)
}

fn exists(root: &Path, node: u32) -> Result<()> {
    if root.join(format!("node{node}")).is_dir() {
        return Ok(());
    }
    let nodes = nodes(root);
    Err(Error::invalid("no such NUMA node").expected(match nodes.as_str() {
        "" => "a system with NUMA nodes".to_owned(),
        nodes => format!("one of {nodes}"),
    }))
}

/// Checks that the node under `root` has `len` bytes free or used only by the page cache.
fn has_room(root: &Path, node: u32, len: u64) -> Result<()> {
    exists(root, node)?;
    let folder = root.join(format!("node{node}"));
    let meminfo = folder.join("meminfo");
    let text = fs::read_to_string(&meminfo)
        .map_err(|error| Error::io("read", meminfo.display(), error))?;
    let free = ["MemFree", "Active(file)", "Inactive(file)"].map(|name| field(&text, name));
    let free = free.into_iter().fold(0_u64, u64::saturating_add);
    if free >= len {
        return Ok(());
    }
    Err(Error::no_space("memory of a NUMA node")
        .expected(format_bytes(len))
        .got(format_args!("{} free", format_bytes(free))))
}

/// The bytes in a line such as `Node 0 MemFree:  4158532 kB`; 0 if there is no such line.
fn field(meminfo: &str, name: &str) -> u64 {
    let value = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        let is_it = words.next()?.strip_suffix(':')? == name;
        words.next().filter(|_| is_it)?.parse::<u64>().ok()
    };
    meminfo.lines().find_map(value).unwrap_or(0).saturating_mul(1024)
}

/// The numbers of the nodes under `root`, as `0, 1`.
fn nodes(root: &Path) -> String {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix("node")?.parse::<u32>().ok();
    let mut nodes: Vec<u32> =
        entries.filter_map(|entry| number(entry.file_name().to_str()?)).collect();
    nodes.sort_unstable();
    nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorKind;

    /// A directory with two nodes, in the kernel's format.
    fn topology() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (node, free) in [(0, 8), (1, 1024)] {
            let folder = root.path().join(format!("node{node}"));
            fs::create_dir(&folder).unwrap();
            let text = format!(
                "Node {node} MemTotal:        9005260 kB\nNode {node} MemFree:    {free} kB\n\
                 Node {node} Active(file):  4 kB\nNode {node} Inactive(file):  4 kB\n"
            );
            fs::write(folder.join("meminfo"), text).unwrap();
        }
        root
    }

    #[test]
    fn a_node_must_exist_and_have_room() {
        let root = topology();
        has_room(root.path(), 0, 16 << 10).unwrap();
        has_room(root.path(), 1, 1 << 20).unwrap();
        let full = has_room(root.path(), 0, 17 << 10).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::NoSpace, "{full}");
        let missing = has_room(root.path(), 7, 1).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Invalid);
        assert!(missing.to_string().contains("one of 0, 1"), "{missing}");
        let none = has_room(&root.path().join("none"), 0, 1).unwrap_err();
        assert!(none.to_string().contains("a system with NUMA nodes"), "{none}");
    }

    #[test]
    fn unreadable_memory_information_counts_as_no_free_memory() {
        let root = topology();
        for text in ["", "Node 0 MemFree: x kB\n", "\0\u{ff}", "MemFree"] {
            fs::write(root.path().join("node0/meminfo"), text).unwrap();
            let error = has_room(root.path(), 0, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoSpace);
        }
    }

    /// Node 0 exists on any system with nodes; a sandbox may forbid binding to it.
    #[test]
    fn memory_of_node_0_is_allocated_or_the_error_names_the_node() {
        match open(0, 1 << 20) {
            Ok(region) => assert_eq!((region.len(), region.facts().numa_node), (1 << 20, Some(0))),
            Err(error) => assert!(error.to_string().contains("numa:0"), "{error}"),
        }
        let missing = open(1000, 4096).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Invalid, "{missing}");
    }
}
