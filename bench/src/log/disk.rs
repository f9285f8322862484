//! Where the files are that are measured: a folder on a disk, whose device and file system the rows name.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::text;

/// What `statfs` calls a file system that is in memory.
const TMPFS: u64 = 0x0102_1994;
/// Where numbers of the device stand in its `stat`: writes that it has done, and flushes.
const WRITES: usize = 4;
const FLUSHES: usize = 15;

/// Where the folder was made, for who has to remove it.
static FOLDER_OF_FILES: Mutex<Option<PathBuf>> = Mutex::new(None);

/// The folder in which files are made that are measured, if there are any.
pub(crate) fn folder_of_files() -> Option<PathBuf> {
    FOLDER_OF_FILES.lock().expect("no panic under this lock").clone()
}

/// A folder on a disk. It goes with this.
pub(super) struct Disk {
    folder: PathBuf,
    /// The file system and its device, in words.
    pub name: String,
    /// The file with numbers of the device, where the file system is on one.
    stat: Option<PathBuf>,
}

/// What a device has done.
#[derive(Clone, Copy, Default)]
pub(super) struct Done {
    pub writes: u64,
    pub flushes: u64,
}

impl Disk {
    /// Makes a folder in the one that was chosen, or else in `target` or that of temporary files, whichever
    /// is on a disk.
    pub fn open(chosen: Option<&Path>) -> Result<Disk, String> {
        let target = std::env::current_dir().map(|current| current.join("target")).map_err(text)?;
        let usual = [target, std::env::temp_dir()];
        let candidates = chosen.map_or_else(|| usual.to_vec(), |chosen| vec![chosen.to_path_buf()]);
        let mut in_memory = Vec::new();
        for parent in candidates.iter().filter(|of| chosen.is_some() || of.is_dir()) {
            let told =
                rustix::fs::statfs(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
            if told.f_type as u64 == TMPFS {
                in_memory.push(parent.display().to_string());
                continue;
            }
            return Disk::within(parent);
        }
        Err(format!(
            "{} is in memory (tmpfs), where syncs do nothing: give a folder on a disk with --directory DIR",
            in_memory.join(" and ")
        ))
    }

    fn within(parent: &Path) -> Result<Disk, String> {
        let parent = parent.canonicalize().map_err(text)?;
        *FOLDER_OF_FILES.lock().expect("no panic under this lock") = Some(parent.clone());
        let folder = parent.join(format!("kelix-bench-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").map_err(text)?;
        let mount = Mount::of(&folder, &mounts).ok_or("the folder is in no file system that is mounted")?;
        Ok(Disk { folder, name: format!("{} on {}", mount.kind, mount.device), stat: mount.stat() })
    }

    /// A folder in it, which is made if it is not there.
    pub fn folder(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(folder)
    }

    /// What its device has done since the system began, others' work too; nothing where that is not told.
    pub fn done(&self) -> Done {
        let told = self.stat.as_ref().and_then(|stat| std::fs::read_to_string(stat).ok());
        let numbers: Vec<u64> = told
            .iter()
            .flat_map(|told| told.split_whitespace())
            .filter_map(|word| word.parse().ok())
            .collect();
        let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
        Done { writes: number(WRITES), flushes: number(FLUSHES) }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Done {
    /// What was done since then.
    pub fn since(self, before: Done) -> Done {
        Done { writes: self.writes - before.writes, flushes: self.flushes - before.flushes }
    }

    /// Adds what was done at another time.
    pub fn add(&mut self, other: Done) {
        (self.writes, self.flushes) = (self.writes + other.writes, self.flushes + other.flushes);
    }
}

/// A file system that is mounted.
#[derive(PartialEq, Eq, Debug)]
struct Mount {
    /// MAJOR:MINOR
    number: String,
    kind: String,
    device: String,
}

impl Mount {
    /// The one that a path is in: of those whose place is above it the nearest, and the last that was mounted
    /// there.
    fn of(path: &Path, mounts: &str) -> Option<Mount> {
        let above = mounts.lines().filter_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let (place, mut kind) = (place.split(' ').collect::<Vec<_>>(), kind.split(' '));
            let at = PathBuf::from(unescaped(place.get(4)?));
            let mount = Mount {
                number: place.get(2)?.to_string(),
                kind: kind.next()?.to_string(),
                device: unescaped(kind.next()?),
            };
            path.starts_with(&at).then(|| (at.components().count(), mount))
        });
        above.max_by_key(|(depth, _)| *depth).map(|(_, mount)| mount)
    }

    /// The file with numbers of the device. Flushes are counted of a whole disk, not of a part of it.
    fn stat(&self) -> Option<PathBuf> {
        let device = Path::new("/sys/dev/block").join(&self.number).canonicalize().ok()?;
        let whole = if device.join("partition").exists() { device.parent()? } else { &device };
        let stat = whole.join("stat");
        File::open(&stat).is_ok().then_some(stat)
    }
}

/// A name of the table of mounts: spaces and the like are octal numbers there.
fn unescaped(name: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(name.to_string(), |name, (octal, letter)| name.replace(octal, letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_in_the_nearest_file_system_that_was_mounted_last() {
        let mounts = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                      30 27 0:27 / /dev/shm rw shared:3 - tmpfs tmpfs rw,size=1k\n\
                      31 27 8:1 / /a\\040disk rw - ext2 /dev/sda1 rw\n\
                      32 27 8:2 / /a\\040disk rw - xfs /dev/sda2 rw\n";
        let of = |path: &str| {
            let mount = Mount::of(Path::new(path), mounts).expect("the root is above all");
            (mount.number, mount.kind, mount.device)
        };
        let told = |number: &str, kind: &str, device: &str| (number.into(), kind.into(), device.into());
        assert_eq!(of("/dev/shmx/log"), told("254:0", "ext4", "/dev/vda"));
        assert_eq!(of("/dev/shm/log"), told("0:27", "tmpfs", "tmpfs"));
        assert_eq!(of("/a disk/log"), told("8:2", "xfs", "/dev/sda2"));
        assert_eq!(Mount::of(Path::new("/x"), ""), None);
    }

    #[test]
    fn a_folder_in_memory_is_refused() {
        let shm = Path::new("/dev/shm");
        if rustix::fs::statfs(shm).is_ok_and(|told| told.f_type as u64 == TMPFS) {
            let error = Disk::open(Some(shm)).err().expect("it is in memory");
            assert!(error.contains("/dev/shm is in memory") && error.contains("--directory DIR"), "{error}");
        }
        let error = Disk::open(Some(Path::new("/nowhere"))).err().expect("it is not there");
        assert!(error.contains("/nowhere"), "{error}");
    }
}
