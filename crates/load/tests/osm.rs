//! Loads from a map of OpenStreetMap, which is made here byte by byte.

mod support;

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use kelix_load::pbf::{self, What};
use kelix_load::{Options, load};
use support::{Files, Keeper, lines, parsed};

/// A message of protocol buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(mut self, mut value: u64) -> Message {
        while value >= 128 {
            self.0.push(value as u8 | 128);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn number(self, field: u64, value: i64) -> Message {
        self.varint(field << 3).varint(value as u64)
    }

    fn bytes(self, field: u64, bytes: &[u8]) -> Message {
        let mut message = self.varint(field << 3 | 2).varint(bytes.len() as u64);
        message.0.extend_from_slice(bytes);
        message
    }

    fn packed(self, field: u64, values: &[i64]) -> Message {
        let packed = values.iter().fold(Message::default(), |packed, value| packed.varint(*value as u64));
        self.bytes(field, &packed.0)
    }

    /// Numbers as differences to the one before, as the format has them.
    fn differences(self, field: u64, values: &[i64]) -> Message {
        let before = std::iter::once(&0).chain(values);
        let zigzag: Vec<i64> =
            values.iter().zip(before).map(|(own, last)| zigzag(own.wrapping_sub(*last))).collect();
        self.packed(field, &zigzag)
    }
}

/// A blob of a file.
fn blob(kind: &str, content: &[u8]) -> Vec<u8> {
    framed(kind, &Message::default().bytes(1, content).number(2, content.len() as i64).0)
}

/// A blob with this body.
fn framed(kind: &str, blob: &[u8]) -> Vec<u8> {
    let header = Message::default().bytes(1, kind.as_bytes()).number(3, blob.len() as i64).0;
    [&(header.len() as u32).to_be_bytes()[..], &header, blob].concat()
}

/// The blob that a file begins with.
fn header(features: &[&str]) -> Vec<u8> {
    let named = features.iter().fold(Message::default(), |message, name| message.bytes(4, name.as_bytes()));
    blob("OSMHeader", &named.0)
}

fn usual_header() -> Vec<u8> {
    header(&["OsmSchema-V0.6", "DenseNodes"])
}

const WORDS: [&[u8]; 4] = [b"", b"highway", b"residential", b"outer"];

/// A block with these strings and a group of one field.
fn block(strings: &[&[u8]], field: u64, element: &Message) -> Message {
    let strings = strings.iter().fold(Message::default(), |table, word| table.bytes(1, word));
    Message::default().bytes(1, &strings.0).bytes(2, &Message::default().bytes(field, &element.0).0)
}

/// A file with a group of one field.
fn file(field: u64, element: &Message) -> Vec<u8> {
    [usual_header(), blob("OSMData", &block(&WORDS, field, element).0)].concat()
}

/// Fields of groups.
const NODE: u64 = 1;
const DENSE: u64 = 2;
const WAY: u64 = 3;
const RELATION: u64 = 4;

/// Two nodes.
fn two_nodes() -> Message {
    let at = |field| Message::default().differences(field, &[601_688_000, 601_689_000]).0;
    Message([Message::default().differences(1, &[10, 11]).0, at(8), at(9)].concat())
}

fn zigzag(number: i64) -> i64 {
    (number << 1) ^ (number >> 63)
}

/// Three nodes, two ways between them, and a relation of all kinds of members.
fn street_map() -> Vec<u8> {
    let words =
        ["", "highway", "crossing", "residential", "name", "K\u{f6}nigstra\u{df}e", "inner", "outer", "type"];
    let strings = words.iter().fold(Message::default(), |table, word| table.bytes(1, word.as_bytes()));
    // In units of 100 billionths of a degree.
    let dense = Message::default()
        .differences(1, &[10, 11, 9_000_000_000])
        .differences(8, &[601_688_000, 601_688_001, -5])
        .differences(9, &[249_414_000, 249_414_000, -1_800_000_000])
        .packed(10, &[1, 2, 0, 0, 0]);
    let way = |id: i64, keys: &[i64], values: &[i64], nodes: &[i64]| {
        Message::default().number(1, id).packed(2, keys).packed(3, values).differences(8, nodes).0
    };
    let relation = Message::default()
        .number(1, 5)
        .packed(2, &[8])
        .packed(3, &[7])
        .packed(8, &[6, 7, 0])
        .differences(9, &[10, 20, 5])
        .packed(10, &[0, 1, 2]);
    let block = Message::default()
        .bytes(1, &strings.0)
        .bytes(2, &Message::default().bytes(2, &dense.0).0)
        .bytes(
            2,
            &Message::default()
                .bytes(3, &way(20, &[1, 4], &[3, 5], &[10, 11, 9_000_000_000]))
                .bytes(3, &way(21, &[1], &[3], &[11, 10]))
                .0,
        )
        .bytes(2, &Message::default().bytes(4, &relation.0).0);
    [usual_header(), blob("OSMData", &block.0)].concat()
}

const MAP: &str = r#"
dataset = "city"
[[table]]
name = "nodes"
kind = "u64"
elements = "nodes"
key = "{id}"
attributes = ["lat", "lon", { name = "kind", column = "tag:highway" }]
[[table]]
name = "ways"
elements = "ways"
key = "way/{id}"
attributes = [{ name = "name", column = "tag:name" }, { name = "kind", column = "tag:highway" }]
[[table.list]]
name = "nodes"
elements = "way_nodes"
owner = "way/{way_id}"
to = "nodes"
key = "{node_id}"
bytes = "position"
[[table]]
name = "relations"
elements = "relations"
key = "{id}"
attributes = ["tag:type"]
[[table]]
name = "members"
elements = "members"
key = "{relation_id}/{position}"
attributes = ["type", "member_id", "role"]
"#;

#[test]
fn nodes_ways_and_relations() {
    let files = Files::new(&[]);
    files.write("city.osm.pbf", &street_map());
    let mut keeper = Keeper::default();
    load(&files.origin("city.osm.pbf"), &parsed(MAP), Options::default(), Some(&mut keeper), &mut ())
        .unwrap();
    let node = |id: u64| keeper.item("nodes", id.to_be_bytes());
    assert_eq!(
        (node(10).text("lat"), node(10).text("lon"), node(10).text("kind")),
        (Some("60.1688"), Some("24.9414"), Some("crossing"))
    );
    assert_eq!((node(11).text("lat"), node(11).text("kind")), (Some("60.1688001"), None));
    assert_eq!(
        (node(9_000_000_000).text("lat"), node(9_000_000_000).text("lon")),
        (Some("-0.0000005"), Some("-180.0"))
    );
    let way = keeper.item("ways", "way/20");
    assert_eq!((way.text("name"), way.text("kind")), (Some("K\u{f6}nigstra\u{df}e"), Some("residential")));
    assert_eq!(way.links("nodes"), ["ways.nodes/way/20/0"]);
    let chunk = keeper.item("ways.nodes", "way/20/0");
    let nodes: Vec<u64> =
        chunk.links.iter().map(|(_, (_, key, _))| u64::from_be_bytes(key[..].try_into().unwrap())).collect();
    assert_eq!(nodes, [10, 11, 9_000_000_000]);
    assert_eq!(chunk.links[2].1.2, b"2");
    assert_eq!(keeper.item("relations", "5").text("tag:type"), Some("outer"));
    let member = keeper.item("members", "5/1");
    assert_eq!(
        (member.text("type"), member.text("member_id"), member.text("role")),
        (Some("way"), Some("20"), Some("outer"))
    );
    assert_eq!(keeper.item("members", "5/2").text("type"), Some("relation"));
}

#[test]
fn what_is_wrong_is_said() {
    let files = Files::new(&[]);
    files.write("city.osm.pbf", &street_map());
    files.write("cut.osm.pbf", &street_map()[..150]);
    let said = |file: &str, lines_of: &str| {
        let map = format!("dataset = \"d\"\n[[table]]\nname = \"t\"\nkey = \"{{id}}\"\n{lines_of}\n");
        lines(&load(&files.origin(file), &parsed(&map), Options::default(), None, &mut ()).unwrap_err())
    };
    assert_eq!(
        said("city.osm.pbf", ""),
        [
            "the map, table t: say elements, one of nodes, ways, relations, way_nodes, members, since the source is a map of OpenStreetMap"
        ]
    );
    assert_eq!(
        said("city.osm.pbf", "elements = \"ways\"\nattributes = [\"name\"]"),
        [
            "city.osm.pbf, ways, column name: the map wants it for attributes, and there is no such column; there are id and tag:NAME for any tag"
        ]
    );
    let cut = said("cut.osm.pbf", "elements = \"nodes\"");
    assert!(cut[0].starts_with("cannot read ") && cut[0].ends_with("; is it whole?"), "{cut:?}");
}

/// What is said of a file that cannot be read; ids of its elements, if it can.
fn read(files: &Files, bytes: &[u8]) -> Result<Vec<i64>, String> {
    files.write("one.osm.pbf", bytes);
    let mut ids = Vec::new();
    let read = pbf::read(std::path::Path::new(&files.origin("one.osm.pbf").address), |element| {
        // All that an element refers to is looked at.
        assert!(element.tags.iter().all(|(key, value)| key.len() + value.len() < 1000));
        if let What::Relation(members) = element.what {
            assert!(members.iter().all(|member| member.role.len() < 1000));
        }
        ids.push(element.id);
        Ok(true)
    });
    read.map(|()| ids).map_err(|problem| problem.to_string())
}

#[test]
fn a_file_that_makes_no_sense_is_refused() {
    let files = Files::new(&[]);
    let way = || Message::default().number(1, 20);
    let relation = |kinds: &[i64], roles: &[i64]| {
        Message::default().number(1, 5).packed(8, roles).differences(9, &[10]).packed(10, kinds)
    };
    let at = |lat: i64, lon: i64| {
        Message::default().number(1, zigzag(7)).number(8, zigzag(lat)).number(9, zigzag(lon))
    };
    let told = |user: i64| Message::default().number(5, user).0;
    let dense_told = |field, list: &[i64]| Message::default().packed(field, list).0;
    let short = Message::default().differences(1, &[10, 11]).differences(8, &[5]).differences(9, &[5, 6]);
    let no_strings = Message::default().bytes(2, &Message::default().bytes(WAY, &way().0).0);
    let granularity = |unit| block(&WORDS, NODE, &at(5, 6)).number(17, unit);
    let offset = block(&WORDS, NODE, &at(5, 6)).number(19, i64::MAX);
    let latin = block(&[b"", b"caf\xe9"], WAY, &way());
    let data = |block: &Message| [usual_header(), blob("OSMData", &block.0)].concat();
    for (what, file, words) in [
        (
            "an unknown kind of member",
            file(RELATION, &relation(&[7], &[3])),
            "relation 5: a member is of kind 7",
        ),
        (
            "a role that is none",
            file(RELATION, &relation(&[0], &[4])),
            "relation 5: a role is beyond the strings",
        ),
        ("a role below zero", file(RELATION, &relation(&[0], &[-1])), "a role is beyond the strings"),
        ("fewer kinds", file(RELATION, &relation(&[], &[3])), "1 members have 0 kinds and 1 roles"),
        ("fewer roles", file(RELATION, &relation(&[0], &[])), "1 members have 1 kinds and 0 roles"),
        ("a key that is none", file(WAY, &way().packed(2, &[4]).packed(3, &[2])), "way 20: a tag is beyond"),
        (
            "a value that is none",
            file(WAY, &way().packed(2, &[1]).packed(3, &[99])),
            "way 20: a tag is beyond",
        ),
        (
            "a key without value",
            file(WAY, &way().packed(2, &[1, 2]).packed(3, &[2])),
            "2 keys of tags have 1 val",
        ),
        ("a node's key", file(NODE, &at(5, 6).packed(2, &[9]).packed(3, &[1])), "node 7: a tag is beyond"),
        ("a user that is none", file(WAY, &way().bytes(4, &told(9))), "a user beyond the strings"),
        (
            "a way without id",
            file(WAY, &Message::default().packed(2, &[1]).packed(3, &[2])),
            "a way has no id",
        ),
        ("ids beyond 64 bits", file(WAY, &way().packed(8, &[-2, -2])), "way 20: a number is beyond 64 bits"),
        ("fewer latitudes", file(DENSE, &short), "lists of 2 nodes have other lengths"),
        ("a dense key", file(DENSE, &two_nodes().packed(10, &[9, 2, 0, 0])), "node 10: a tag is beyond"),
        (
            "tags without end",
            file(DENSE, &two_nodes().packed(10, &[0, 1, 2])),
            "node 11: its tags have no end",
        ),
        ("a dense key without value", file(DENSE, &two_nodes().packed(10, &[0, 1])), "its tags have no end"),
        (
            "more tags",
            file(DENSE, &two_nodes().packed(10, &[0, 0, 1, 2, 0])),
            "more tags than those of 2 nodes",
        ),
        (
            "a dense user",
            file(DENSE, &two_nodes().bytes(5, &dense_told(5, &[18, 0]))),
            "a user beyond the strings",
        ),
        (
            "visible once",
            file(DENSE, &two_nodes().bytes(5, &dense_told(6, &[1]))),
            "lists of 2 nodes have other",
        ),
        ("a latitude beyond", file(NODE, &at(900_000_001, 0)), "node 7: it is beyond the globe"),
        ("a longitude beyond", file(NODE, &at(0, -1_800_000_001)), "node 7: it is beyond the globe"),
        ("a latitude of 64 bits", file(NODE, &at(i64::MIN, 0)), "node 7: it is beyond the globe"),
        ("an offset of 64 bits", data(&offset), "node 7: it is beyond the globe"),
        ("a node nowhere", file(NODE, &Message::default().number(1, 14)), "node 7: it is nowhere"),
        ("no unit", data(&granularity(0)), "places have no unit"),
        ("a unit below zero", data(&granularity(-100)), "places have no unit"),
        ("no strings", data(&no_strings), "a block has no strings"),
        ("text that is no UTF-8", data(&latin), "string 1 of a block is no UTF-8"),
        ("a field of another type", file(WAY, &way().bytes(1, b"20")), "another type"),
        (
            "a message that is cut",
            file(WAY, &way().varint(2 << 3 | 2).varint(1000)),
            "a message makes no sense",
        ),
        ("a group of old", file(WAY, &way().varint(12 << 3 | 3)), "no known type"),
        (
            "data before its header",
            blob("OSMData", &block(&WORDS, WAY, &way()).0),
            "does not begin with a header",
        ),
        ("nothing", Vec::new(), "it has no header"),
        (
            "a page of the web",
            b"<!DOCTYPE html><html>Too Many Requests".to_vec(),
            "the head of a block has 1",
        ),
        (
            "a great length",
            [usual_header(), vec![0xff; 4]].concat(),
            "the head of a block has 4294967295 bytes",
        ),
        ("words behind", [usual_header(), b"\0\0\0\x05hello".to_vec()].concat(), "bytes from its beginning"),
    ] {
        let said = read(&files, &file).expect_err(what);
        assert!(said.contains(words) && said.ends_with("; is it whole?"), "{what}: {said}");
    }
    let body = block(&WORDS, DENSE, &two_nodes()).0;
    let packed = |length: i64| {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(&body).unwrap();
        Message::default().number(2, length).bytes(3, &zlib.finish().unwrap())
    };
    let data = |body: &Message| [usual_header(), framed("OSMData", &body.0)].concat();
    assert_eq!(read(&files, &data(&packed(body.len() as i64))), Ok(vec![10, 11]));
    let announced = Message::default().bytes(1, b"OSMData").number(3, 33 << 20).0;
    let announced = [&(announced.len() as u32).to_be_bytes()[..], &announced, &[0; 99]].concat();
    let mut damaged = packed(body.len() as i64);
    let last = damaged.0.len() - 1;
    damaged.0[last] ^= 1;
    for (what, file, words) in [
        ("longer than it says", data(&packed(body.len() as i64 - 1)), "not as long as it says"),
        ("shorter than it says", data(&packed(body.len() as i64 + 1)), "not as long as it says"),
        ("more than may be", data(&packed(33 << 20)), "33554432 is the most"),
        ("less than nothing", data(&packed(-1)), "33554432 is the most"),
        ("a checksum that is wrong", data(&damaged), "a block cannot be unpacked"),
        ("an empty body", data(&Message::default()), "a block has nothing in it"),
        ("a body of 33 MiB", [usual_header(), announced].concat(), "33554432 is the most"),
    ] {
        let said = read(&files, &file).expect_err(what);
        assert!(said.contains(words) && said.ends_with("; is it whole?"), "{what}: {said}");
    }
}

/// Such a file is whole, and it would be wrong to say that it may not be.
#[test]
fn what_is_not_known_is_named() {
    let files = Files::new(&[]);
    for (features, words) in [
        (["OsmSchema-V0.6", "Frobnicate"], "it requires the feature \"Frobnicate\""),
        (["OsmSchema-V0.6", "HistoricalInformation"], "deleted objects among it"),
    ] {
        let said = read(&files, &header(&features)).unwrap_err();
        assert!(said.contains(words) && !said.contains("whole"), "{said}");
    }
    for (field, name) in [(4, "LZMA"), (5, "bzip2"), (6, "LZ4"), (7, "zstd")] {
        let body = Message::default().number(2, 100).bytes(field, b"packed");
        let said = read(&files, &[usual_header(), framed("OSMData", &body.0)].concat()).unwrap_err();
        let words = format!("compressed with {name}");
        assert!(said.contains(&words) && said.contains("osmium cat") && !said.contains("whole"), "{said}");
    }
    // Blobs that programs have for themselves are none of a reader's business, packed as they may be.
    let own = framed("_own", &Message::default().number(2, 100).bytes(6, b"packed").0);
    let whole = file(DENSE, &two_nodes());
    assert_eq!(read(&files, &[own, whole.clone(), usual_header()].concat()), Ok(vec![10, 11]));
}

/// A deleted object is in a file without being in the map; where it is, nobody says.
#[test]
fn deleted_objects_are_left_out() {
    let files = Files::new(&[]);
    let deleted = Message::default().number(6, 0).0;
    let nowhere = two_nodes().bytes(5, &Message::default().packed(6, &[1, 0]).0);
    assert_eq!(read(&files, &file(DENSE, &nowhere)), Ok(vec![10]));
    let beyond = Message::default().number(1, 14).number(8, i64::MAX).number(9, 2);
    assert_eq!(read(&files, &file(NODE, &beyond.bytes(4, &deleted))), Ok(vec![]));
    for (kind, visible) in [(WAY, 0), (RELATION, 0), (WAY, 1), (RELATION, 1)] {
        let told = Message::default().number(6, visible).0;
        let element = Message::default().number(1, 20).bytes(4, &told);
        assert_eq!(read(&files, &file(kind, &element)).unwrap().len() as i64, visible);
    }
}

/// Downloads end early, and disks change bits.
#[test]
fn no_damage_is_worse_than_an_error() {
    let files = Files::new(&[]);
    let whole = street_map();
    let ids = read(&files, &whole).unwrap();
    assert_eq!(ids, [10, 11, 9_000_000_000, 20, 21, 5]);
    let empty = usual_header().len();
    for end in (0..whole.len()).filter(|end| *end != empty) {
        let said = read(&files, &whole[..end]).unwrap_err();
        assert!(said.ends_with("; is it whole?"), "{end}: {said}");
    }
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        // What a checksum does not guard may be another map, but it is read or refused, and nothing else
        // happens.
        let _ = read(&files, &damaged);
    }
}
