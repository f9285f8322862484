//! A put whose replicas are fed by messages: what a primary sends them is counted at a real one, fed over
//! TCP.
//!
//! On a NIC the record of a put goes to each replica in a message, and one comes back that says that it has
//! come; the answer of the put waits for that (docs/design/0018-replicas.md). Replicas are sent it one behind
//! the other, and wait for each other in nothing.

use kelix::Client;

use super::model::Work;
use super::paths::{Way, text};
use super::verbs::frame_bytes;
use crate::cluster::Nodes;
use crate::store::{Numbers, key_of, memory_for, numbered_value};

/// Puts that are counted, one at a time.
const COUNTED: u64 = 1280;
/// Words of what a replica says: the question, and whether it has mapped the streams.
const PLACED_WORDS: usize = 2;

/// Bytes that a primary has sent to its replicas. Each put waits until its record has been.
fn sent(nodes: &Nodes) -> Result<u64, String> {
    let client = Client::connect(nodes.directory.run()).map_err(text)?;
    Ok(client.statistics().map_err(text)?.mirrors.iter().map(|of| of.sent_bytes).sum())
}

/// Bytes that one replica is sent for a put.
pub(super) fn bytes_a_put(records: u64) -> Result<f64, String> {
    let nodes = Nodes::start_with("projection", 2, memory_for(records), &["--fabric", "tcp"])?;
    let (mut session, table) = nodes.session()?;
    let mut put = |record, number| session.put(table, &key_of(record), &numbered_value(record, number));
    for record in 0..records {
        put(record, 1).map_err(text)?;
    }
    let before = sent(&nodes)?;
    for record in Numbers(83).records(records, COUNTED as usize) {
        put(record, 2).map_err(text)?;
    }
    Ok((sent(&nodes)? - before) as f64 / COUNTED as f64)
}

/// A put with one replica and with two, from what it takes without.
pub(super) fn ways(put: Work, bytes: f64) -> [Way; 2] {
    let with = |replicas: f64| Work {
        writes_out: put.writes_out + replicas,
        write_out_bytes: put.write_out_bytes + replicas * bytes,
        writes_in: put.writes_in + replicas,
        write_in_bytes: put.write_in_bytes + replicas * frame_bytes(PLACED_WORDS),
        // All replicas answer in the same time.
        message_rounds: put.message_rounds + 1.0,
        ..put
    };
    [Way::one("put_1", "put, one replica", with(1.0)), Way::one("put_2", "put, two replicas", with(2.0))]
}
