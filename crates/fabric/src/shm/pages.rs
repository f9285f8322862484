//! Pages of 2 MiB for the memory of images, which the processor finds in a small part of the time that it
//! takes to find one of 4 KiB.
//!
//! A host has them in two ways. Some are *reserved* (`vm.nr_hugepages`): nobody else gets these, and memory
//! in them cannot be taken away. Else the system *grants* some where memory is free in pieces that large, if
//! `/sys/kernel/mm/transparent_hugepage/shmem_enabled` says so, which it does nowhere by itself. Where a host
//! has none of 2 MiB, as with larger pages on aarch64, nobody gets any.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, Ordering};

use kelix_types::limits::HUGE_PAGE_BYTES;
use rustix::fs::{FallocateFlags, fallocate, fstatfs};

/// Bytes of reserved pages that are taken at once, while others wait for the file.
const TAKEN_AT_ONCE: u64 = 8 * HUGE_PAGE_BYTES;

/// What `fstatfs` says of a file in reserved pages.
const HUGETLBFS_MAGIC: u64 = 0x958458f6;

/// Which pages the memory of images is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HugePages {
    /// Usual ones.
    Off,
    /// Huge ones where the system grants them, and else usual ones.
    Granted,
    /// Reserved ones, as long as there are any; then as with `Granted`.
    Reserved,
    /// Reserved ones, or such as the system grants where it is set to; without either there is no memory.
    Required,
}

/// All images of a process have the same: there are many places where their memory begins, and one host.
static WANTED: AtomicU8 = AtomicU8::new(HugePages::Reserved as u8);

/// Says which pages memory of images has that this process makes from now on.
pub fn use_huge_pages(wanted: HugePages) {
    WANTED.store(wanted as u8, Ordering::Relaxed);
}

/// Which pages the memory of images is to have.
pub fn huge_pages() -> HugePages {
    let all = [HugePages::Off, HugePages::Granted, HugePages::Reserved, HugePages::Required];
    all[usize::from(WANTED.load(Ordering::Relaxed))]
}

fn read(file: &str) -> String {
    std::fs::read_to_string(format!("/sys/kernel/mm/{file}")).unwrap_or_default()
}

/// Whether the system grants huge pages to memory that is advised to have some.
pub fn are_granted() -> bool {
    let setting = read("transparent_hugepage/shmem_enabled");
    let is_on =
        ["[always]", "[within_size]", "[advise]", "[force]"].iter().any(|word| setting.contains(word));
    let bytes: Option<u64> = read("transparent_hugepage/hpage_pmd_size").trim().parse().ok();
    is_on && bytes == Some(HUGE_PAGE_BYTES)
}

/// Bytes of huge pages that the host has reserved and nobody uses, with those that it would reserve when they
/// are asked for.
pub fn reserved_free_bytes() -> u64 {
    let pages = |name: &str| -> u64 {
        let text = read(&format!("hugepages/hugepages-2048kB/{name}"));
        text.trim().parse().unwrap_or(0)
    };
    let free = pages("free_hugepages").saturating_sub(pages("resv_hugepages"));
    let more = pages("nr_overcommit_hugepages").saturating_sub(pages("surplus_hugepages"));
    free.saturating_add(more).saturating_mul(HUGE_PAGE_BYTES)
}

/// The page size that memory of an image would get now, in bytes.
pub fn page_bytes() -> u64 {
    let wanted = huge_pages();
    let is_reserved =
        matches!(wanted, HugePages::Reserved | HugePages::Required) && reserved_free_bytes() > 0;
    let is_huge = is_reserved || wanted != HugePages::Off && are_granted();
    if is_huge { HUGE_PAGE_BYTES } else { rustix::param::page_size() as u64 }
}

/// Takes the reserved pages of a file, all of them, beside whoever uses it already. Else the first store to
/// each would wait for 2 MiB to be cleared; and a reader whose control group may have no huge pages would be
/// killed if it looked at one that nobody has stored to.
pub(super) fn take_reserved(file: BorrowedFd<'_>, bytes: u64) {
    let Ok(file) = file.try_clone_to_owned() else { return };
    let take = move || {
        let pieces = (0..bytes).step_by(TAKEN_AT_ONCE as usize);
        let mut pieces = pieces.map(|at| (at, TAKEN_AT_ONCE.min(bytes - at)));
        pieces.all(|(at, count)| fallocate(&file, FallocateFlags::empty(), at, count).is_ok())
    };
    // Without the thread they are taken as they are stored to.
    let _ = std::thread::Builder::new().name("kelix-pages".into()).spawn(take);
}

/// Whether a file of shared memory is in reserved huge pages.
pub(super) fn is_reserved(file: impl AsFd) -> bool {
    fstatfs(file).is_ok_and(|of| of.f_type as u64 == HUGETLBFS_MAGIC)
}

/// Bytes that this process has mapped in huge pages which the system granted.
pub fn granted_bytes() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let bytes = |line: &str| line.strip_prefix("ShmemPmdMapped:")?.trim().strip_suffix(" kB")?.parse().ok();
    rollup.lines().find_map(bytes).map_or(0, |kib: u64| kib << 10)
}
