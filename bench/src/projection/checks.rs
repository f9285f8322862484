//! What the arithmetic gives for the machines of the papers, beside what the papers tell in their text.
//!
//! The NICs are the ones of the files that come with the program, and none of their numbers was chosen by a
//! result here. The error of a row is what the arithmetic does not know: what waits for what, and machines
//! that are not ours.

use super::hash::{Hash, Mix};
use super::model::{Projected, Work};
use super::nic::{self, Nic};
use super::paths::Way;
use kelix_report::report::{Row, Sense};

/// HydraDB, section 6: clients, and shards of the server.
const HYDRADB_CLIENTS: usize = 50;
const HYDRADB_SHARDS: f64 = 4.0;
/// Its section 6.1: average latency of gets where there is nothing else, at the highest rate.
const HYDRADB_ZIPF_US: f64 = 6.2;
const HYDRADB_UNIFORM_US: f64 = 7.8;

/// XStore, evaluation: cores of the server.
const XSTORE_CORES: f64 = 24.0;
/// A get of XStore: READ of the keys of a leaf, then of the value; and the client's processor time for a
/// lookup.
const XSTORE_GET: Work = Work {
    reads: 2.0,
    read_bytes: 136.0 + 8.0,
    writes_in: 0.0,
    write_in_bytes: 0.0,
    writes_out: 0.0,
    write_out_bytes: 0.0,
    read_rounds: 2.0,
    message_rounds: 0.0,
    server_ns: 0.0,
    client_ns: 350.0,
};
/// Its rate and latency of gets (YCSB C, uniform), how many times that of Cell and of the best tree by
/// message the rate is, and the latency of a tree by message.
const XSTORE_RATE: f64 = 82.0;
const XSTORE_US: f64 = 5.6;
const XSTORE_OVER_CELL: f64 = 5.9;
const XSTORE_OVER_RPC: f64 = 3.7;
const XSTORE_RPC_US: f64 = 4.3;

/// The rows.
pub(super) fn rows(hash: &Hash, ordered: &[Way]) -> Result<Vec<Row>, String> {
    let [old, new] = [nic::CONNECTX_3, nic::CONNECTX_4_TWICE].map(Nic::parse);
    let (old, new) = (old?, new?);
    let work = |id| ordered.iter().find(|way| way.id == id).expect("every way is measured").work;
    let projected = |work: &Work| Projected::of(work, &new, XSTORE_CORES);
    let get = projected(&XSTORE_GET);
    let (ceiling, limit) = get.ceiling();
    let (learned, message) = (projected(&work("ordered_get")), projected(&work("ordered_message")));
    let over = |id, name: &str, other: Projected, said: f64, words: &str| {
        let (ours, theirs) = (learned.ceiling(), other.ceiling());
        let note = format!(
            "{:.1} M/s by {}, and {:.1} M/s by {}; a get with XStore's own counts {:.1} times; {words}",
            ours.0,
            ours.1.words(),
            theirs.0,
            theirs.1.words(),
            ceiling / theirs.0
        );
        row(id, name, ours.0 / theirs.0, said, "times", &note)
    };
    Ok(vec![
        loaded("hydradb_get_zipf", "HydraDB, gets, Zipf", &hash.zipf, &old, HYDRADB_ZIPF_US),
        loaded("hydradb_get_uniform", "HydraDB, gets, uniform", &hash.uniform, &old, HYDRADB_UNIFORM_US),
        row(
            "xstore_get_rate",
            "XStore, gets a second, uniform",
            ceiling,
            XSTORE_RATE,
            "M/s",
            &format!(
                "by {}; its own counts: 2 READs of 136 and 8 bytes; {:.0} by message rate, {:.0} by bandwidth",
                limit.words(),
                get.by_message_rate,
                get.by_bandwidth
            ),
        ),
        row(
            "xstore_get_latency",
            "XStore, a get at low load",
            get.latency_us,
            XSTORE_US,
            "us",
            "its own counts: 2 READs one after the other, 0.35 us of the client",
        ),
        row(
            "xstore_message_latency",
            "XStore, a get of a tree by message at low load",
            message.latency_us,
            XSTORE_RPC_US,
            "us",
            "ours by message; theirs are eRPC and DrTM-Tree",
        ),
        over(
            "xstore_over_inner",
            "XStore / Cell, which copies the upper levels of inner nodes",
            projected(&work("ordered_inner_upper")),
            XSTORE_OVER_CELL,
            "ours READs one leaf, the tree three inner nodes and a leaf",
        ),
        over(
            "xstore_over_inner_equal",
            "the same, a tree with copies of as many bytes as our models",
            projected(&work("ordered_inner")),
            XSTORE_OVER_CELL,
            "what copies of inner nodes could be at best",
        ),
        over(
            "xstore_over_message",
            "XStore / trees by message",
            message,
            XSTORE_OVER_RPC,
            &format!(
                "{XSTORE_CORES} cores of the server, {:.0} ns of them a get",
                work("ordered_message").server_cpu_ns(&new)
            ),
        ),
    ])
}

/// What replicas cost who puts one item at a time, on the NIC that is projected to.
pub(super) fn replicated(put: &Work, ways: &[Way; 2], nic: &Nic) -> [Row; 2] {
    let latency_us = |work: &Work| Projected::of(work, nic, 1.0).latency_us;
    let alone_us = latency_us(put);
    ["repl_nic_put_1", "repl_nic_put_2"].map(|id| {
        let way = &ways[usize::from(id.ends_with('2'))];
        let ours = latency_us(&way.work);
        Row {
            id: id.into(),
            name: format!("latency of a {}, fed by messages / without", way.name).into(),
            ours,
            other: Some(alone_us),
            unit: "us",
            ratio: ours / alone_us,
            wanted: Some(1.6),
            sense: Sense::AtMost,
            note: format!("{}; no measurement", nic.name),
        }
    })
}

/// Clients that get as fast as they can.
fn loaded(id: &'static str, name: &str, mix: &Mix, nic: &Nic, said: f64) -> Row {
    let projected = Projected::of(&mix.work, nic, HYDRADB_SHARDS);
    let (rate, latency) = projected.in_a_loop(HYDRADB_CLIENTS, 1);
    let (ceiling, limit) = projected.ceiling();
    let note = format!(
        "{HYDRADB_CLIENTS} clients in a loop, {HYDRADB_SHARDS} shards, {:.0} % of gets by pointers that the 10 clients of a machine \
         share, others by message; {:.1} us alone; {rate:.1} of {ceiling:.1} M/s, by {}; the paper's are {:.1} M/s",
        mix.hits * 100.0,
        projected.latency_us,
        limit.words(),
        HYDRADB_CLIENTS as f64 / said
    );
    row(id, &format!("{name}, average latency of 50 clients"), latency, said, "us", &note)
}

/// A row of what is projected, what the paper says, and the error.
fn row(id: &'static str, name: &str, ours: f64, said: f64, unit: &'static str, note: &str) -> Row {
    let ratio = ours / said;
    Row {
        id: id.into(),
        name: name.to_string().into(),
        ours,
        other: Some(said),
        unit,
        ratio,
        wanted: None,
        sense: Sense::AtMost,
        note: format!("error {:+.0} %; {note}", (ratio - 1.0) * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each NIC's port carries 12,500 bytes a us; a get of XStore's brings 144 bytes in two packets of 30
    /// bytes more.
    #[test]
    fn xstore_by_hand() {
        let nic = Nic::parse(nic::CONNECTX_4_TWICE).unwrap();
        let projected = Projected::of(&XSTORE_GET, &nic, XSTORE_CORES);
        assert!((projected.by_bandwidth - 25_000.0 / 204.0).abs() < 1e-9, "{projected:?}");
        assert!((projected.by_message_rate - 150.0).abs() < 1e-9, "{projected:?}");
        // Twice 1.84; 144 bytes of 0.79 ns; 350 ns; two verbs of 100 ns.
        assert!((projected.latency_us - (3.68 + 0.11376 + 0.35 + 0.2)).abs() < 1e-9, "{projected:?}");
    }

    #[test]
    fn the_error_is_told() {
        let row = row("x", "x", 3.0, 4.0, "us", "why");
        assert_eq!((row.ratio, &row.note[..]), (0.75, "error -25 %; why"));
    }
}
