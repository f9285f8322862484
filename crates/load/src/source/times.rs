//! Whether files have changed, by their sizes and their times of change.
//!
//! The clock of a file system goes in steps, some of them as long as two seconds. A file that was changed a
//! moment ago may be changed once more within the same step, with the same size, and look the same after it.
//! So what is that young counts as changed the next time, too.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// No file system's clock goes in longer steps.
const STEP: Duration = Duration::from_secs(2);

/// The state of some files.
pub(super) struct Times {
    now: Duration,
    text: String,
    settled: bool,
}

impl Times {
    /// Of no files yet. They are to be added at once, because what is young is told from here.
    pub fn new() -> Times {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Times { now, text: String::new(), settled: true }
    }

    /// Adds a file, or that there is none.
    pub fn add(&mut self, path: &Path) {
        // The time of change is the system's own. When it was written can be set by anybody.
        self.add_by(path, |metadata| (metadata.ctime(), metadata.ctime_nsec()));
    }

    /// Adds a file whose time of change tells nothing, because a look at it changes that. When it was written
    /// is the time that counts.
    pub fn add_by_writing(&mut self, path: &Path) {
        self.add_by(path, |metadata| (metadata.mtime(), metadata.mtime_nsec()));
    }

    fn add_by(&mut self, path: &Path, time: fn(&Metadata) -> (i64, i64)) {
        let path_shown = path.display();
        let Ok(metadata) = path.metadata() else {
            self.text += &format!("no {path_shown}\n");
            return;
        };
        let (seconds, nanoseconds) = time(&metadata);
        let (device, number, bytes) = (metadata.dev(), metadata.ino(), metadata.len());
        self.text += &format!("{path_shown} {device} {number} {bytes} {seconds}.{nanoseconds}\n");
        let changed = Duration::new(seconds.max(0) as u64, nanoseconds.max(0) as u32);
        self.settled &= changed + STEP <= self.now;
    }

    /// What they are like: another text whenever one of them has changed. `None`: some are too young to tell.
    pub fn state(self) -> Option<String> {
        Some(self.text).filter(|_| self.settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(later: Duration, paths: &[&Path]) -> Option<String> {
        let mut times = Times::new();
        times.now += later;
        paths.iter().for_each(|path| times.add(path));
        times.state()
    }

    #[test]
    fn what_was_changed_a_moment_ago_cannot_be_told() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        std::fs::write(&one, "1").unwrap();
        assert_eq!(state(Duration::ZERO, &[&one]), None);
        let before = state(STEP, &[&one, &other]).unwrap();
        assert_eq!(state(STEP, &[&one, &other]), Some(before.clone()));
        std::fs::write(&other, "").unwrap();
        let with_other = state(STEP, &[&one, &other]).unwrap();
        assert_ne!(before, with_other);
        std::fs::write(&one, "22").unwrap();
        assert_ne!(state(STEP, &[&one, &other]).unwrap(), with_other);
        // A file with an old time that is put there now is new all the same.
        let old = std::fs::File::open(&one).unwrap();
        old.set_modified(UNIX_EPOCH).unwrap();
        assert_eq!(state(Duration::ZERO, &[&one]), None);
    }
}
