//! Snapshots as people and scripts use them: a server that ends and begins again, by a signal, on a schedule,
//! by command; files that are damaged; another host; files that earlier releases made.

mod harness;

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder};
use harness::{Done, Place, Server, wait_until};
use rustix::process::Signal;
use serde_json::Value;

/// A server with snapshots in a directory of the place.
fn serve(place: &Place, args: &[&str]) -> Server {
    let directory = place.path().join("kept");
    let kept = ["--snapshots", directory.to_str().expect("text")];
    place.serve(&[&kept[..], args].concat())
}

/// What comes of a server that cannot begin.
fn begun(place: &Place) -> Done {
    let kept = place.path().join("kept");
    place.kelix(&["serve", "--memory", "64M", "--snapshots", kept.to_str().unwrap()])
}

fn files(place: &Place) -> Vec<PathBuf> {
    let listed =
        place.kelix(&["snapshot", "list", place.path().join("kept").to_str().unwrap(), "--json"]).json();
    let path = |snapshot: &Value| PathBuf::from(snapshot["path"].as_str().expect("a path"));
    listed["snapshots"].as_array().expect("a list").iter().map(path).collect()
}

fn end(mut server: Server) {
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
}

/// Items of every sort, in tables of every kind.
fn fill(place: &Place) {
    for args in [
        &["people", "stu001", "--attr", "name=XYZ", "--link", "supervisor=people/prof001"][..],
        &["people", "prof001", "--attr", "name=UVT"],
        &["plain", "key", "value"],
        &["plain", "with", "an end", "--expires", "36500d", "--flags", "7"],
    ] {
        place.kelix(&[&["put"], args].concat()).ok();
    }
    let large = place.file("large", &vec![7; 3 << 20]);
    place.kelix(&["put", "plain", "large", "--file", large.to_str().unwrap()]).ok();
    for (table, kind) in [
        ("numbers", &["--keys", "u64"][..]),
        ("inline", &["--keys", "u64", "--values", "inline8"]),
        ("strings", &[]),
    ] {
        place.kelix(&[&["table", "create", table, "--ordered"], kind].concat()).ok();
        for number in 0..60 {
            place.kelix(&["put", table, &number.to_string(), &(number * 2).to_string()]).ok();
        }
    }
    place.kelix(&["table", "create", "dropped"]).ok();
    place.kelix(&["table", "drop", "dropped", "--yes"]).ok();
    place.file("loaded.csv", b"id,name\n1,Ada\n2,Bob\n");
    let map =
        "dataset = \"company\"\n[[table]]\nname = \"loaded\"\nkey = \"{id}\"\nattributes = [\"name\"]\n";
    let map = place.file("map.toml", map.as_bytes());
    let from = place.path().to_str().expect("text");
    place.kelix(&["load", "--from", from, "--map", map.to_str().expect("text")]).ok();
}

/// All that there is.
fn all(place: &Place) -> String {
    let tables = place.kelix(&["table", "list"]).ok().to_string();
    let mut all = tables.clone();
    for table in tables.lines().map(|line| line.split('\t').next().expect("a name")) {
        let mut lines: Vec<String> =
            place.kelix(&["scan", table, "--json"]).ok().lines().map(String::from).collect();
        lines.sort_unstable();
        all += &lines.join("\n");
        all.push('\n');
    }
    all
}

#[test]
fn a_server_goes_on_where_another_one_ended() {
    let place = Place::new();
    let server = serve(&place, &["--shards", "2"]);
    fill(&place);
    // A link to another shard is mended when it is first followed, if the client stays for so long.
    wait_until("the link is mended", || {
        let chased = place.kelix(&["chase", "people", "stu001", "supervisor"]);
        chased.ok().contains("supervisor -> (1 remote read").then_some(())
    });
    let before = all(&place);
    assert!(place.kelix(&["stat"]).ok().contains("snapshots: none yet; 0 taken, 0 failed"));
    end(server);
    assert_eq!(files(&place).len(), 1);
    let server = serve(&place, &["--shards", "2"]);
    let told = &place.kelix(&["stat", "--json"]).json()["snapshots"];
    let bytes = std::fs::metadata(&files(&place)[0]).unwrap().len();
    assert_eq!((&told["bytes"], &told["taken"]), (&bytes.into(), &0.into()), "of the one that it began with");
    assert_eq!(all(&place), before);
    let chased = place.kelix(&["chase", "people", "stu001", "supervisor"]);
    assert!(chased.ok().contains("supervisor -> (1 remote read"), "{chased:?}");
    // It is written to, and ends again.
    place.kelix(&["put", "plain", "key", "another"]).ok();
    place.kelix(&["del", "strings", "7"]).ok();
    place.kelix(&["table", "create", "one more"]).ok();
    let before = all(&place);
    end(server);
    let server = serve(&place, &["--shards", "2"]);
    assert_eq!(all(&place), before);
    end(server);
    assert_eq!(files(&place).len(), 2, "two are kept");
    // With another number of shards it is not to be had, until it was given that.
    begun(&place).failed(2, &["2 shards", "kelix wal reshard", "--shards 1"]);
    let kept = place.path().join("kept");
    let reshard = ["wal", "reshard", kept.to_str().unwrap(), "--shards"];
    let told = place.kelix(&[&reshard[..], &["1", "--json"]].concat()).json();
    assert_eq!((&told["shards_before"], &told["shards"]), (&2.into(), &1.into()), "{told}");
    let server = serve(&place, &[]);
    assert_eq!(all(&place), before);
    end(server);
    assert_eq!(place.kelix(&[&reshard[..], &["1", "--json"]].concat()).error(2)["kind"], "invalid argument");
    place.kelix(&[&reshard[..], &["2"]].concat()).failed(2, &["before-reshard is there"]);
    std::fs::remove_dir_all(told["before"].as_str().expect("a path")).unwrap();
    let told = place.kelix(&[&reshard[..], &["2"]].concat());
    assert!(told.ok().contains("2 shards in place of 1"), "{told:?}");
    let server = serve(&place, &["--fresh"]);
    assert_eq!(place.kelix(&["table", "list"]).ok(), "");
    drop(server);
}

#[test]
fn a_snapshot_is_taken_while_others_write() {
    let place = Place::new();
    let server = serve(&place, &[]);
    fill(&place);
    let lines: String =
        (0..100_000).map(|n| format!("{{\"key\":\"k{n}\",\"value\":\"{n:0100}\"}}\n")).collect();
    let file = place.file("items.jsonl", lines.as_bytes());
    let import = ["table", "import", "items", file.to_str().unwrap()];
    let importing = place.kelix_writing(&import);
    let mut taken = Vec::new();
    for _ in 0..4 {
        taken.push(place.kelix(&["snapshot", "take", "--json"]).json());
    }
    assert!(importing.rest().ok().starts_with("imported 100000 items"));
    let path = PathBuf::from(taken[3]["path"].as_str().expect("a path"));
    assert_eq!(files(&place)[0], path);
    assert!(place.kelix(&["snapshot", "verify", path.to_str().unwrap()]).ok().contains("it is whole"));
    // It is of one moment: what was imported first is there, up to some line.
    let other = Place::new();
    std::fs::create_dir(other.path().join("kept")).unwrap();
    std::fs::copy(&path, other.path().join("kept").join(path.file_name().unwrap())).unwrap();
    let copy = serve(&other, &[]);
    let keys = other.kelix(&["scan", "items", "--keys-only"]);
    let mut numbers: Vec<u64> = keys.ok().lines().map(|key| key[1..].parse().unwrap()).collect();
    numbers.sort_unstable();
    // A batch of the import has no order.
    let gaps = numbers.iter().enumerate().filter(|(at, number)| *at as u64 != **number).count();
    assert!(gaps <= 256, "{gaps} of {} are not behind those before", numbers.len());
    drop((copy, server));
}

#[test]
fn a_schedule_keeps_the_newest() {
    let place = Place::new();
    let server = serve(&place, &["--snapshot-every", "1s", "--snapshot-keep", "3"]);
    fill(&place);
    wait_until("some were taken, and the first is gone", || {
        let files = files(&place);
        assert!(files.len() <= 3);
        (files.len() == 3).then_some(())
    });
    let newest = files(&place)[0].clone();
    wait_until("another is taken", || (files(&place)[0] != newest).then_some(()));
    drop(server);
    // One that was killed has left what it had.
    let server = serve(&place, &[]);
    assert!(place.kelix(&["table", "list"]).ok().contains("plain"));
    drop(server);
}

/// Two snapshots, the newest first, which tell what round it was.
fn two_rounds(place: &Place) -> [PathBuf; 2] {
    for round in ["first", "second"] {
        let server = serve(place, &[]);
        place.kelix(&["put", "plain", "round", round]).ok();
        end(server);
    }
    files(place).try_into().expect("two")
}

fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_snapshot_is_refused_and_the_one_before_is_used() {
    let place = Place::new();
    let [newest, oldest] = two_rounds(&place);
    // What was not written to its end is none.
    std::fs::write(newest.with_extension("kelix-snapshot.part"), b"half").unwrap();
    damage(&newest);
    place.kelix(&["snapshot", "verify", newest.to_str().unwrap()]).failed(5, &["damaged"]);
    let server = serve(&place, &[]);
    assert_eq!(place.kelix(&["get", "plain", "round"]).ok(), "first\n");
    drop(server);
    // What cannot be read at all is not passed over for what is older.
    let strange = place.path().join("kept/9999999999999.kelix-snapshot");
    std::fs::create_dir(&strange).unwrap();
    begun(&place).failed(5, &["9999999999999.kelix-snapshot"]);
    std::fs::remove_dir(&strange).unwrap();
    damage(&oldest);
    begun(&place).failed(5, &["none of the snapshots", "--fresh"]);
}

/// Changes words of the contents of a snapshot's memory, with checksums that are right. Returns how many.
fn craft(path: &Path, change: impl Fn(&mut [u64]) -> usize) -> usize {
    let bytes = std::fs::read(path).expect("a snapshot");
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    let mut words: Vec<u64> = words.collect();
    let checksum = |words: &[u64]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        xxhash_rust::xxh3::xxh3_64(&bytes)
    };
    // The first page, and behind it heads of 8 words with contents of whole 64 bytes: see the format in
    // `kelix_snapshot`.
    let (mut at, mut changed) = (512, 0);
    while at + 8 < words.len() {
        let (kind, count) = (words[at] >> 48, words[at + 3] as usize);
        let contents = at + 8..at + 8 + count;
        if kind == 1 {
            changed += change(&mut words[contents.clone()]);
            words[at + 4] = checksum(&words[contents]);
            words[at + 7] = checksum(&words[at..at + 7]);
        }
        at += 8 + count.next_multiple_of(8);
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(path, bytes).expect("written");
    changed
}

/// Checksums say that bytes are as they were written, and not by whom: what they say is looked at too.
#[test]
fn a_snapshot_whose_contents_make_no_sense_is_refused_and_verify_says_so() {
    let key = u64::from_le_bytes(*b"long-key");
    // The meta word of an item stands before its key, its guardian before that; see docs/image-format.md.
    type Change = fn(&mut [u64]);
    let crafted: [(&str, Change); 3] = [
        ("a key longer than its slot", |item| item[1] |= 0x1_ffff),
        ("flags that there are not", |item| item[1] |= 0x3ff << 38),
        ("an incarnation that was never given", |item| item[0] |= 0x7fff_ffff << 32),
    ];
    for (what, change) in crafted {
        let place = Place::new();
        let server = serve(&place, &[]);
        place.kelix(&["put", "t", "long-key", "value"]).ok();
        end(server);
        let file = files(&place).remove(0);
        assert!(place.kelix(&["snapshot", "verify", file.to_str().unwrap()]).ok().contains("it is whole"));
        let changed = craft(&file, |words| {
            let places: Vec<usize> = (2..words.len()).filter(|at| words[*at] == key).collect();
            places.iter().for_each(|at| change(&mut words[at - 2..]));
            places.len()
        });
        assert!(changed > 0, "{what}");
        let refused = place.kelix(&["snapshot", "verify", file.to_str().unwrap()]);
        refused.failed(5, &["damaged", "an item makes no sense"]);
        begun(&place).failed(5, &["can be read"]);
    }
}

/// Makes a file one of another version.
fn make_version(path: &Path, version: u8) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[8] = version;
    bytes[24..32].fill(0);
    let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[..4096]);
    bytes[24..32].copy_from_slice(&checksum.to_le_bytes());
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn what_a_later_release_wrote_is_not_passed_over() {
    let place = Place::new();
    let [newest, oldest] = two_rounds(&place);
    make_version(&newest, 3);
    place
        .kelix(&["snapshot", "verify", newest.to_str().unwrap()])
        .failed(5, &["version 3", "reads version 2"]);
    begun(&place).failed(5, &["version 3"]);
    // It is as old as it says, whatever it is called.
    let renamed = place.path().join("kept/before-upgrade.kelix-snapshot");
    std::fs::rename(&newest, &renamed).unwrap();
    begun(&place).failed(5, &["version 3"]);
    std::fs::rename(&renamed, &newest).unwrap();
    // Older files may be of any version.
    make_version(&newest, 2);
    make_version(&oldest, 3);
    let server = serve(&place, &[]);
    assert_eq!(place.kelix(&["get", "plain", "round"]).ok(), "second\n");
    drop(server);
    assert_eq!(files(&place).len(), 2);
}

/// What there is in the directory of snapshots.
fn names(place: &Place) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place.path().join("kept")).unwrap();
    let mut names: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    names.sort_unstable();
    names
}

/// The file that a snapshot is written into.
fn part(place: &Place) -> Option<PathBuf> {
    names(place).into_iter().find(|path| path.extension().is_some_and(|ending| ending == "part"))
}

#[test]
fn a_server_that_is_killed_while_it_writes_one_goes_on_from_the_one_before() {
    let place = Place::new();
    let lines: String =
        (0..50_000).map(|n| format!("{{\"key\":\"k{n}\",\"value\":\"{n:0300}\"}}\n")).collect();
    let file = place.file("items.jsonl", lines.as_bytes());
    let mut server = serve(&place, &[]);
    place.kelix(&["table", "import", "items", file.to_str().unwrap()]).ok();
    let mut kept = String::from("none");
    let mut cut = 0;
    for round in 0..12 {
        let now = format!("round {round}");
        place.kelix(&["put", "plain", "round", &now]).ok();
        if round % 3 == 0 {
            place.kelix(&["snapshot", "take"]).ok();
            kept = now;
            continue;
        }
        let before = names(&place);
        let taking = place.kelix_writing(&["snapshot", "take"]);
        wait_until("it is being written", || (names(&place) != before).then_some(()));
        drop(server);
        let left = part(&place);
        taking.rest();
        cut += usize::from(left.is_some());
        server = serve(&place, &[]);
        let found = place.kelix(&["get", "plain", "round"]).ok().trim().to_string();
        assert_eq!(found, if left.is_some() { &kept } else { &now }[..], "{left:?}");
        kept = found;
        assert_eq!(place.kelix(&["scan", "items", "--count"]).ok(), "50000\n");
    }
    assert!(cut > 0, "all were whole before the server was dead");
    place.kelix(&["snapshot", "take"]).ok();
    assert_eq!(part(&place), None, "what was left goes with the next one");
}

#[test]
fn a_server_that_cannot_take_its_last_snapshot_says_so() {
    let place = Place::new();
    let mut server = serve(&place, &[]);
    place.kelix(&["put", "plain", "key", "value"]).ok();
    // Also root cannot write into a directory that is not there.
    std::fs::remove_dir_all(place.path().join("kept")).unwrap();
    server.signal(Signal::TERM);
    let (code, told) = server.end();
    assert_eq!(code, Some(5), "{told}");
    assert!(told.contains("last snapshot"), "{told}");
}

#[test]
fn without_a_directory_there_are_no_snapshots() {
    let (place, _server) = Place::served();
    place.kelix(&["snapshot", "take"]).failed(5, &["--snapshots"]);
    place.kelix(&["snapshot", "list", "/nowhere"]).failed(5, &["/nowhere"]);
    place.kelix(&["snapshot", "verify", "/dev/null"]).failed(5, &["damaged"]);
}

/// Where a snapshot of each release is, packed, and beside it what was in it.
fn releases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/releases")
}

/// All that there is, for people.
fn shown(place: &Place) -> String {
    all(place).replace(&"07".repeat(3 << 20), "07, 3 Mi times")
}

/// Serves a snapshot in a place of its own.
fn serve_copy(snapshot: &[u8]) -> (Place, Server) {
    let place = Place::new();
    let kept = place.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    std::fs::write(kept.join("1000.kelix-snapshot"), snapshot).unwrap();
    let server = serve(&place, &["--shards", "2"]);
    (place, server)
}

/// Whoever changes a format and forgets those who have files in the old one notices here.
#[test]
fn snapshots_of_all_releases_are_opened() {
    let mut all_wanted: Vec<PathBuf> =
        std::fs::read_dir(releases()).unwrap().map(|entry| entry.unwrap().path()).collect();
    all_wanted.retain(|path| path.extension().is_some_and(|ending| ending == "txt"));
    assert!(!all_wanted.is_empty(), "there is a file of the first release");
    for wanted in all_wanted {
        let packed = std::fs::File::open(wanted.with_extension("kelix-snapshot.gz")).unwrap();
        let mut snapshot = Vec::new();
        GzDecoder::new(packed).read_to_end(&mut snapshot).unwrap();
        let (place, server) = serve_copy(&snapshot);
        assert_eq!(shown(&place), std::fs::read_to_string(&wanted).unwrap(), "{}", wanted.display());
        // It goes on from there.
        place.kelix(&["put", "people", "stu002", "--link", "supervisor=people/prof001"]).ok();
        place.kelix(&["del", "plain", "large"]).ok();
        let before = all(&place);
        end(server);
        let server = serve(&place, &["--shards", "2"]);
        assert_eq!(all(&place), before);
        drop(server);
    }
}

/// No test: it makes the file of this release for the test above, as CONTRIBUTING.md, "Releases", says.
#[test]
#[ignore = "for releases"]
fn make_the_file_of_this_release() {
    let file = releases().join(concat!(env!("CARGO_PKG_VERSION"), ".kelix-snapshot.gz"));
    let text = releases().join(concat!(env!("CARGO_PKG_VERSION"), ".txt"));
    assert!(!file.exists(), "{} is there; if it is of no release yet, remove it first", file.display());
    let place = Place::new();
    let server = serve(&place, &["--shards", "2"]);
    fill(&place);
    // With notes of what changed while it was taken.
    let lines: String = (0..50_000).map(|n| format!("{{\"key\":\"busy\",\"value\":\"{n}\"}}\n")).collect();
    let lines = place.file("lines.jsonl", lines.as_bytes());
    let writing = place.kelix_writing(&["table", "import", "plain", lines.to_str().unwrap()]);
    let snapshot = wait_until("one has notes", || {
        place.kelix(&["snapshot", "take"]).ok();
        let path = files(&place)[0].clone();
        let listed = place.kelix(&["snapshot", "verify", path.to_str().unwrap(), "--json"]).json();
        (listed["notes_bytes"].as_u64() > Some(0)).then(|| std::fs::read(path).unwrap())
    });
    writing.rest().ok();
    drop(server);
    let (place, server) = serve_copy(&snapshot);
    std::fs::write(text, shown(&place)).unwrap();
    drop(server);
    let mut packed = Vec::new();
    GzEncoder::new(&snapshot[..], Compression::best()).read_to_end(&mut packed).unwrap();
    std::fs::write(file, packed).unwrap();
}
