//! Structs as items: each field is an attribute or links, and their names are looked up once, not for each
//! item.

use kelix::{LinkTarget, NewItem, Record, Schema};

#[derive(Record)]
struct Person {
    name: String,
    born: u16,
    mail: Option<String>,
    /// Stands in the item under "friend", once for each.
    #[kelix(link = "friend")]
    friends: Vec<LinkTarget>,
}

fn main() -> kelix::Result<()> {
    let client = kelix_examples::connect()?;
    let mut session = client.session()?;
    let table = session.create_table("persons")?;
    let mut people = Schema::<Person>::new(table);

    let person = |name: &str, born, friends: &[&str]| Person {
        name: name.to_string(),
        born,
        mail: None,
        friends: friends.iter().map(|key| LinkTarget::new(table, *key)).collect(),
    };
    people.put(&mut session, b"ada", &person("Ada", 1815, &["charles"]))?;
    people.put(&mut session, b"charles", &person("Charles", 1791, &["ada"]))?;
    people.put(&mut session, b"grace", &person("Grace", 1906, &["ada", "charles"]))?;

    let item = session.get(table, b"grace")?.expect("it was just put");
    let grace = people.read(&item)?;
    println!("{}, born {}: {} friends", grace.name, grace.born, grace.friends.len());
    println!("mail: {}", grace.mail.as_deref().unwrap_or("none"));
    // The item knows where its links lead, so that each is followed with one read.
    for friend in session.follow_all(&item, "friend")?.iter().flatten() {
        println!("{} knows {}", people.read(friend)?.name, grace.name);
    }

    // Whatever somebody else has put under a key is a person or an error that says what is missing.
    session.put_item(table, b"hal", &NewItem::new().bytes("name", b"HAL").bytes("born", b"12 January"))?;
    match people.get(&mut session, b"hal") {
        Err(error) => println!("{error}"),
        Ok(_) => unreachable!("12 January is no number"),
    }
    Ok(())
}
