//! A table, a put and a get. The get reads the server's memory by itself: the server does nothing for it.

fn main() -> kelix::Result<()> {
    // A client is shared by threads, and each thread has a session of its own.
    let client = kelix_examples::connect()?;
    let mut session = client.session()?;

    let greetings = session.create_table("greetings")?;
    session.put(greetings, b"hello", b"world")?;

    let mut value = [0; 64];
    // The first get of a session also copies the directory of the index, which later ones do without.
    session.get_into(greetings, b"hello", &mut value)?;
    let before = session.cost();
    let found = session.get_into(greetings, b"hello", &mut value)?;
    let cost = session.cost().since(before);

    let (length, _) = found.expect("the key was just put");
    println!("hello, {}", String::from_utf8_lossy(&value[..length]));
    println!("{} reads of the server's memory, {} messages to it", cost.reads, cost.messages);
    Ok(())
}
