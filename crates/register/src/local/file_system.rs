//! Which file systems a register of one host may be on.
//!
//! A register relies on `link` that fails for all but one of several callers, on names that every caller sees
//! at once, and on `fsync` of a directory. A network file system answers from caches, repeats a `link` whose
//! answer was lost and then reports a failure, and lets other hosts take part whose processes this host knows
//! nothing of.
//!
//! Overlayfs is accepted, since containers have little else. All files of a register are created while the
//! register is in use, so they are in the upper layer, and their `link` is that of the upper layer's file
//! system: atomic.

use std::os::fd::AsFd;
use std::path::Path;

use kelix_types::{Error, ErrorKind, Result};
use rustix::fs::fstatfs;

use crate::OPERATION;

/// File systems that are not of one host, by the magic number that `statfs` tells.
const REFUSED: [(u32, &str); 20] = [
    (0x0000_6969, "NFS"),
    (0x0000_517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB 2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0000_564c, "NCP"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x0bd0_0bd3, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x2003_0528, "OrangeFS"),
    (0x1983_0326, "BeeGFS"),
    (0x786f_4256, "a shared folder of VirtualBox"),
    (0xbacb_acbc, "a shared folder of VMware"),
    (0x0131_11a8, "IBRIX"),
];

/// The name of the file system with this magic number, if a register must not be on one.
fn refused(magic: u64) -> Option<&'static str> {
    // The number has 32 bits, but the field is a signed word: that of CIFS comes extended by its sign on some
    // systems.
    let magic = magic as u32;
    REFUSED.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

fn check_magic(magic: u64, path: &Path) -> Result<()> {
    let Some(name) = refused(magic) else { return Ok(()) };
    let context = format!(
        "{} is on a network file system ({name}), where two nodes could both become primary: name a \
         directory on a local disk of this host; a cluster over several hosts needs ZooKeeper",
        path.display()
    );
    Err(Error::new(ErrorKind::InvalidArgument, OPERATION, context))
}

/// An error if the directory is on a file system that a register cannot rely on.
pub(super) fn check(directory: impl AsFd, path: &Path) -> Result<()> {
    let status = fstatfs(directory).map_err(|source| {
        let context = format!("cannot tell the file system of {}", path.display());
        Error::system(OPERATION, context, std::io::Error::from(source))
    })?;
    check_magic(status.f_type as u64, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_refused() {
        // As linux/magic.h has them, each in the width that statfs gives.
        let network = [
            (0x6969, "NFS"),
            (0x517b, "SMB"),
            (0xff53_4d42, "CIFS"),
            (0xff53_4d42_u32 as i32 as i64 as u64, "CIFS"),
            (0xfe53_4d42_u32 as i32 as i64 as u64, "SMB 2"),
            (0x0102_1997, "9p"),
            (0x6573_5546, "FUSE"),
            (0x00c3_6400, "Ceph"),
            (0x5346_414f, "AFS"),
            (0x6b41_4653, "AFS"),
        ];
        for (magic, name) in network {
            let error = check_magic(magic, Path::new("/mnt/shared")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let context = error.context();
            assert!(context.contains("/mnt/shared") && context.contains(&format!("({name})")), "{context}");
        }
    }

    #[test]
    fn local_file_systems_are_accepted() {
        let local = [
            (0xef53, "ext4"),
            (0x5846_5342, "XFS"),
            (0x9123_683e, "Btrfs"),
            (0x0102_1994, "tmpfs"),
            (0x2fc1_2fc1, "ZFS"),
            (0xf2f5_2010, "F2FS"),
            (0x794c_7630, "overlayfs"),
        ];
        for (magic, name) in local {
            assert!(check_magic(magic, Path::new("/var/lib")).is_ok(), "{name}");
        }
    }
}
