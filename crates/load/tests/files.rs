//! Loads from files: keys, attributes, links, lists, expiry, and everything that can be wrong with rows.

mod support;

use kelix_load::{OnDangling, Options, Problem, load};
use support::{Files, Keeper, lines, origin, parsed};

/// The map of the example in docs/load.md, over files.
const COMPANY: &str = r#"
dataset = "company"

[[table]]
name = "people"
key = "person:{id}"
attributes = ["name", { name = "since", column = "hired" }]
expires_in = "ttl"
live = "overlay"

[[table.link]]
name = "department"
to = "departments"
key = "dept:{dept_id}"
bytes = "hired"

[[table.link]]
name = "boss"
to = "people"
key = "person:{boss_id}"

[[table.list]]
name = "followers"
file = "follows.csv"
owner = "person:{user_id}"
to = "people"
key = "person:{follower_id}"
chunk = 2

[[table]]
name = "departments"
file = "departments.jsonl"
key = "dept:{id}"
value = "name"
"#;

const PEOPLE: &str =
    "id,name,dept_id,boss_id,hired,ttl\n1,Ada,7,,1999,\n2,\"Bob, B\",7,1,,0.5\n3,Eve,,2,2001,60\n";
const FOLLOWS: &str = "user_id,follower_id\n1,2\n2,1\n1,3\n1,1\n3,\n";
const DEPARTMENTS: &str = "{\"id\": 7, \"name\": \"research\"}\n{\"id\": 8, \"name\": \"\"}\n";

fn company() -> Files {
    Files::new(&[("people.csv", PEOPLE), ("follows.csv", FOLLOWS), ("departments.jsonl", DEPARTMENTS)])
}

const CHECK: Options = Options { on_dangling: OnDangling::Error, check_only: true, allow_empty: false };
const NULL: Options = Options { on_dangling: OnDangling::Null, check_only: false, allow_empty: false };
const DROP: Options = Options { on_dangling: OnDangling::Drop, check_only: false, allow_empty: false };

#[test]
fn a_company() {
    let (keeper, report) = company().load(COMPANY, Options::default()).unwrap();
    assert_eq!(keeper.dataset, "company");
    let tables: Vec<(&str, bool)> =
        keeper.tables.iter().map(|table| (&table.name[..], table.overlay)).collect();
    assert_eq!(tables, [("people", true), ("departments", false), ("people.followers", true)]);
    let counts: Vec<(String, u64)> = [("people", 3), ("departments", 2), ("people.followers", 3)]
        .map(|(name, items)| (name.into(), items))
        .into();
    assert_eq!((report.tables, report.rows), (counts, 10));

    let ada = keeper.item("people", "person:1");
    assert_eq!((ada.text("name"), ada.text("since"), ada.expires_in_ms), (Some("Ada"), Some("1999"), None));
    assert_eq!(ada.links("department"), ["departments/dept:7"]);
    assert_eq!(ada.links[0].1.2, b"1999");
    assert!(ada.links("boss").is_empty());
    assert_eq!(ada.links("followers"), ["people.followers/person:1/0"]);
    let bob = keeper.item("people", "person:2");
    assert_eq!((bob.text("name"), bob.text("since"), bob.expires_in_ms), (Some("Bob, B"), None, Some(500)));
    assert_eq!((bob.links("boss"), &bob.links[0].1.2[..]), (vec!["people/person:1".to_string()], &b""[..]));
    let eve = keeper.item("people", "person:3");
    assert!(eve.links("department").is_empty() && eve.links("followers").is_empty(), "{eve:?}");
    assert_eq!(eve.expires_in_ms, Some(60_000));

    let first = keeper.item("people.followers", "person:1/0");
    assert_eq!(first.links("item"), ["people/person:2", "people/person:3"]);
    assert_eq!(first.links("next"), ["people.followers/person:1/1"]);
    let last = keeper.item("people.followers", "person:1/1");
    assert_eq!((last.links("item"), last.links("next").len()), (vec!["people/person:1".to_string()], 0));
    assert_eq!(keeper.item("people.followers", "person:2/0").links("item"), ["people/person:1"]);

    assert_eq!(keeper.item("departments", "dept:7").text(""), Some("research"));
    assert_eq!(keeper.item("departments", "dept:8").text(""), Some(""));
}

#[test]
fn a_check_puts_nothing() {
    let files = company();
    let mut keeper = Keeper::default();
    let report = load(&files.origin(""), &parsed(COMPANY), CHECK, Some(&mut keeper), &mut ()).unwrap();
    assert_eq!((keeper.begun, keeper.items.len(), report.rows), (0, 0, 10));
    load(&files.origin(""), &parsed(COMPANY), CHECK, None, &mut ()).unwrap();
    keeper.free_bytes = Some(report.memory_bytes - 1);
    let problem = load(&files.origin(""), &parsed(COMPANY), CHECK, Some(&mut keeper), &mut ()).unwrap_err();
    assert_eq!(
        lines(&problem),
        ["the tables need about 1 MiB and the server has 0 MiB free; serve with more --memory"]
    );
}

#[test]
fn a_store_that_fails_is_told_that_it_is_over() {
    let mut keeper = Keeper { fails_at: Some(1), ..Keeper::default() };
    let problem =
        load(&company().origin(""), &parsed(COMPANY), Options::default(), Some(&mut keeper), &mut ());
    assert!(matches!(problem, Err(Problem::Store(_))), "{problem:?}");
    assert_eq!((keeper.begun, keeper.finished, keeper.abandoned), (1, 0, 1));
}

#[test]
fn tables_of_numbers() {
    let map = r#"
dataset = "d"
[[table]]
name = "orders"
kind = "u64"
key = "{id}"
[[table.link]]
name = "before"
to = "orders"
key = "{before}"
[[table.list]]
name = "parts"
file = "parts.tsv"
owner = "{order}"
to = "orders"
key = "{part}"
bytes = "count"
"#;
    let files = Files::new(&[
        ("orders.csv", "id,before\n7,\n18446744073709551615,7\n"),
        ("parts.tsv", "order\tpart\tcount\n7\t7\tx 2\n"),
    ]);
    let (keeper, _) = files.load(map, Options::default()).unwrap();
    let last = keeper.item("orders", u64::MAX.to_be_bytes());
    assert_eq!(last.links[0].1, ("orders".into(), 7u64.to_be_bytes().to_vec(), Vec::new()));
    let chunk = keeper.item("orders.parts", "7/0");
    assert_eq!(chunk.links[0].1, ("orders".into(), 7u64.to_be_bytes().to_vec(), b"x 2".to_vec()));

    let files = Files::new(&[
        ("orders.csv", "id,before\n-7,\n7,x\n7,\n7,9\n"),
        ("parts.tsv", "order\tpart\tcount\n"),
    ]);
    assert_eq!(
        files.refused(map),
        [
            "orders.csv, line 2, column id: \"-7\" is no whole number from 0 to 2^64-1, which keys of that table are",
            "orders.csv, line 3, column before: \"x\" is no whole number from 0 to 2^64-1, which keys of that table are",
            "orders.csv, line 5, column id: the key orders/7 is there already, from line 4; keys have to differ",
        ]
    );
}

#[test]
fn tables_of_values_that_are_numbers() {
    let map = r#"
dataset = "d"
[[table]]
name = "stock"
kind = "inline8"
key = "{item}"
value = "count"
[[table]]
name = "items"
key = "{item}"
file = "stock.csv"
[[table.link]]
name = "stock"
to = "stock"
key = "{item}"
"#;
    let files =
        Files::new(&[("stock.csv", "item,count\n7,258\n0,0\n18446744073709551615,18446744073709551615\n")]);
    let (keeper, _) = files.load(map, Options::default()).unwrap();
    let value = |key: u64| &keeper.item("stock", key.to_be_bytes()).attributes[""][..];
    assert_eq!(value(7), [2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!((value(0), value(u64::MAX)), (&[0; 8][..], &[255; 8][..]));
    assert_eq!(keeper.tables[0].kind, kelix::TableKind::Inline);
    assert_eq!(keeper.item("items", "7").links[0].1.1, 7u64.to_be_bytes());

    let files =
        Files::new(&[("stock.csv", "item,count\n1,-1\n2,\n3,1.5\nx,4\n5,18446744073709551616\n6,5\n6,6\n")]);
    let refused = files.refused(map);
    let expected = [
        "stock.csv, line 2, column count: \"-1\" is no whole number from 0 to 2^64-1, which values of that table are",
        "stock.csv, line 3, column count: it is null, and values of that table are numbers; leave such rows out",
        "stock.csv, line 4, column count: \"1.5\" is no whole number from 0 to 2^64-1, which values of that table are",
        "stock.csv, line 5, column item: \"x\" is no whole number from 0 to 2^64-1, which keys of that table are",
        "stock.csv, line 6, column count: \"18446744073709551616\" is no whole number from 0 to 2^64-1, which values of that table are",
    ];
    assert_eq!(refused[..5], expected);
    assert!(
        refused.iter().any(|line| line.contains("the key stock/6 is there already, from line 7")),
        "{refused:?}"
    );
}

#[test]
fn columns_and_files_that_are_missing() {
    let files = Files::new(&[
        ("people.csv", "id,nam,dept_id,boss_id,hired\n1,Ada,7,,1999\n"),
        ("departments.jsonl", ""),
    ]);
    assert_eq!(
        files.refused(COMPANY),
        [
            "people.csv, column name: the map wants it for attributes, and there is no such column; perhaps nam is meant",
            "people.csv, column ttl: the map wants it for expires_in, and there is no such column; \
             there are id, nam, dept_id, boss_id, hired",
            &format!(
                "the map, table people.followers: there is no file {}/follows.csv",
                files.path().display()
            ),
        ]
    );
    // A field of JSON that no line has is null, as one that only some have is in the others.
    let files = company();
    files.write("departments.jsonl", b"{\"id\": 7}\n");
    assert!(files.load(COMPANY, NULL).is_ok());
}

#[test]
fn values_that_do_not_fit() {
    let files = company();
    let long = "x".repeat(70_000);
    let people = format!(
        "id,name,dept_id,boss_id,hired,ttl\n,Ada,7,,1999,\n2,Bob,7,1,,soon\n{long},Eve,,2,,\n4,Dan,7\n"
    );
    files.write("people.csv", people.as_bytes());
    files.write("follows.csv", b"user_id,follower_id\n,2\n");
    files.write(
        "departments.jsonl",
        b"{\"id\": 7, \"name\": \"a\"}\n{\"id\": null, \"name\": \"\xff\"}\n{\"name\": \"b\"}\nx\n",
    );
    assert_eq!(
        files.refused(COMPANY),
        [
            "people.csv, line 2, column id: it is null, and a key needs it; leave such rows out",
            "people.csv, line 3, column ttl: \"soon\" is no number of seconds",
            "people.csv, line 4, column id: a key of 70007 bytes; the longest allowed is 65536",
            "people.csv, line 5: the record has 3 fields, and the header 6; check its delimiters and quotes",
            "departments.jsonl, line 3, column id: it is null, and a key needs it; leave such rows out",
            "departments.jsonl, line 2: byte 23 of the line is no UTF-8, which JSON has to be",
            "departments.jsonl, line 4: this is not an object of JSON: expected value, at byte 1",
            "follows.csv, line 2, column user_id: it is null, and a key needs it; leave such rows out",
        ]
    );
}

#[test]
fn keys_that_are_there_twice() {
    let files = company();
    files.write(
        "people.csv",
        b"id,name,dept_id,boss_id,hired,ttl\n1,Ada,,,,\n2,Bob,,,,\n1,Eve,,,,\n1,Dan,,,,\n3,Eve,,,,\n",
    );
    assert_eq!(
        files.refused(COMPANY),
        [
            "people.csv, line 4, column id: the key people/\"person:1\" is there already, from line 2; keys have to differ",
            "people.csv, line 5, column id: the key people/\"person:1\" is there already, from line 2; keys have to differ",
        ]
    );
}

#[test]
fn twenty_findings_are_enough() {
    let files = company();
    let people: String = (0..5000).map(|number| format!("{},x,,,,\n", number % 2500)).collect();
    files.write("people.csv", ("id,name,dept_id,boss_id,hired,ttl\n".to_string() + &people).as_bytes());
    let said = files.refused(COMPANY);
    assert_eq!(said.len(), 21);
    assert_eq!(said[20], "and 2480 more");
}

/// People in a chain of bosses, the last of whom is not there.
fn chain() -> Files {
    let files = company();
    files.write(
        "people.csv",
        b"id,name,dept_id,boss_id,hired,ttl\n1,Ada,7,,,\n2,Bob,9,1,,\n3,Eve,,2,,\n4,Dan,,3,,\n5,Pia,,1,,\n",
    );
    files.write("follows.csv", b"user_id,follower_id\n1,5\n1,4\n4,1\n9,1\n3,3\n");
    files
}

#[test]
fn links_that_lead_nowhere_are_told() {
    assert_eq!(
        chain().refused(COMPANY),
        [
            "people.csv, line 3, column dept_id: the link department leads to departments/\"dept:9\", which is not there; \
             put the rows right, or load with --on-dangling null or drop",
            "follows.csv, line 5, column user_id: people/\"person:9\", to which this row of people.followers belongs, is not \
             there; put the rows right, or load with --on-dangling null or drop",
        ]
    );
}

#[test]
fn links_that_lead_nowhere_are_left_out() {
    let (keeper, report) = chain().load(COMPANY, NULL).unwrap();
    assert_eq!((report.links_left_out, report.items_left_out), (2, 0));
    assert_eq!(keeper.keys("people").len(), 5);
    let bob = keeper.item("people", "person:2");
    assert!(bob.links("department").is_empty());
    assert_eq!(bob.links("boss"), ["people/person:1"]);
    assert_eq!(keeper.keys("people.followers"), ["person:1/0", "person:3/0", "person:4/0"]);
}

#[test]
fn items_with_links_that_lead_nowhere_are_left_out() {
    let (keeper, report) = chain().load(COMPANY, DROP).unwrap();
    assert_eq!(report.items_left_out, 3);
    assert_eq!(keeper.keys("people"), ["person:1", "person:5"]);
    assert_eq!(keeper.keys("people.followers"), ["person:1/0"]);
    assert_eq!(keeper.item("people.followers", "person:1/0").links("item"), ["people/person:5"]);
    assert_eq!(keeper.item("people", "person:1").links("followers"), ["people.followers/person:1/0"]);
}

#[test]
fn a_long_chain_is_left_out_whole() {
    let mut people = String::from("id,name,dept_id,boss_id,hired,ttl\n");
    (0..50_000).for_each(|number| people += &format!("{number},x,,{},,\n", number + 1));
    let files = company();
    files.write("people.csv", people.as_bytes());
    files.write("follows.csv", b"user_id,follower_id\n");
    let (keeper, report) = files.load(COMPANY, DROP).unwrap();
    assert_eq!((keeper.keys("people").len(), report.items_left_out), (0, 50_000));
}

#[test]
fn lists_whose_rows_come_in_any_order() {
    let people: String = (0..500).map(|number| format!("{number},x,,,,\n")).collect();
    let follows = |seed: u64| {
        (0..20_000u64).map(move |number| {
            let mixed = (number + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            (mixed % 500, mixed / 500 % 500)
        })
    };
    let text: String = follows(1).map(|(user, follower)| format!("{user},{follower}\n")).collect();
    let files = company();
    files.write("people.csv", ("id,name,dept_id,boss_id,hired,ttl\n".to_string() + &people).as_bytes());
    files.write("follows.csv", ("user_id,follower_id\n".to_string() + &text).as_bytes());
    let (keeper, _) = files.load(COMPANY, Options::default()).unwrap();
    for user in 0..500 {
        let expected: Vec<String> = follows(1)
            .filter(|(own, _)| *own == user)
            .map(|(_, other)| format!("people/person:{other}"))
            .collect();
        let mut found = Vec::new();
        let mut next = keeper.item("people", format!("person:{user}")).links("followers");
        while let [chunk] = &next[..] {
            let chunk = keeper.item("people.followers", chunk.strip_prefix("people.followers/").unwrap());
            found.extend(chunk.links("item"));
            next = chunk.links("next");
        }
        assert_eq!(found, expected, "{user}");
    }
}

#[test]
fn one_file_is_a_source_too() {
    let files = Files::new(&[("people.csv", "id;name\n1;Ada\n2;NA\n")]);
    let map = parsed(
        "dataset = \"d\"\n[[table]]\nname = \"all\"\nkey = \"{id}\"\nattributes = [\"name\"]\ndelimiter = \";\"\nnull = \"NA\"\n",
    );
    let mut keeper = Keeper::default();
    load(&files.origin("people.csv"), &map, Options::default(), Some(&mut keeper), &mut ()).unwrap();
    assert_eq!(keeper.item("all", "1").text("name"), Some("Ada"));
    assert_eq!(keeper.item("all", "2").text("name"), None);
}

#[test]
fn sources_that_are_none() {
    let files = Files::new(&[("people.txt", ""), ("empty.csv", "")]);
    let map = "dataset = \"d\"\n[[table]]\nname = \"t\"\nkey = \"{id}\"\n";
    let said = |name: &str| {
        let problem = load(&files.origin(name), &parsed(map), CHECK, None, &mut ()).unwrap_err();
        problem.to_string().replace(files.path().to_str().unwrap(), "DIR")
    };
    assert_eq!(
        said("people.txt"),
        "DIR/people.txt: its name does not tell what it is; it has to end with .csv, .tsv, .jsonl, .ndjson, .json or .osm.pbf"
    );
    assert_eq!(said("nothing.csv"), "cannot read DIR/nothing.csv: No such file or directory (os error 2)");
    assert_eq!(
        said("empty.csv"),
        "empty.csv, line 1: there is no header; the first line has to name the columns"
    );
    assert_eq!(said(""), "the map, table t: there is no t.csv, .tsv or .jsonl in DIR/; say file");
    let elsewhere = |map: &str| Files::new(&[]).refused(map);
    assert_eq!(
        elsewhere(&map.replace("key", "query = \"select 1\"\nkey")),
        ["the map, table t: files take no query; say file"]
    );
    assert!(
        elsewhere(&map.replace("key", "file = \"../a.csv\"\nkey"))[0].contains("is not in the directory")
    );
    let problem = load(&origin("mysql://host/db"), &parsed(map), CHECK, None, &mut ()).unwrap_err();
    assert_eq!(
        problem.to_string(),
        "mysql is no kind of source; there are postgres://..., sqlite:FILE, files and directories"
    );
}

/// A load that was right goes on being in force when all that a table or a list would have is left out, or
/// when a file came empty.
#[test]
fn what_is_in_force_does_not_become_empty_by_accident() {
    let map = "dataset = \"d\"\n[[table]]\nname = \"people\"\nkey = \"{id}\"\n[[table.link]]\nname = \"boss\"\nto = \"bosses\"\nkey = \"{boss}\"\n\
               [[table]]\nname = \"bosses\"\nkey = \"{id}\"\n[[table.list]]\nname = \"pairs\"\nfile = \"pairs.csv\"\nowner = \"{one}\"\nto = \"bosses\"\nkey = \"{other}\"\n";
    let attempt = |files: [&str; 3], options: Options, in_force: bool| {
        let files =
            Files::new(&[("people.csv", files[0]), ("bosses.csv", files[1]), ("pairs.csv", files[2])]);
        let mut keeper = Keeper::default();
        keeper.in_force.generation = in_force.then_some(3);
        load(&files.origin(""), &parsed(map), options, Some(&mut keeper), &mut ())
            .map(|report| (report.items_left_out, report.links_left_out))
            .map_err(|problem| problem.to_string())
    };
    let (people, bosses, pairs) = ("id,boss\n1,7\n2,8\n", "id\n7\n8\n", "one,other\n7,8\n");
    assert_eq!(attempt([people, bosses, pairs], DROP, true), Ok((0, 0)));
    // Some are left out, which is what was asked for.
    assert_eq!(attempt([people, "id\n7\n", "one,other\n7,8\n7,7\n"], DROP, true), Ok((1, 1)));
    let nobody = ["id,boss\n1,5\n2,6\n", bosses, pairs];
    let stays = "there is not one row for table";
    let left_out = "all rows are left out, for links that lead nowhere, for table";
    for (files, options, wrong) in [
        (nobody, DROP, format!("{left_out} \"people\"")),
        ([people, bosses, "one,other\n5,6\n"], NULL, format!("{left_out} \"bosses.pairs\"")),
        ([people, bosses, "one,other\n7,6\n6,7\n"], DROP, format!("{left_out} \"bosses.pairs\"")),
        ([people, bosses, "one,other\n"], Options::default(), format!("{stays} \"bosses.pairs\"")),
        (["id,boss\n", bosses, pairs], Options::default(), format!("{stays} \"people\"")),
    ] {
        let refused = attempt(files, options, true).unwrap_err();
        assert!(refused.starts_with(&wrong) && refused.contains("--allow-empty"), "{refused}");
        attempt(files, Options { allow_empty: true, ..options }, true).unwrap();
        attempt(files, options, false).unwrap();
    }
    // Links that are left out leave their items.
    assert_eq!(attempt(nobody, NULL, true), Ok((0, 2)));
}

#[test]
fn one_sign_is_not_two_things() {
    let files = Files::new(&[("people.csv", "id,name\n1,Ada\n"), ("people.tsv", "id\tname\n1\t'A\tB'\n")]);
    let map = |line: &str| {
        format!(
            "dataset = \"d\"\n[[table]]\nname = \"people\"\nkey = \"{{id}}\"\nattributes = [\"name\"]\n{line}\n"
        )
    };
    for line in [
        "quote = \",\"",
        "escape = \",\"",
        "file = \"people.tsv\"\nquote = \"\\t\"",
        "file = \"people.tsv\"\nescape = \"\\t\"",
    ] {
        let refused = files.refused(&map(line));
        assert!(
            refused[0].starts_with(
                "the map, table people: what stands between its fields cannot be quote or escape"
            ),
            "{line}: {refused:?}"
        );
    }
    let (keeper, _) = files.load(&map("file = \"people.tsv\"\nquote = \"'\""), Options::default()).unwrap();
    assert_eq!(keeper.item("people", "1").text("name"), Some("A\tB"));
    // An escape that is the quote is a quote written twice, as PostgreSQL says it.
    let files = Files::new(&[("people.csv", "id,name\n1,\"a \"\"b\"\"\"\n2,a \"b\"\n")]);
    let (keeper, _) = files.load(&map("escape = \"\\\"\""), Options::default()).unwrap();
    assert_eq!(
        (keeper.item("people", "1").text("name"), keeper.item("people", "2").text("name")),
        (Some("a \"b\""), Some("a \"b\""))
    );
}
