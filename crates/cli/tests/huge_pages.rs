//! Servers whose memory is in pages of 2 MiB: in such as the host has reserved, of which there may be too
//! few, and in such as the system grants. Each test sets how many there are, so they are run by `make
//! test-huge-pages`, as root, and one after the other.

mod harness;

use std::path::PathBuf;

use harness::{Place, Server, wait_until};
use kelix::{Client, Session, Table};
use rustix::process::Signal;
use serde_json::Value;

const HUGE: u64 = 2 << 20;
const SHMEM: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
const RESERVED: &str = "/proc/sys/vm/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// A setting of the host, which is as it was before when this goes.
struct Setting {
    path: PathBuf,
    before: String,
}

impl Setting {
    fn set(path: &str, value: &str) -> Setting {
        let before = std::fs::read_to_string(path).expect("a setting");
        // The one in force among several stands in brackets.
        let in_force = before.split('[').nth(1).and_then(|rest| rest.split(']').next());
        let before = in_force.unwrap_or(&before).trim().to_string();
        let setting = Setting { path: path.into(), before };
        std::fs::write(path, value).expect("root may set it");
        setting
    }

    /// So many pages reserved.
    fn reserve(pages: u64) -> Setting {
        let setting = Setting::set(RESERVED, &pages.to_string());
        // Pages in the way are moved, and the system reserves as many as it finds then.
        wait_until("the host has memory in pieces of 2 MiB", || {
            std::fs::write("/proc/sys/vm/compact_memory", "1").expect("root may say so");
            std::fs::write(RESERVED, pages.to_string()).expect("root may set it");
            (number(RESERVED) == pages).then_some(())
        });
        setting
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        std::fs::write(&self.path, &self.before).expect("it could be set before");
    }
}

fn number(path: &str) -> u64 {
    std::fs::read_to_string(path).expect("a number").trim().parse().expect("a number")
}

/// What a server says of its pages.
fn pages(place: &Place) -> [u64; 3] {
    let told = place.kelix(&["stat", "--json"]).json();
    let told = told.get("huge_pages").or_else(|| told[0].get("huge_pages")).cloned().unwrap_or(Value::Null);
    ["segment_bytes", "reserved_bytes", "granted_bytes"].map(|name| told[name].as_u64().expect("bytes"))
}

fn session(place: &Place) -> (Session, Table) {
    let client = Client::connect(place.path().to_str().expect("plain letters")).expect("a server");
    let mut session = client.session().expect("a session");
    let table = session.create_table("records").expect("a table");
    (session, table)
}

fn value(record: u64) -> Vec<u8> {
    let word = record.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes().repeat(128)
}

/// Puts records of some 1 KiB until there are so many.
fn fill(session: &mut Session, table: Table, records: std::ops::Range<u64>) {
    for record in records {
        session.put(table, &record.to_le_bytes(), &value(record)).expect("room");
    }
}

fn check(session: &mut Session, table: Table, records: u64) {
    for record in 0..records {
        let found = session.get(table, &record.to_le_bytes()).expect("a server").expect("a record");
        assert_eq!(found.value(), value(record), "record {record}");
    }
}

/// The pages of a server that has gone are the host's again.
fn wait_until_free(pages: u64) {
    wait_until("reserved pages are free again", || (number(FREE) == pages).then_some(()));
}

#[test]
#[ignore = "it sets how many huge pages the host has"]
fn a_server_takes_what_is_reserved_and_goes_on_in_usual_pages() {
    let _granted = Setting::set(SHMEM, "never");
    let _reserved = Setting::reserve(40);
    let place = Place::new();
    let server: Server = place.serve_planned(&["--memory", "512M"]);
    let (mut session, table) = session(&place);
    // Segments of this server are of 16 MiB, so the sixth one finds none.
    assert_eq!(pages(&place)[1], 16 << 20);
    fill(&mut session, table, 0..200_000);
    let [all, reserved, granted] = pages(&place);
    assert!(all > reserved && reserved == 80 << 20, "{reserved} of {all}");
    assert_eq!(granted, 0);
    assert!(place.kelix(&["stat"]).ok().contains("shm in pages of 2 MiB ("), "the share is told");
    check(&mut session, table, 200_000);
    // However it ends, they are the host's again once nobody reads them.
    server.signal(Signal::KILL);
    drop(session);
    wait_until_free(40);
}

#[test]
#[ignore = "it sets how many huge pages the host has"]
fn a_server_that_requires_them_does_not_start_without() {
    let _granted = Setting::set(SHMEM, "never");
    let place = Place::new();
    let refused = place.kelix(&["serve", "--memory", "128M", "--huge-pages", "require"]);
    refused.failed(2, &["--huge-pages require", "64 pages of 2 MiB", "the host has 0", "vm.nr_hugepages=64"]);
    let reserved = Setting::reserve(63);
    let refused = place.kelix(&["serve", "--memory", "128M", "--huge-pages", "require"]);
    refused.failed(2, &["the host has 63"]);
    drop(reserved);
    let _reserved = Setting::reserve(64);
    let kept = place.path().join("kept");
    let kept = kept.to_str().expect("plain letters");
    let options = ["--memory", "128M", "--huge-pages", "require", "--snapshots", kept];
    let mut server = place.serve_planned(&options);
    let (mut filled, table) = session(&place);
    // Until there is no room, which is an error and nothing worse.
    let mut records = 0u64;
    while filled.put(table, &records.to_le_bytes(), &value(records)).is_ok() {
        records += 1;
    }
    let [all, reserved, _] = pages(&place);
    assert!(all == reserved && all > 100 << 20, "{reserved} of {all}");
    check(&mut filled, table, records);
    server.signal(Signal::TERM);
    assert_eq!(server.end(), (Some(0), String::new()));
    drop(filled);
    wait_until_free(64);
    // What there was is there again, in such pages.
    let _server = place.serve_planned(&options);
    let (mut found, table) = session(&place);
    check(&mut found, table, records);
    let [all, reserved, _] = pages(&place);
    assert_eq!(all, reserved);
}

#[test]
#[ignore = "it sets how many huge pages the host has"]
fn a_server_that_is_to_have_none_has_none() {
    let _granted = Setting::set(SHMEM, "advise");
    let _reserved = Setting::reserve(40);
    let place = Place::new();
    let _server = place.serve_planned(&["--memory", "128M", "--huge-pages", "off"]);
    let (mut session, table) = session(&place);
    fill(&mut session, table, 0..50_000);
    check(&mut session, table, 50_000);
    assert_eq!(pages(&place)[1..], [0, 0]);
    assert_eq!(number(FREE), 40);
}

#[test]
#[ignore = "it sets how many huge pages the host has"]
fn a_server_takes_what_the_system_grants() {
    let _granted = Setting::set(SHMEM, "advise");
    let place = Place::new();
    let server = place.serve_planned(&["--memory", "256M", "--huge-pages", "require"]);
    let (mut filled, table) = session(&place);
    fill(&mut filled, table, 0..100_000);
    // The server asks the system each ten seconds.
    let [all, reserved, granted] = wait_until("what was granted is told", || {
        let told = pages(&place);
        (told[2] >= 32 << 20).then_some(told)
    });
    assert_eq!(reserved, 0);
    assert!(granted >= 32 << 20 && granted % HUGE == 0, "{granted} of {all}");
    check(&mut filled, table, 100_000);
    drop((filled, server));
}

/// A control group that may have so many bytes of huge pages, which this process is in until it goes.
struct Group(PathBuf);

impl Group {
    /// `None`: the host has no such groups.
    fn enter(limit: u64) -> Option<Group> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let root = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?;
        let root = PathBuf::from(root);
        std::fs::write(root.join("cgroup.subtree_control"), "+hugetlb").ok()?;
        let group = Group(root.join(format!("kelix-{}", std::process::id())));
        std::fs::create_dir(&group.0).expect("root may make a group");
        std::fs::write(group.0.join("hugetlb.2MB.max"), limit.to_string()).expect("a limit");
        std::fs::write(group.0.join("cgroup.procs"), "0").expect("root may enter");
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let root = self.0.parent().expect("below the root");
        std::fs::write(root.join("cgroup.procs"), "0").expect("root may leave");
        // A process of the group may still be ending.
        wait_until("a group is empty", || std::fs::remove_dir(&self.0).ok());
    }
}

/// A store to a page that a control group may not have kills whoever makes it.
#[test]
#[ignore = "it sets how many huge pages the host has"]
fn a_server_takes_no_more_than_its_control_group_may_have() {
    let _granted = Setting::set(SHMEM, "never");
    let _reserved = Setting::reserve(80);
    let Some(group) = Group::enter(64 << 20) else {
        return eprintln!("skipped: this host has no control groups (version 2) with a limit on huge pages");
    };
    let place = Place::new();
    let refused = place.kelix(&["serve", "--memory", "128M", "--huge-pages", "require"]);
    refused.failed(2, &["the control group may have 32 of the 64 pages"]);
    let server = place.serve_planned(&["--memory", "128M"]);
    let (mut filled, table) = session(&place);
    fill(&mut filled, table, 0..50_000);
    assert_eq!(pages(&place)[1], 0);
    check(&mut filled, table, 50_000);
    drop((filled, server, group));
    // Who may have none reads what a server has that may.
    let place = Place::new();
    let _server = place.serve_planned(&["--memory", "128M", "--huge-pages", "require"]);
    let _group = Group::enter(0).expect("as before");
    let (mut filled, table) = session(&place);
    fill(&mut filled, table, 0..50_000);
    check(&mut filled, table, 50_000);
}
