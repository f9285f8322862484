//! `kelix walk`.

mod harness;

use harness::Place;
use serde_json::json;

/// Five people in a circle of two and a tail; somebody who is not there.
fn people(place: &Place) {
    for (key, name, friends) in [
        ("ada", "Ada", &["grace", "alan"][..]),
        ("grace", "Grace", &["ada", "barbara"]),
        ("alan", "Alan", &["nobody", "edsger"]),
        ("barbara", "Barbara", &[]),
        ("edsger", "Edsger", &["barbara"]),
    ] {
        let name = format!("name={name}");
        let friends: Vec<String> = friends.iter().map(|friend| format!("friend=people/{friend}")).collect();
        let mut arguments = vec!["put", "people", key, "--attr", &name];
        friends.iter().for_each(|friend| arguments.extend(["--link", friend]));
        place.kelix(&arguments).ok();
    }
}

#[test]
fn walks_are_printed_in_their_order() {
    let (place, _server) = Place::served();
    people(&place);
    let explained = place.kelix(&["walk", "people", "ada", "friend", "--explain"]);
    assert!(explained.err.contains("5 items visited, 1 link leads nowhere ("), "{explained:?}");
    let wide = place.kelix(&["walk", "people", "ada", "friend"]);
    let wanted = "0 people/ada\n1 people/grace\n1 people/alan\n2 people/barbara\n2 people/edsger\n";
    assert_eq!(wide.ok(), wanted);
    let deep = place.kelix(&["walk", "people", "ada", "friend", "--depth-first"]);
    let wanted = "0 people/ada\n1 people/grace\n2 people/barbara\n1 people/alan\n2 people/edsger\n";
    assert_eq!(deep.ok(), wanted);
    let near = place.kelix(&["walk", "people", "ada", "friend", "--depth", "1", "--items"]);
    assert!(near.ok().starts_with("0 people/ada\n    name: Ada\n    friend -> people/grace\n"), "{near:?}");
    assert!(!near.ok().contains("barbara\n    "), "{near:?}");

    let found = place.kelix(&[
        "walk",
        "people",
        "ada",
        "friend",
        "--where",
        "name=Barbara",
        "--limit",
        "1",
        "--json",
    ]);
    let found = found.json();
    assert_eq!(found["items"].as_array().map(Vec::len), Some(1), "{found}");
    let item = &found["items"][0];
    assert_eq!(
        (&item["table"], &item["key"], &item["depth"]),
        (&json!("people"), &json!("barbara"), &json!(2))
    );
    assert_eq!((&found["visited"], &found["gone"]), (&json!(4), &json!(0)), "it ended there: {found}");

    place.kelix(&["walk", "people", "nobody", "friend"]).failed(1, &["people/nobody: not there"]);
    place.kelix(&["walk", "people", "ada"]).failed(2, &["<LINK>"]);
    place.kelix(&["walk", "people", "ada", "friend", "--limit", "0"]).failed(2, &["--limit"]);
    // Of a name that no item has there are no links.
    let enemy = place.kelix(&["walk", "people", "ada", "enemy"]);
    assert_eq!(enemy.text(), "0 people/ada\n");
    enemy.failed(1, &["none of the items visited has a link \"enemy\""]);
}
