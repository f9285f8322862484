//! NUMA nodes: a core finds memory of its own node in less time than that of another. Left alone, the system gives
//! a page out of the node of whoever stores to it first, which for memory that processes share need not be its
//! writer, and for reserved pages of 2 MiB is the thread that takes them.
//!
//! Hosts with one node, which most are, have nothing to choose; and where a container's rules forbid to say where
//! memory is to be, it is where the system puts it.

use std::path::Path;

use kelix_image::Span;

/// Nodes that can be told: as many as a kernel has at most.
const NODES_MAX: usize = 1024;

/// A node of a host that has several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumaNode(u32);

impl NumaNode {
    /// The node of a core. `None`: the host has only one, or does not say.
    pub fn of_core(core: usize) -> Option<NumaNode> {
        NumaNode::of_core_in(Path::new("/sys/devices/system"), core)
    }

    fn of_core_in(system: &Path, core: usize) -> Option<NumaNode> {
        let nodes = numbers(&system.join("node")).count();
        let own = numbers(&system.join("cpu").join(format!("cpu{core}"))).next();
        own.filter(|node| nodes > 1 && (*node as usize) < NODES_MAX - 1).map(NumaNode)
    }

    /// The number of the node.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Has memory in pages of this node, also that which has pages already, as long as the node has some free.
    /// The memory begins with a page of a mapping.
    pub fn prefer(self, memory: &Span) {
        let mut mask = [0u64; NODES_MAX / 64];
        mask[self.0 as usize / 64] |= 1 << (self.0 % 64);
        // A refusal only costs speed.
        let _ = mbind(memory, &mask);
    }
}

/// The numbers of all `nodeN` in a folder.
fn numbers(folder: &Path) -> impl Iterator<Item = u32> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn mbind(memory: &Span, mask: &[u64; NODES_MAX / 64]) -> bool {
    const MBIND: std::ffi::c_long = if cfg!(target_arch = "x86_64") { 237 } else { 235 };
    const PREFERRED: std::ffi::c_long = 1;
    const MOVE: std::ffi::c_long = 2;
    unsafe extern "C" {
        fn syscall(number: std::ffi::c_long, ...) -> std::ffi::c_long;
    }
    let (base, bytes) = (memory.words().as_ptr(), memory.bytes() as usize);
    // SAFETY: `mbind` reads the mask, which has as many bits as are told, and changes neither what is mapped nor
    // what stands there: pages that move keep what they hold.
    unsafe { syscall(MBIND, base, bytes, PREFERRED, mask.as_ptr(), NODES_MAX, MOVE) == 0 }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn mbind(_: &Span, _: &[u64; NODES_MAX / 64]) -> bool {
    false
}

#[cfg(all(test, not(kelix_loom)))]
mod tests {
    use super::*;
    use crate::shm::Memfd;

    #[test]
    fn a_core_has_the_node_that_the_system_says() {
        let system = std::env::temp_dir().join(format!("kelix-numa-{}", std::process::id()));
        let make = |names: &[&str]| {
            names.iter().for_each(|name| std::fs::create_dir_all(system.join(name)).unwrap());
        };
        make(&["node/node0", "node/possible", "cpu/cpu0/node0", "cpu/cpu1/topology"]);
        assert_eq!(NumaNode::of_core_in(&system, 0), None, "there is only one");
        make(&["node/node1", "node/node2000", "cpu/cpu5/node1", "cpu/cpu6/node2000"]);
        let of_core = |core| NumaNode::of_core_in(&system, core).map(NumaNode::number);
        assert_eq!([0, 1, 5, 6, 7].map(of_core), [Some(0), None, Some(1), None, None]);
        std::fs::remove_dir_all(&system).unwrap();
        assert_eq!(NumaNode::of_core_in(&system, 0), None);
    }

    /// The call is understood, and what stands in memory stays: node 0 is everywhere.
    #[test]
    fn memory_that_prefers_a_node_keeps_what_it_holds() {
        let (_held, span) = Memfd::create("kelix-test", 1 << 16, true).unwrap();
        span.words().store(100, 7);
        let mut mask = [0; NODES_MAX / 64];
        mask[0] = 1;
        let understood = mbind(&span, &mask) || cfg!(not(target_os = "linux"));
        // A container may forbid it.
        let forbidden = std::io::Error::last_os_error().raw_os_error() == Some(1);
        assert!(understood || forbidden, "{}", std::io::Error::last_os_error());
        NumaNode(900).prefer(&span);
        assert_eq!(span.words().load(100), 7);
    }
}
