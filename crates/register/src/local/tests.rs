//! What a register in files does beyond what every register does: damage, loss of the directory, and
//! outcomes that nobody knows.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, SystemTime};

use kelix_types::{Effect, Error, ErrorKind};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

use super::directory::KEPT_VIEWS;
use super::*;
use crate::DOCUMENT_BYTES_MAX;
use crate::conformance::{self, view};

/// More than any process has.
const NO_PROCESS: u32 = 1 << 30;

/// A directory for a register, which is not made yet.
struct Place {
    parent: TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Place {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("register");
        Place { parent, path }
    }

    fn open(&self) -> LocalRegister {
        LocalRegister::open(&self.path).unwrap()
    }

    /// A handle on a register that has views up to this number, which it has seen.
    fn with_views(&self, newest: u64) -> LocalRegister {
        let mut register = self.open();
        for number in 1..=newest {
            assert_eq!(register.swap(number - 1, &view(number, number)).unwrap(), Swapped::Done);
        }
        register
    }

    fn file(&self, number: u64) -> PathBuf {
        self.path.join(view_name(number))
    }

    fn names(&self) -> BTreeSet<String> {
        let names = fs::read_dir(&self.path).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// The error of each of the calls.
fn errors(register: &mut LocalRegister, newest: u64) -> [Error; 3] {
    [
        register.read().unwrap_err(),
        register.is_current(newest).unwrap_err(),
        register.swap(newest, &view(newest + 1, 99)).unwrap_err(),
    ]
}

fn assert_lost(register: &mut LocalRegister, newest: u64, why: &str) {
    for error in errors(register, newest) {
        assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
        assert_eq!((error.effect(), error.retry()), (Effect::No, false), "{error}");
        assert!(error.context().contains(why), "{error}");
    }
}

/// Reads view 2 after its file was changed, through a handle that knew the view and through a new one.
fn read_changed(change: impl FnOnce(&Path)) -> Error {
    let place = Place::new();
    let mut register = place.with_views(2);
    change(&place.file(2));
    let error = register.read().unwrap_err();
    assert!(error.context().contains(place.file(2).to_str().unwrap()), "{error}");
    assert_eq!(place.open().read().unwrap_err().to_string(), error.to_string());
    error
}

#[test]
fn conforms() {
    conformance::run(|| {
        let place = Place::new();
        move || place.open()
    });
}

#[test]
fn files_are_private_and_only_views_stay() {
    let place = Place::new();
    let mut register = place.with_views(2);
    assert_eq!(place.open().swap(0, &view(1, 9)).unwrap(), Swapped::Lost);
    assert_eq!(register.swap(1, &view(2, 9)).unwrap(), Swapped::Lost);
    assert_eq!(place.names(), BTreeSet::from(["view.1".into(), "view.2".into()]));
    assert_eq!(fs::metadata(&place.path).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(place.file(1)).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(place.file(1)).unwrap().nlink(), 1);
}

#[test]
fn a_directory_is_opened_by_many_at_once() {
    const THREADS: u64 = 8;
    let place = Place::new();
    let path = place.path.join("below").join("that");
    let barrier = Barrier::new(THREADS as usize);
    let begin = |proposal| {
        barrier.wait();
        let mut register = LocalRegister::open(&path).unwrap();
        register.swap(0, &view(1, proposal)).unwrap()
    };
    let ended: Vec<Swapped> = std::thread::scope(|scope| {
        let begin = &begin;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || begin(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ended.iter().filter(|ended| **ended == Swapped::Done).count(), 1);
}

#[test]
fn a_handle_opened_later_goes_on() {
    let place = Place::new();
    drop(place.with_views(12));
    let mut register = place.open();
    assert!(register.is_current(12).unwrap());
    assert_eq!(register.read().unwrap(), Some(view(12, 12)));
    assert_eq!(register.swap(12, &view(13, 13)).unwrap(), Swapped::Done);
}

#[test]
fn old_views_are_emptied_and_their_numbers_never_given_again() {
    let place = Place::new();
    let mut register = place.with_views(20);
    for number in 1..=20 {
        let bytes = fs::metadata(place.file(number)).unwrap().len();
        assert_eq!(bytes == 0, number <= 20 - KEPT_VIEWS, "{number}");
    }
    for number in 1..=20 {
        assert_eq!(register.swap(number - 1, &view(number, 99)).unwrap(), Swapped::Lost, "{number}");
        assert_eq!(place.open().swap(number - 1, &view(number, 99)).unwrap(), Swapped::Lost, "{number}");
    }
    assert_eq!(place.open().read().unwrap(), Some(view(20, 20)));
}

#[test]
fn views_that_were_not_emptied_are_emptied_later() {
    let place = Place::new();
    let mut register = place.with_views(20);
    let contents = fs::read(place.file(20)).unwrap();
    for number in [11, 12] {
        fs::write(place.file(number), &contents).unwrap();
    }
    assert_eq!(register.swap(20, &view(21, 21)).unwrap(), Swapped::Done);
    assert!((1..=13).all(|number| fs::metadata(place.file(number)).unwrap().len() == 0));
}

#[test]
fn a_handle_far_behind_catches_up() {
    let place = Place::new();
    let mut behind = place.with_views(1);
    let mut ahead = place.open();
    for number in 2..=20 {
        assert_eq!(ahead.swap(number - 1, &view(number, number)).unwrap(), Swapped::Done);
    }
    assert!(!behind.is_current(1).unwrap());
    assert_eq!(behind.read().unwrap(), Some(view(20, 20)));
}

#[test]
fn a_view_that_is_emptied_before_it_is_read_gives_way_to_a_newer_one() {
    let place = Place::new();
    let mut behind = place.with_views(1);
    let mut ahead = place.open();
    for number in 2..=20 {
        assert_eq!(ahead.swap(number - 1, &view(number, number)).unwrap(), Swapped::Done);
    }
    // As if all that had happened after view 1 was found to be the newest.
    assert_eq!(behind.newest, 1);
    assert_eq!(behind.load_newest().unwrap(), Some(view(20, 20)));
}

#[test]
fn a_removed_directory_ends_the_register() {
    let place = Place::new();
    let mut register = place.with_views(2);
    fs::remove_dir_all(&place.path).unwrap();
    assert_lost(&mut register, 2, "was removed:");
    assert!(!place.path.exists());
}

#[test]
fn a_removed_directory_without_views_ends_the_register() {
    let place = Place::new();
    let mut register = place.open();
    fs::remove_dir(&place.path).unwrap();
    assert_lost(&mut register, 0, "was removed:");
}

#[test]
fn a_renamed_directory_ends_the_register() {
    let place = Place::new();
    let mut register = place.with_views(2);
    fs::rename(&place.path, place.parent.path().join("other")).unwrap();
    assert_lost(&mut register, 2, "was removed or renamed");
}

#[test]
fn a_replaced_directory_is_never_written_to() {
    let place = Place::new();
    let mut register = place.with_views(2);
    let other = place.parent.path().join("other");
    fs::rename(&place.path, &other).unwrap();
    let mut replacing = place.with_views(1);
    assert_lost(&mut register, 2, "was replaced by another directory");
    assert_eq!(place.names(), BTreeSet::from(["view.1".into()]));
    // The new one is in use, and is a register as good as any.
    assert!(replacing.is_current(1).unwrap());
    assert_eq!(replacing.read().unwrap(), Some(view(1, 1)));
}

#[test]
fn a_directory_that_is_another_by_a_link_ends_the_register() {
    let place = Place::new();
    let real = place.parent.path().join("real");
    fs::create_dir(&real).unwrap();
    symlink(&real, &place.path).unwrap();
    let mut register = place.with_views(1);
    fs::create_dir(place.parent.path().join("other")).unwrap();
    fs::remove_file(&place.path).unwrap();
    symlink("other", &place.path).unwrap();
    assert_lost(&mut register, 1, "was replaced by another directory");
}

#[test]
fn files_put_back_from_an_old_copy_end_the_register() {
    let place = Place::new();
    let mut register = place.with_views(3);
    fs::remove_file(place.file(3)).unwrap();
    assert_lost(&mut register, 3, "old copy");
    // The number is there again, in another file.
    let mut other = place.open();
    assert_eq!(other.swap(2, &view(3, 99)).unwrap(), Swapped::Done);
    assert_lost(&mut register, 3, "old copy");
}

#[test]
fn a_missing_file_is_noticed_when_the_register_is_opened() {
    let place = Place::new();
    drop(place.with_views(5));
    fs::remove_file(place.file(3)).unwrap();
    let error = LocalRegister::open(&place.path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.context().contains("view.3 is missing"), "{error}");
}

#[test]
fn a_number_that_nobody_gave_is_no_view() {
    let place = Place::new();
    let mut register = place.with_views(2);
    for name in ["view.03", "view.+3", "view.0", "view.", "view.3.old", "view.99999999999999999999", "views"]
    {
        fs::write(place.path.join(name), "").unwrap();
    }
    assert!(register.is_current(2).unwrap());
    assert!(place.open().is_current(2).unwrap());
    fs::write(place.file(u64::MAX), "").unwrap();
    assert_eq!(LocalRegister::open(&place.path).unwrap_err().kind(), ErrorKind::Damaged);
}

#[test]
fn a_torn_view_is_damaged() {
    let cut =
        |to: u64| move |file: &Path| File::options().write(true).open(file).unwrap().set_len(to).unwrap();
    assert_eq!(read_changed(cut(100)).kind(), ErrorKind::Damaged);
    assert_eq!(read_changed(cut(0)).kind(), ErrorKind::Damaged);
}

#[test]
fn an_edited_view_is_damaged() {
    let error = read_changed(|file| {
        let text = fs::read_to_string(file).unwrap();
        let edited = text.replacen("\"primary\": 101", "\"primary\": 102", 1);
        assert_ne!(edited, text);
        fs::write(file, edited).unwrap();
    });
    assert_eq!(error.kind(), ErrorKind::Damaged);
}

#[test]
fn a_view_under_another_number_is_damaged() {
    let error = read_changed(|file| {
        let first = file.with_file_name("view.1");
        fs::write(file, fs::read(first).unwrap()).unwrap();
    });
    assert_eq!(error.kind(), ErrorKind::Damaged);
}

#[test]
fn a_view_of_a_later_format_is_incompatible() {
    let error = read_changed(|file| {
        let text = "{ \"format\": 2 }\n";
        fs::write(file, format!("{text}{:016x}\n", xxh3_64(text.as_bytes()))).unwrap();
    });
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.context().contains("later release"), "{error}");
}

#[test]
fn an_oversized_view_is_refused_unread() {
    // A file with a hole that memory and this test's disk could not hold.
    let grow = |file: &Path| File::options().write(true).open(file).unwrap().set_len(1 << 40).unwrap();
    let error = read_changed(grow);
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.context().contains(&DOCUMENT_BYTES_MAX.to_string()), "{error}");
}

#[test]
fn a_view_that_is_no_plain_file_is_damaged() {
    let place = Place::new();
    let mut register = place.with_views(1);
    fs::create_dir(place.file(2)).unwrap();
    assert_eq!(register.read().unwrap_err().kind(), ErrorKind::Damaged);
    // Another file by a link is nothing that this crate wrote, whatever stands there.
    fs::rename(place.file(1), place.path.join("elsewhere")).unwrap();
    fs::remove_dir(place.file(2)).unwrap();
    symlink("elsewhere", place.file(1)).unwrap();
    assert_eq!(place.open().read().unwrap_err().kind(), ErrorKind::Damaged);
}

#[test]
fn a_damaged_view_is_superseded_by_no_guess() {
    let place = Place::new();
    let mut register = place.with_views(2);
    File::options().write(true).open(place.file(2)).unwrap().set_len(5).unwrap();
    // Whether a number that is given is this caller's cannot be told: nothing is made up.
    let error = register.swap(1, &view(2, 2)).unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Damaged, Effect::Unknown));
}

#[test]
fn an_unknown_outcome_is_settled_by_reading() {
    let place = Place::new();
    let mut register = place.with_views(1);
    register.directory.failing_syncs = 2;
    let error = register.swap(1, &view(2, 22)).unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::System, Effect::Unknown));
    // A number that is not durable is not acted on.
    assert_eq!(register.read().unwrap_err().kind(), ErrorKind::System);
    assert_eq!(register.read().unwrap(), Some(view(2, 22)));
    assert!(register.is_current(2).unwrap());
}

#[test]
fn an_unknown_outcome_is_settled_by_the_same_swap() {
    let place = Place::new();
    let mut register = place.with_views(1);
    register.directory.failing_syncs = 1;
    register.swap(1, &view(2, 22)).unwrap_err();
    assert_eq!(place.open().swap(1, &view(2, 23)).unwrap(), Swapped::Lost);
    assert_eq!(register.swap(1, &view(2, 22)).unwrap(), Swapped::Done);
    assert_eq!(place.names(), BTreeSet::from(["view.1".into(), "view.2".into()]));
}

#[test]
fn an_unknown_outcome_that_was_superseded_is_lost() {
    let place = Place::new();
    let mut register = place.with_views(1);
    register.directory.failing_syncs = 1;
    register.swap(1, &view(2, 22)).unwrap_err();
    assert_eq!(place.open().swap(2, &view(3, 33)).unwrap(), Swapped::Done);
    assert_eq!(register.swap(1, &view(2, 22)).unwrap(), Swapped::Lost);
}

#[test]
fn a_document_that_cannot_be_written_gets_no_number() {
    let place = Place::new();
    let mut register = place.with_views(1);
    register.directory.is_full = true;
    let error = register.swap(1, &view(2, 2)).unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::System, Effect::No));
    assert_eq!(place.names(), BTreeSet::from(["view.1".into()]));
    register.directory.is_full = false;
    assert_eq!(register.swap(1, &view(2, 2)).unwrap(), Swapped::Done);
}

#[test]
fn nobody_acts_on_a_number_that_is_not_durable() {
    let place = Place::new();
    let mut reader = place.open();
    drop(place.with_views(1));
    reader.directory.failing_syncs = 3;
    for error in errors(&mut reader, 0) {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::System, Effect::No), "{error}");
    }
    assert!(reader.is_current(1).unwrap());
}

#[test]
fn files_of_dead_processes_are_removed() {
    let place = Place::new();
    drop(place.with_views(1));
    let old = SystemTime::now() - Duration::from_secs(120);
    let put = |process: u32, random: &str, modified: SystemTime| {
        let name = format!("proposal.{process}.{random}");
        let file = File::create(place.path.join(&name)).unwrap();
        file.set_modified(modified).unwrap();
        name
    };
    put(NO_PROCESS, "a", old);
    let young = put(NO_PROCESS, "b", SystemTime::now());
    let living = put(std::process::id(), "c", old);
    let others = ["proposal.x.d", "proposal.0.e", "proposal.-1.f", "note"].map(String::from);
    for name in &others {
        File::create(place.path.join(name)).unwrap().set_modified(old).unwrap();
    }
    assert!(place.open().is_current(1).unwrap());
    let mut expected = BTreeSet::from(["view.1".into(), young, living]);
    expected.extend(others);
    assert_eq!(place.names(), expected);
}

#[test]
fn a_file_is_no_directory() {
    let place = Place::new();
    fs::write(&place.path, "").unwrap();
    let error = LocalRegister::open(&place.path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::System);
    assert!(error.context().contains(place.path.to_str().unwrap()), "{error}");
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let place = Place::new();
    fs::create_dir(&place.path).unwrap();
    for mode in [0o720, 0o702, 0o777] {
        fs::set_permissions(&place.path, Permissions::from_mode(mode)).unwrap();
        let error = LocalRegister::open(&place.path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.context().contains("chmod 700"), "{error}");
    }
    fs::set_permissions(&place.path, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(place.open().read().unwrap(), None);
}

#[test]
fn a_directory_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tried: only root can give a directory to another user");
        return;
    }
    let place = Place::new();
    fs::create_dir(&place.path).unwrap();
    chown(&place.path, Some(65534), None).unwrap();
    assert_eq!(LocalRegister::open(&place.path).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_swap_without_permission_has_no_effect() {
    if rustix::process::geteuid().is_root() {
        eprintln!("not tried: root may write everywhere");
        return;
    }
    let place = Place::new();
    let mut register = place.with_views(1);
    fs::set_permissions(&place.path, Permissions::from_mode(0o500)).unwrap();
    let error = register.swap(1, &view(2, 2)).unwrap_err();
    fs::set_permissions(&place.path, Permissions::from_mode(0o700)).unwrap();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::System, Effect::No));
    assert_eq!(register.read().unwrap(), Some(view(1, 1)));
}
