//! Loads from a map of OpenStreetMap, which is made here byte by byte.

mod support;

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
            values.iter().zip(before).map(|(own, last)| own - last).map(|d| (d << 1) ^ (d >> 63)).collect();
        self.packed(field, &zigzag)
    }
}

/// A blob of a file.
fn blob(kind: &str, content: &[u8]) -> Vec<u8> {
    let blob = Message::default().bytes(1, content).number(2, content.len() as i64).0;
    let header = Message::default().bytes(1, kind.as_bytes()).number(3, blob.len() as i64).0;
    [&(header.len() as u32).to_be_bytes()[..], &header, &blob].concat()
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
    let header = Message::default().bytes(4, b"OsmSchema-V0.6").bytes(4, b"DenseNodes");
    [blob("OSMHeader", &header.0), blob("OSMData", &block.0)].concat()
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
