//! The maps of docs/load.md are maps, and the two that need no database load what the page says.

mod support;

use kelix_load::{OnDangling, Options, load};
use support::{Files, Keeper, parsed};

const PAGE: &str = include_str!("../../../docs/load.md");

/// What stands in the page under a name: the next block of code behind it.
fn block(name: &str) -> &'static str {
    let behind = PAGE.split_once(name).unwrap_or_else(|| panic!("no {name} in docs/load.md")).1;
    let block = behind.split_once("```").and_then(|(_, block)| block.split_once('\n')).expect("a block").1;
    block.split_once("```").expect("its end").0
}

#[test]
fn all_maps_are_right() {
    let maps: Vec<&str> =
        PAGE.split("```toml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    assert_eq!(maps.len(), 4);
    for map in maps {
        parsed(map);
    }
}

#[test]
fn the_example_of_a_file() {
    let files = Files::new(&[("people.csv", block("With `people.csv`"))]);
    let mut keeper = Keeper::default();
    let map = parsed(block("<!-- people.toml -->"));
    load(&files.origin("people.csv"), &map, Options::default(), Some(&mut keeper), &mut ()).unwrap();
    assert_eq!(keeper.keys("people"), ["1", "2"]);
    assert_eq!(keeper.item("people", "2").text("name"), Some("Bob, the second"));
    assert_eq!(keeper.item("people", "2").links("boss"), ["people/1"]);
}

#[test]
fn the_example_of_a_database() {
    let files = Files::new(&[]);
    let path = files.path().join("company.db");
    let schema = "create table departments (id int, name text); insert into departments values (7, 'research');
        create table people (id int, name text, dept_id int, boss_id int, hired int, ttl int);
        insert into people values (1, 'Ada', 7, null, 1999, null), (2, 'Bob', 7, 1, 2000, 60);
        create table follows (user_id int, follower_id int); insert into follows values (1, 2), (2, 2), (2, 1);";
    rusqlite::Connection::open(&path).unwrap().execute_batch(schema).unwrap();
    let mut keeper = Keeper::default();
    let options = Options { on_dangling: OnDangling::Error, check_only: false, allow_empty: false };
    let address = support::origin(&format!("sqlite:{}", path.display()));
    load(&address, &parsed(block("<!-- company.toml -->")), options, Some(&mut keeper), &mut ()).unwrap();
    assert_eq!(keeper.item("people", "person:2").links("followers"), ["people.followers/person:2/0"]);
    assert_eq!(
        keeper.item("people.followers", "person:2/0").links("item"),
        ["people/person:1", "people/person:2"]
    );
    assert_eq!(keeper.item("departments", "dept:7").text(""), Some("research"));
}
