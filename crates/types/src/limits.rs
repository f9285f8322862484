//! Every limit of Kelix, in one place, with the relations between them checked at compile time.
//!
//! Sizes are bytes and times are nanoseconds unless a name says otherwise.

/// Longest key.
pub const KEY_BYTES_MAX: usize = 64 * 1024;

/// Largest value (or attribute section) that stands in one slot; a larger one stands in page runs.
pub const INLINE_BODY_BYTES_MAX: usize = 1024 * 1024;

/// Largest value of all: what a 44-bit address space could hold. Memory ends long before.
pub const VALUE_BYTES_MAX: u64 = 1 << 43;

/// Every object begins at a multiple of this, so that a location needs only 40 bits.
pub const PLACE_ALIGN: u64 = 16;

/// Bits of a place: a 40-bit count of [`PLACE_ALIGN`] units, 16 TiB an image.
pub const PLACE_BITS: u32 = 44;

/// Address space is given to segments in granules of this size.
pub const GRANULE_BYTES: u64 = 64 << 20;

/// Granules of an image.
pub const GRANULES_MAX: usize = (1 << PLACE_BITS) / GRANULE_BYTES as usize;

/// Unit in which a segment's memory is given to slabs, index blocks and page runs.
pub const PAGE_BYTES: u64 = 64 << 10;

/// Longest run of pages that forms one slab.
pub const SLAB_PAGES_MAX: u64 = 64;

/// Huge page of a host. Segments are as long as some of them, so that their memory can be in such pages.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// First segment of an image; each following one is twice as large, up to [`SEGMENT_BYTES_MAX`].
pub const SEGMENT_BYTES_FIRST: u64 = 64 << 20;

/// Largest segment.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Smallest segment: the longest slab fits.
pub const SEGMENT_BYTES_MIN: u64 = SLAB_PAGES_MAX * PAGE_BYTES;

/// A store is given its memory in at least so many segments. Slabs come back only with their segment, once
/// its objects have moved to others; with few segments there would often be no room for that. In a cache a
/// segment is what one size of items gives to another.
const SEGMENTS_MIN: u64 = 32;

/// Largest segment of a shard with so much memory.
pub const fn segment_bytes_max(shard_bytes: u64) -> u64 {
    match shard_bytes / SEGMENTS_MIN {
        ..SEGMENT_BYTES_MIN => SEGMENT_BYTES_MIN,
        SEGMENT_BYTES_MAX.. => SEGMENT_BYTES_MAX,
        bytes => bytes,
    }
}

/// Least memory of a shard: its first segment holds the largest slab and an empty index.
pub const SHARD_BYTES_MIN: u64 = 16 << 20;

/// Usual time between two steps of the reclamation epoch; where clients READ over verbs or TCP also the
/// shortest (L of the read rule).
pub const EPOCH_NS: u64 = 25_000_000;

/// Shortest time between two steps where all clients map the memory. They follow each other so soon while a
/// write waits for room, or much is in quarantine.
pub const EPOCH_NS_MIN: u64 = 1_000_000;

/// That is this share of the memory of an image, or more.
pub const QUARANTINE_HURRY_SHARE: u64 = 128;

/// Memory whose object died in epoch e is reused only once epoch e + this was published.
pub const QUARANTINE_EPOCHS: u64 = 2;

/// Most epochs that may pass during a valid read over a fabric with ordered loads.
pub const READ_EPOCHS_MAX: u64 = 1;

/// How long a server that takes over waits before its first reply, where clients READ over verbs: for three
/// quarters of it, by their own clocks, they need not look whose word is in force.
pub const AUTHORITY_LEASE_NS: u64 = 100_000_000;

/// How old what a client over verbs knows of segments may be when it begins an operation; it looks then
/// whether some have gone.
pub const SEGMENTS_KNOWN_NS: u64 = 2_000_000_000;

/// How long a server leaves a segment that has gone registered for clients over verbs that do not say that
/// they READ it no more. What a client knows may be old by [`SEGMENTS_KNOWN_NS`], and the rest is for the
/// news on its way and for the operation.
pub const SEGMENTS_LEFT_NS: u64 = 5 * SEGMENTS_KNOWN_NS;

/// Most shards of one server.
pub const SHARDS_MAX: usize = 64;

/// Arcs of the consistent-hashing ring; a key's ring position is the top bits of its remixed hash.
pub const RING_ARCS: usize = 4096;

/// Virtual nodes a shard has on the ring.
pub const RING_VIRTUAL_NODES: usize = 128;

/// Bytes of one message ring, a power of two.
pub const MESSAGE_RING_BYTES: usize = 512 << 10;

/// Largest frame in a message ring. A quarter, because up to a quarter may be skipped at the ring's end and
/// up to a quarter may be consumed but not yet reported: a frame fits as soon as the reader has caught up.
pub const FRAME_BYTES_MAX: usize = MESSAGE_RING_BYTES / 4;

/// Largest value carried inside one message; larger ones are sent in pieces.
pub const MESSAGE_VALUE_BYTES_MAX: usize = 32 << 10;

/// Requests a shard takes in one batch, with prefetch across them.
pub const SHARD_BATCH: usize = 64;

/// Most items of a request that puts several: as many as become one record where changes are logged.
pub const PUTS_A_REQUEST: usize = 16;

/// Longest name of a namespace.
pub const NAMESPACE_BYTES_MAX: usize = 64;

/// Of so many of its last writes a shard knows what it answered to a client that may ask again. The client
/// has no more under way.
pub const SEQUENCES_KEPT: usize = 256;

/// Clients that may ask again, and have gone, of whom a shard knows that.
pub const CALLERS_REMEMBERED: usize = 1024;

/// Largest number of one-sided operations a session has under way at once.
pub const SESSION_READS_MAX: usize = 256;

/// Bytes of the table of cached pointers that the processes of a user share on a host, a power of two. Only
/// what is used of it takes memory.
pub const POINTER_TABLE_BYTES: u64 = 16 << 20;

/// Retries of one one-sided read before it goes by message.
pub const READ_RETRIES_MAX: u64 = 8;

/// A request without an answer for this long fails with an unknown outcome.
pub const REQUEST_TIMEOUT_NS: u64 = 900_000_000;

/// Most clients over TCP, and over verbs, at once.
pub const CLIENTS_MAX: usize = 16_384;

/// How long a client may take to say who it is.
pub const GREETING_NS: u64 = 5_000_000_000;

/// Longest name of a table or an attribute.
pub const NAME_BYTES_MAX: usize = 255;

/// Most tables of each kind in a namespace.
pub const TABLES_MAX: usize = 16_383;

/// Most attribute names of a table.
pub const NAMES_MAX: usize = 65_535;

/// Most tables of a dataset.
pub const DATASET_TABLES_MAX: usize = 256;

/// How long a read view may go without a sign of life, unless the server is told otherwise; and for how long
/// a generation can be read after the last view of it has gone.
pub const VIEW_LEASE_NS: u64 = 5_000_000_000;

/// Slots of a leaf of an ordered table.
pub const LEAF_SLOTS: usize = 16;

/// Most leaves in one block of the shard's index of leaves.
pub const LEAF_BLOCK_MAX: usize = 512;

/// Most keys that one message of a scan brings.
pub const SCAN_KEYS_MAX: usize = 1024;

/// Most keys that one message counts.
pub const COUNT_KEYS_MAX: usize = 64 << 10;

const _: () = {
    assert!(PLACE_BITS == 40 + PLACE_ALIGN.trailing_zeros());
    assert!(GRANULE_BYTES % PAGE_BYTES == 0 && SEGMENT_BYTES_MAX % GRANULE_BYTES == 0);
    assert!(SHARD_BYTES_MIN > 2 * SLAB_PAGES_MAX * PAGE_BYTES && SEGMENT_BYTES_FIRST >= SHARD_BYTES_MIN);
    assert!(SEGMENT_BYTES_FIRST >= SEGMENT_BYTES_MIN);
    assert!(SEGMENT_BYTES_MIN % HUGE_PAGE_BYTES == 0 && HUGE_PAGE_BYTES % PAGE_BYTES == 0);
    assert!(MESSAGE_RING_BYTES.is_power_of_two() && RING_ARCS.is_power_of_two());
    // A frame holds the largest key with the largest carried value and their headers.
    assert!(FRAME_BYTES_MAX >= KEY_BYTES_MAX + MESSAGE_VALUE_BYTES_MAX + 256);
    // The class table covers a header, the longest key and the largest inline body.
    assert!(crate::SizeClass::BYTES_MAX >= 32 + KEY_BYTES_MAX + INLINE_BODY_BYTES_MAX);
    assert!(SHARDS_MAX <= RING_ARCS);
    // A set of shards is a word.
    assert!(SHARDS_MAX <= 64);
};
