//! Gets of a few popular keys over several shards, beside gets of all keys alike.

use kelix_server::ServerConfig;

use crate::store::{Numbers, Store, key_of, memory_for, verify};
use kelix_report::interleave::compare;
use kelix_report::report::{Row, Sense, as_rate, compared};

const SHARDS: usize = 4;
/// Keys that are asked for, in turn.
const SAMPLES: usize = 1 << 20;

/// One-sided gets over four shards.
pub(super) fn zipf(records: u64, rounds: usize) -> Result<Row, String> {
    let config = ServerConfig {
        memory_bytes: memory_for(records) * 2,
        shards: SHARDS,
        pin: false,
        ..ServerConfig::default()
    };
    let mut store = Store::start("zipf", config)?;
    store.load(records)?;
    let uniform = Numbers(2).records(records, SAMPLES);
    let popular = Numbers(1).popular(records, SAMPLES);
    let session = std::cell::RefCell::new(&mut store.session);
    let table = store.table;
    let get = |keys: &[u64], at: &mut usize| {
        let record = keys[*at];
        *at = (*at + 1) % keys.len();
        let mut value = [0; 32];
        let found = session.borrow_mut().get_into(table, &key_of(record), &mut value).expect("a get");
        assert_eq!(found.map(|(bytes, _)| bytes), Some(32), "record {record}");
        verify(&value, record);
        1
    };
    let before = session.borrow().cost();
    let (mut a, mut b) = (0, 0);
    let comparison = as_rate(compare(rounds, &mut || get(&popular, &mut a), &mut || get(&uniform, &mut b)));
    let cost = session.borrow().cost().since(before);
    let note = format!("{} READs, {} messages; ratio of rates; ", cost.reads, cost.messages);
    let row =
        compared("zipf_shards", "gets, Zipf 0.99 over 4 shards / uniform", "ns", 1.0, comparison, &note);
    Ok(Row { sense: Sense::AtLeast, ..row })
}
