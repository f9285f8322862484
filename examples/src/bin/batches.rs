//! Many keys in one call: their reads and messages overlap, and the buffer for the values is used again.

use kelix::Values;

fn main() -> kelix::Result<()> {
    let client = kelix_examples::connect()?;
    let mut session = client.session()?;
    let squares = session.create_table("squares")?;

    let keys: Vec<[u8; 8]> = (0..1000_u64).map(u64::to_be_bytes).collect();
    let values: Vec<[u8; 8]> = (0..1000_u64).map(|number| (number * number).to_be_bytes()).collect();
    let items: Vec<(&[u8], &[u8])> =
        keys.iter().zip(&values).map(|(key, value)| (&key[..], &value[..])).collect();
    for put in session.multi_put(squares, &items)? {
        // Each put has an outcome of its own.
        put?;
    }

    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut found = Values::new();
    session.multi_get_into(squares, &keys, &mut found)?;
    let sum: u64 = (0..found.len())
        .filter_map(|index| found.get(index))
        .map(|value| u64::from_be_bytes(value.try_into().expect("a square has 8 bytes")))
        .sum();
    println!("the sum of {} squares is {sum}", found.len());
    Ok(())
}
