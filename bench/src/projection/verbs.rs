//! What of an operation would go over a NIC: the frames that were counted over TCP, and what the verbs fabric
//! adds to them.
//!
//! | over TCP | as verbs |
//! |---|---|
//! | READ and its answer | one READ of as many bytes |
//! | requests of one doorbell, side by side in the ring | one WRITE |
//! | - | with each such WRITE one READ of 8 bytes: does the shard sleep? Posted together; nobody waits for it |
//! | reply | one WRITE |
//! | frame of a ring | the same with a checksum, since words may land in any order |
//! | what was consumed, counters | a WRITE each |
//!
//! Left out: one READ of 8 bytes every 50 ms and session, of the authority word. A thousand sessions make
//! 20,000 a second of it, less than a thousandth of what any of these NICs does.

use super::model::Work;
use super::tap::Counts;

/// Bytes of a frame's checksum.
const CHECKSUM_BYTES: f64 = 8.0;
/// Bytes of the word that says whether the shard sleeps.
const SLEEPS_BYTES: f64 = 8.0;
const WORD_BYTES: f64 = 8.0;

/// Bytes of the WRITE of a message of so many words: before it come the indicator and the checksum.
pub(super) fn frame_bytes(payload_words: usize) -> f64 {
    (payload_words + 1) as f64 * WORD_BYTES + CHECKSUM_BYTES
}

/// An operation, of so many that were counted together. Processor times are not in it.
pub(super) fn work(counts: Counts, operations: usize) -> Work {
    let each = |count: u64| count as f64 / operations as f64;
    let bursts = each(counts.bursts);
    Work {
        reads: each(counts.reads) + bursts,
        read_bytes: each(counts.read_words) * WORD_BYTES + bursts * SLEEPS_BYTES,
        writes_in: bursts + each(counts.other_writes),
        write_in_bytes: each(counts.request_words + counts.other_words) * WORD_BYTES
            + each(counts.requests) * CHECKSUM_BYTES,
        writes_out: each(counts.replies),
        write_out_bytes: each(counts.reply_words) * WORD_BYTES + each(counts.replies) * CHECKSUM_BYTES,
        read_rounds: each(counts.read_rounds),
        message_rounds: each(counts.message_rounds),
        ..Work::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_by_hand() {
        let counts = Counts {
            requests: 128,
            request_words: 128 * 6,
            bursts: 2,
            replies: 128,
            reply_words: 128 * 13,
            message_rounds: 2,
            ..Counts::default()
        };
        let work = work(counts, 128);
        let share = 2.0 / 128.0;
        assert_eq!((work.reads, work.read_bytes, work.read_rounds), (share, 8.0 * share, 0.0));
        assert_eq!((work.writes_in, work.write_in_bytes), (share, 56.0));
        assert_eq!((work.writes_out, work.write_out_bytes, work.message_rounds), (1.0, 112.0, share));
    }

    #[test]
    fn reads_are_as_they_were() {
        let counts = Counts {
            reads: 20,
            read_words: 200,
            read_rounds: 10,
            other_writes: 1,
            other_words: 7,
            ..Counts::default()
        };
        let work = work(counts, 10);
        assert_eq!((work.reads, work.read_bytes, work.read_rounds), (2.0, 160.0, 1.0));
        assert_eq!((work.writes_in, work.write_in_bytes, work.writes_out), (0.1, 5.6, 0.0));
    }
}
