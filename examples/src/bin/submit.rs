//! Operations that go on while the program does something else: it submits them, and polls for what has
//! ended.

use kelix::Outcome;

fn main() -> kelix::Result<()> {
    let client = kelix_examples::connect()?;
    let mut session = client.session()?;
    let table = session.create_table("submitted")?;

    for number in 0..100_u32 {
        session.submit_put(table, &number.to_be_bytes(), b"something")?;
    }
    let (mut completions, mut written) = (Vec::new(), 0);
    let mut other_work = 0_u64;
    while session.outstanding() > 0 {
        session.poll(&mut completions)?;
        for completion in completions.drain(..) {
            match completion.outcome? {
                Outcome::Written(_) => written += 1,
                other => println!("{other:?}"),
            }
        }
        // A program with nothing else to do would wait for `session.fd()` to become readable instead.
        other_work += 1;
    }
    println!("{written} puts have ended, and something else was done meanwhile: {}", other_work > 0);
    Ok(())
}
