//! Wrong maps, each with what is said about it.

mod support;

use kelix_load::Map;
use support::parsed;

/// A map around the lines of a table.
fn table(lines: &str) -> String {
    format!("dataset = \"d\"\n[[table]]\nname = \"people\"\nkey = \"person:{{id}}\"\n{lines}")
}

/// A second table, whose keys are numbers, for links to lead to.
const ORDERS: &str = "\n[[table]]\nname = \"orders\"\nkind = \"u64\"\nkey = \"{id}\"\n";

#[track_caller]
fn says(map: &str, expected: &[&str]) {
    let findings = Map::parse("map.toml", map).expect_err("a wrong map");
    let said: Vec<String> = findings.told().iter().map(|finding| finding.to_string()).collect();
    assert_eq!(said, expected);
}

#[test]
fn a_file_that_is_no_toml() {
    says(
        "dataset = \"d\"\n[[table]\nname = 1",
        &["map.toml, line 2: this is no TOML: unclosed array table, expected `]`"],
    );
}

#[test]
fn an_empty_map() {
    says("", &["map.toml, line 1: the map has no dataset; it needs one, as in dataset = \"company\""]);
}

#[test]
fn a_map_without_tables() {
    says("dataset = \"d\"", &["map.toml, line 1: the map has no [[table]], so there is nothing to load"]);
}

#[test]
fn unknown_keys_of_the_map() {
    says(
        "datset = \"d\"\n[[tables]]\nname = \"people\"\n",
        &[
            "map.toml, line 1: the map has no key \"datset\"; perhaps dataset is meant",
            "map.toml, line 2: the map has no key \"tables\"; perhaps table is meant",
            "map.toml, line 1: the map has no dataset; it needs one, as in dataset = \"company\"",
        ],
    );
}

#[test]
fn unknown_keys_of_tables_links_and_lists() {
    says(
        &table(
            "atributes = [\"name\"]\nqwerty = 1\n[[table.link]]\nname = \"l\"\nto = \"people\"\nkeys = \"{a}\"\n[[table.list]]\nname = \"m\"\nto = \"people\"\nowner = \"{a}\"\nkey = \"{b}\"\nchunks = 7\nquery = \"q\"",
        ),
        &[
            "map.toml, line 5: [[table]] has no key \"atributes\"; perhaps attributes is meant",
            "map.toml, line 6: [[table]] has no key \"qwerty\"; perhaps query is meant",
            "map.toml, line 10: [[table.link]] has no key \"keys\"; perhaps key is meant",
            "map.toml, line 7: [[table.link]] has no key; it needs one, as in key = \"dept:{dept_id}\"",
            "map.toml, line 16: [[table.list]] has no key \"chunks\"; perhaps chunk is meant",
        ],
    );
}

#[test]
fn things_that_are_missing() {
    says(
        "dataset = \"d\"\n[[table]]\nkind = \"hash\"\n[[table]]\nname = \"t\"\nkey = \"{a}\"\n[[table.link]]\n[[table.list]]",
        &[
            "map.toml, line 2: [[table]] has no name; it needs one, as in name = \"people\"",
            "map.toml, line 2: [[table]] has no key; it needs one, as in key = \"person:{id}\"",
            "map.toml, line 7: [[table.link]] has no name; it needs one, as in name = \"department\"",
            "map.toml, line 7: [[table.link]] has no to; it needs one, as in to = \"departments\"",
            "map.toml, line 7: [[table.link]] has no key; it needs one, as in key = \"dept:{dept_id}\"",
            "map.toml, line 8: [[table.list]] has no name; it needs one, as in name = \"followers\"",
            "map.toml, line 8: [[table.list]] does not say where its rows are; it needs query, file or elements",
            "map.toml, line 8: [[table.list]] has no owner; it needs one, as in owner = \"person:{user_id}\"",
            "map.toml, line 8: [[table.list]] has no to; it needs one, as in to = \"departments\"",
            "map.toml, line 8: [[table.list]] has no key; it needs one, as in key = \"person:{follower_id}\"",
        ],
    );
}

#[test]
fn values_of_another_kind() {
    says(
        &table(
            "query = 7\nattributes = \"name\"\nlive = true\n[[table.list]]\nname = \"m\"\nto = \"people\"\nowner = \"{a}\"\nkey = \"{b}\"\nfile = \"f.csv\"\nchunk = \"many\"",
        ),
        &[
            "map.toml, line 5: query of [[table]] is a whole number, and has to be a text in quotes",
            "map.toml, line 6: attributes of [[table]] is a text, and has to be an array of names of columns",
            "map.toml, line 7: live of [[table]] is true or false, and has to be a text in quotes",
            "map.toml, line 14: chunk of [[table.list]] is a text, and has to be a whole number",
        ],
    );
}

#[test]
fn empty_texts() {
    says(
        &table("query = \"\"\nexpires_in = \"\""),
        &[
            "map.toml, line 5: query of [[table]] is empty",
            "map.toml, line 6: expires_in of [[table]] is empty",
        ],
    );
}

#[test]
fn kinds_that_are_none() {
    says(
        &table("kind = \"tree\"\nlive = \"yes\"\nelements = \"roads\"\n"),
        &[
            "map.toml, line 5: no kind of table is called \"tree\"; there are hash, u64, inline8 and bytes",
            "map.toml, line 7: no elements are called \"roads\"; there are nodes, ways, relations, way_nodes, members",
            "map.toml, line 6: live is \"yes\"; it can be \"overlay\", or left out",
        ],
    );
}

#[test]
fn tables_of_numbers_have_numbers_and_nothing_else() {
    says(
        "dataset = \"d\"\n[[table]]\nname = \"stock\"\nkind = \"inline8\"\nkey = \"{id}\"\nattributes = [\"a\"]\nexpires_in = \"b\"\nlive = \"overlay\"\n\
         [[table.link]]\nname = \"l\"\nto = \"stock\"\nkey = \"{c}\"\n[[table.list]]\nname = \"m\"\nfile = \"f.csv\"\nto = \"stock\"\nowner = \"{d}\"\nkey = \"{e}\"\n",
        &[
            "map.toml, line 2: [[table]] has no value; it needs one, as in value = \"count\"",
            "map.toml, line 6: a table of the kind inline8 has values that are numbers, and no attributes; the column of the number is named by value",
            "map.toml, line 9: a table of the kind inline8 has values that are numbers, and no links",
            "map.toml, line 13: a table of the kind inline8 has values that are numbers, and no links",
            "map.toml, line 7: a table of the kind inline8 has values that are numbers, which do not expire",
            "map.toml, line 8: a table of the kind inline8 has values that are numbers, of which none can be told to be a client's; leave live out",
        ],
    );
}

#[test]
fn keys_of_tables_of_numbers_are_numbers() {
    says(
        "dataset = \"d\"\n[[table]]\nname = \"stock\"\nkind = \"inline8\"\nkey = \"item:{id}\"\nvalue = \"count\"\n",
        &[
            "map.toml, line 5: the keys of that table are numbers, so this has to be a column and nothing else: \"{id}\"",
        ],
    );
}

#[test]
fn queries_that_tell_of_changes() {
    says(
        &format!("changed = 7\n{}", table("")),
        &["map.toml, line 1: changed of the map is a whole number, and has to be a text in quotes"],
    );
    parsed(&format!("changed = \"select max(updated_at) from people\"\n{}", table("")));
}

#[test]
fn two_ways_to_say_where_rows_are() {
    says(
        &table("query = \"select 1\"\nfile = \"people.csv\""),
        &["map.toml, line 2: query, file and elements are three ways to say one thing; say one of them"],
    );
}

#[test]
fn delimiters() {
    says(
        &table("delimiter = \"ab\"\nfile = \"people.csv\""),
        &["map.toml, line 5: a delimiter is one character of ASCII, neither a quote nor the end of a line"],
    );
}

#[test]
fn delimiters_of_queries() {
    says(
        &table("delimiter = \";\"\nquery = \"select 1\""),
        &["map.toml, line 2: delimiter, quote, escape and null are for files, and this is none"],
    );
}

#[test]
fn templates() {
    says(
        "dataset = \"d\"\n[[table]]\nname = \"a\"\nkey = \"person\"\n[[table]]\nname = \"b\"\nkey = \"{id\"\n[[table]]\nname = \"c\"\nkey = \"{}\"\n",
        &[
            "map.toml, line 4: \"person\" has no column, so that all keys would be the same; write one as {NAME}",
            "map.toml, line 7: a brace without its other in \"{id\"; a plain one is written twice",
            "map.toml, line 10: {} in \"{}\" names no column",
        ],
    );
}

#[test]
fn keys_of_numbers() {
    says(
        &(table("[[table.link]]\nname = \"order\"\nto = \"orders\"\nkey = \"order:{order_id}\"\n")
            + &ORDERS.replace("\"{id}\"", "\"{a}{b}\"")),
        &[
            "map.toml, line 8: the keys of that table are numbers, so this has to be a column and nothing else: \"{order_id}\"",
            "map.toml, line 13: the keys of that table are numbers, so this has to be a column and nothing else: \"{a}\"",
        ],
    );
}

#[test]
fn links_that_lead_to_no_table() {
    says(
        &(table(
            "[[table.link]]\nname = \"order\"\nto = \"order\"\nkey = \"{order_id}\"\n[[table.link]]\nname = \"x\"\nto = \"something_else\"\nkey = \"{x}\"\n",
        ) + ORDERS),
        &[
            "map.toml, line 7: the map has no table \"order\" for links to lead to; perhaps \"orders\" is meant",
            "map.toml, line 11: the map has no table \"something_else\" for links to lead to",
        ],
    );
}

#[test]
fn two_tables_of_one_name() {
    says(
        &(table("") + "\n" + table("").split_once("\n").unwrap().1),
        &["map.toml, line 7: there is another table \"people\" above; their names have to differ"],
    );
}

#[test]
fn names_that_are_taken() {
    says(
        &table(
            "attributes = [\"a\", { name = \"a\", column = \"b\" }, \"boss\"]\n[[table.link]]\nname = \"boss\"\nto = \"people\"\nkey = \"{x}\"\n[[table.link]]\nname = \"boss\"\nto = \"people\"\nkey = \"{y}\"\n",
        ),
        &[
            "map.toml, line 2: the table has an attribute \"a\" and an attribute of the same name; rename one of them",
            "map.toml, line 2: the table has an attribute \"boss\" and a link of the same name; rename one of them",
        ],
    );
}

#[test]
fn names_that_no_table_can_have() {
    says(
        "dataset = \"a/b\"\n[[table]]\nname = \"c/d\"\nkey = \"{id}\"",
        &[
            "map.toml, line 1: a name cannot contain /, which ends it in links: \"a/b\"",
            "map.toml, line 3: a name cannot contain /, which ends it in links: \"c/d\"",
        ],
    );
}

#[test]
fn attributes() {
    says(
        &table("attributes = [1, \"\", { name = \"x\" }, { nme = \"x\", name = \"y\", column = \"z\" }]"),
        &[
            "map.toml, line 5: an attribute is the name of a column, or { name = \"since\", column = \"hired\" }",
            "map.toml, line 5: an attribute is the name of a column, or { name = \"since\", column = \"hired\" }",
            "map.toml, line 5: an attribute has no column; it needs one, as in column = \"hired\"",
            "map.toml, line 5: an attribute has no key \"nme\"; perhaps name is meant",
        ],
    );
}

#[test]
fn chunks() {
    says(
        &table(
            "[[table.list]]\nname = \"m\"\nto = \"people\"\nowner = \"{a}\"\nkey = \"{b}\"\nfile = \"f.csv\"\nchunk = 0",
        ),
        &["map.toml, line 11: chunk of [[table.list]] is 0, and has to be from 1 to 10000"],
    );
}

#[test]
fn lists_whose_table_is_taken() {
    says(
        &(table(
            "[[table.list]]\nname = \"m\"\nto = \"people\"\nowner = \"{a}\"\nkey = \"{b}\"\nfile = \"f.csv\"\n",
        ) + "[[table]]\nname = \"people.m\"\nkey = \"{a}\"\n"),
        &[
            "map.toml, line 5: the list's chunks would be in a table \"people.m\", which cannot be: there is another, or the name is too long; call the list something else",
        ],
    );
}

#[test]
fn what_is_right_is_read() {
    let map = parsed(
        &(table("attributes = [\"name\", { name = \"since\", column = \"hired\" }]\nlive = \"overlay\"")
            + ORDERS),
    );
    assert_eq!(map.dataset(), "d");
}

#[test]
fn signs_of_files() {
    let sign = |line: &str| format!("dataset = \"d\"\n[[table]]\nname = \"t\"\nkey = \"{{id}}\"\n{line}\n");
    for right in [
        "quote = \"\"",
        "quote = \"none\"",
        "quote = \"'\"\ndelimiter = \";\"\nescape = \"\\\\\"",
        "escape = \"\\\"\"",
    ] {
        Map::parse("map.toml", &sign(right)).unwrap_or_else(|findings| panic!("{right}: {findings}"));
    }
    for wrong in ["delimiter = \";\"\nquote = \";\"", "delimiter = \"\\\\\"\nescape = \"\\\\\""] {
        let findings = Map::parse("map.toml", &sign(wrong)).unwrap_err().to_string();
        assert!(
            findings.contains("what stands between its fields cannot be quote or escape, too"),
            "{findings}"
        );
    }
}
