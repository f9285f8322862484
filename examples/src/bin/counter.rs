//! Counts in one item, beside other processes that do the same: a write counts only if nobody wrote since
//! this one read. Each run adds 1,000; run several at once, and none is lost.

use kelix::CompareAndSet;

fn main() -> kelix::Result<()> {
    let client = kelix_examples::connect()?;
    let mut session = client.session()?;
    let counters = session.create_table("counters")?;

    let mut beaten = 0;
    for _ in 0..1000 {
        loop {
            let item = session.get(counters, b"visits")?;
            let count = item.as_ref().map_or(0, |item| count_of(item.value()));
            let expected = item.map(|item| item.version());
            let next = (count + 1_u64).to_le_bytes();
            match session.compare_and_set(counters, b"visits", expected, &next)? {
                CompareAndSet::Done(_) => break,
                // Somebody was faster: read again.
                CompareAndSet::Mismatch(_) => beaten += 1,
            }
        }
    }
    let item = session.get(counters, b"visits")?.expect("it was just written");
    println!(
        "visits: {}, {beaten} writes of this process came too late and were repeated",
        count_of(item.value())
    );
    Ok(())
}

fn count_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("a counter has 8 bytes"))
}
