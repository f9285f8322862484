//! Items with attributes and links to other items. A link is followed with one read of the server's memory,
//! without looking the target up, and goes on to lead there when the target is written again.

use kelix::NewItem;

fn main() -> kelix::Result<()> {
    let client = kelix_examples::connect()?;
    let mut session = client.session()?;
    let places = session.create_table("places")?;

    let chain = [
        ("earth", None),
        ("europe", Some("earth")),
        ("finland", Some("europe")),
        ("helsinki", Some("finland")),
    ];
    for (name, within) in chain {
        let mut item = NewItem::new();
        item = item.bytes("name", name.to_uppercase().as_bytes());
        if let Some(within) = within {
            item = item.link("within", places, within.as_bytes());
        }
        session.put_item(places, name.as_bytes(), &item)?;
    }

    let mut place = session.get(places, b"helsinki")?.expect("it was just put");
    loop {
        println!("{}", String::from_utf8_lossy(place.bytes("name").unwrap_or_default()));
        let before = session.cost();
        // The next item takes this one's place, in the memory that it has.
        if place.link_count("within") == 0 || !session.follow_into(&mut place, "within")? {
            return Ok(());
        }
        let cost = session.cost().since(before);
        println!("  is within ({} read, {} messages)", cost.reads, cost.messages);
    }
}
