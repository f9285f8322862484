//! How much memory this process may have: what the host has, or less where a control group that the process
//! is in says so.
//!
//! A container's limit is that of a control group. The system ends a process that goes beyond, so the least
//! limit of the group and of all those that it is in counts, of version 1 and of version 2.

use std::path::{Path, PathBuf};

use kelix_fabric::shm::{HugePages, are_granted, reserved_free_bytes, use_huge_pages};
use kelix_types::limits::HUGE_PAGE_BYTES;
use kelix_types::{Error, ErrorKind, Result};

/// A controller of control groups, and the files in which it has a limit: of version 2 and of version 1.
struct Controller {
    name: &'static str,
    file: &'static str,
    file_of_1: &'static str,
}

const MEMORY: Controller =
    Controller { name: "memory", file: "memory.max", file_of_1: "memory.limit_in_bytes" };
const HUGE: Controller =
    Controller { name: "hugetlb", file: "hugetlb.2MB.max", file_of_1: "hugetlb.2MB.limit_in_bytes" };

/// More than any memory, and less than the limit that version 1 of control groups tells where there is none.
const UNKNOWN_BYTES: u64 = 1 << 62;

/// Chooses the pages of all memory that this process shares with its clients from now on, of which there may
/// be so much, if that is known: `Off`, `Reserved` or `Required`. An error: they are required, and the host
/// has too few.
pub fn choose_huge_pages(wanted: HugePages, memory_bytes: Option<u64>) -> Result<()> {
    let limit = limit_of_groups(Path::new("/proc/self"), &HUGE).unwrap_or(u64::MAX);
    let in_pages = |bytes: u64| bytes.checked_next_multiple_of(HUGE_PAGE_BYTES).unwrap_or(u64::MAX);
    let whole = memory_bytes.map(|bytes| in_pages(bytes).max(HUGE_PAGE_BYTES));
    let (needed, most) = (whole.unwrap_or(HUGE_PAGE_BYTES), whole.unwrap_or(UNKNOWN_BYTES));
    let chosen = match wanted {
        HugePages::Required if !are_granted() && (limit < most || reserved_free_bytes() < needed) => {
            let pages = |bytes: u64| bytes / HUGE_PAGE_BYTES;
            let context = match limit < most {
                true => format!(
                    "--huge-pages require: the control group may have {} of the {} pages of 2 MiB that the \
                     memory may take (hugetlb.2MB.max; see --memory)",
                    pages(limit),
                    pages(most)
                ),
                false => format!(
                    "--huge-pages require: the memory takes {needed} pages of 2 MiB, and the host has {free} \
                     that are reserved and free; `sysctl vm.nr_hugepages={needed}` reserves as many",
                    needed = pages(needed),
                    free = pages(reserved_free_bytes())
                ),
            };
            return Err(Error::new(ErrorKind::InvalidArgument, "serve", context));
        }
        // A store to a page that the group may not have would kill the process.
        HugePages::Reserved if limit < most => HugePages::Granted,
        wanted => wanted,
    };
    use_huge_pages(chosen);
    Ok(())
}

/// Bytes of memory of the host's, by a name of `/proc/meminfo`.
pub(crate) fn memory_of_host(name: &str) -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/meminfo").ok()?;
    let size = sizes.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    size.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes of memory that this process may have, if the system tells.
pub(crate) fn memory_limit() -> Option<u64> {
    let host = memory_of_host("MemTotal");
    let group = limit_of_groups(Path::new("/proc/self"), &MEMORY);
    host.into_iter().chain(group).min()
}

/// The least limit of the control groups of a process, which is told by its folder in `/proc`. `None`: there
/// is none.
fn limit_of_groups(process: &Path, of: &Controller) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(process.join(name)).unwrap_or_default();
    let (groups, mounts) = (read("cgroup"), read("mountinfo"));
    let limits = groups.lines().filter_map(|group| {
        // A line is NUMBER:CONTROLLERS:PATH, and version 2 names no controllers.
        let mut parts = group.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let file = match controllers {
            "" => of.file,
            _ if controllers.split(',').any(|controller| controller == of.name) => of.file_of_1,
            _ => return None,
        };
        let (root, mount) = mounts.lines().find_map(|line| mounted(line, controllers.is_empty(), of))?;
        // A container may see only its own part, and not the path to it.
        let below = Path::new(path).strip_prefix(&root).unwrap_or(Path::new(""));
        let is_plain = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        let group = if is_plain { mount.join(below) } else { mount.clone() };
        let with_parents = group.ancestors().take_while(|folder| folder.starts_with(&mount));
        let limit =
            |folder: &Path| std::fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
        with_parents.filter_map(limit).min()
    });
    limits.min()
}

/// Where control groups with such limits are mounted, and which of them is there, by a line of
/// `mountinfo`.
fn mounted(line: &str, is_version_2: bool, of: &Controller) -> Option<(PathBuf, PathBuf)> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let is_it = match kind.next()? {
        "cgroup2" => is_version_2,
        "cgroup" => !is_version_2 && kind.nth(1)?.split(',').any(|option| option == of.name),
        _ => false,
    };
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    // Spaces are written so.
    let path = |text: &str| PathBuf::from(text.replace("\\040", " "));
    is_it.then(|| (path(root), path(point)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A host's files: what a process says of its groups, where these are mounted, and limits.
    struct Host(PathBuf);

    impl Drop for Host {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    impl Host {
        fn new(groups: &str, mounts: &[(&str, &str, &str)], limits: &[(&str, &str)]) -> Host {
            static MADE: AtomicUsize = AtomicUsize::new(0);
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let folder = std::env::temp_dir().join(format!("kelix-groups-{}-{number}", std::process::id()));
            std::fs::create_dir_all(&folder).expect("a folder");
            let path = |name: &str| folder.join(name);
            let line = |(root, point, kind): &(&str, &str, &str)| {
                format!("30 24 0:26 {root} {} rw,nosuid shared:4 - {kind}\n", path(point).display())
            };
            std::fs::write(path("cgroup"), groups).expect("written");
            std::fs::write(path("mountinfo"), mounts.iter().map(line).collect::<String>()).expect("written");
            for (name, limit) in limits {
                std::fs::create_dir_all(path(name).parent().expect("a folder")).expect("made");
                std::fs::write(path(name), format!("{limit}\n")).expect("written");
            }
            Host(folder)
        }

        fn limit(&self) -> Option<u64> {
            limit_of_groups(&self.0, &MEMORY)
        }
    }

    const V2: (&str, &str, &str) = ("/", "cg", "cgroup2 cgroup2 rw,nsdelegate");
    const V1: (&str, &str, &str) = ("/", "mem", "cgroup cgroup rw,memory");

    #[test]
    fn the_least_limit_of_all_groups_around_counts() {
        let limits = |[outer, middle, own]: [&'static str; 3]| {
            [("cg/a/memory.max", outer), ("cg/a/b/memory.max", middle), ("cg/a/b/c/memory.max", own)]
        };
        for (sizes, wanted) in [
            (["max", "max", "max"], None),
            (["max", "max", "700"], Some(700)),
            (["max", "500", "700"], Some(500)),
            (["300", "500", "max"], Some(300)),
        ] {
            assert_eq!(Host::new("0::/a/b/c\n", &[V2], &limits(sizes)).limit(), wanted, "{sizes:?}");
        }
    }

    #[test]
    fn version_1_counts_as_well_and_beside_version_2() {
        let groups = "12:cpu,cpuacct:/x\n9:memory:/docker/1\n0::/y\n";
        let cpu = ("/", "cpu", "cgroup cgroup rw,cpu,cpuacct");
        let limits = [
            ("mem/memory.limit_in_bytes", "9223372036854771712"),
            ("mem/docker/memory.limit_in_bytes", "4096000"),
            ("mem/docker/1/memory.limit_in_bytes", "8192000"),
            ("cpu/x/memory.limit_in_bytes", "1"),
        ];
        assert_eq!(Host::new(groups, &[cpu, V1], &limits).limit(), Some(4_096_000));
        let with_both = [&limits[..], &[("cg/y/memory.max", "1000")]].concat();
        assert_eq!(Host::new(groups, &[cpu, V1, V2], &with_both).limit(), Some(1000));
    }

    #[test]
    fn a_container_sees_its_own_part_only() {
        let limits = [("cg/memory.max", "1234")];
        let of_host = ("/docker/1", "cg", "cgroup2 cgroup2 rw");
        for (groups, mount) in [
            ("0::/\n", V2),
            ("0::/docker/1\n", of_host),
            // The path as the host has it, or as it is from a namespace beside.
            ("0::/elsewhere\n", of_host),
            ("0::/../..\n", V2),
        ] {
            assert_eq!(Host::new(groups, &[mount], &limits).limit(), Some(1234), "{groups}");
        }
        let below = [("cg/memory.max", "max"), ("cg/deep/memory.max", "55")];
        assert_eq!(Host::new("0::/docker/1/deep\n", &[of_host], &below).limit(), Some(55));
    }

    #[test]
    fn a_host_without_groups_has_no_limit() {
        assert_eq!(Host::new("", &[], &[]).limit(), None);
        assert_eq!(Host::new("0::/a\n", &[], &[]).limit(), None);
        assert_eq!(Host::new("nonsense\n0::/a\n", &[V2], &[("cg/a/memory.max", "much")]).limit(), None);
    }
}
