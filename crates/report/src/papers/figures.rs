//! The figures: the ratios of the papers' text, bar by bar. Where the text tells none there is none, since
//! bars are not read off a picture.

use super::{Bar, Figure, Theirs};

const fn bar(row: &'static str, label: &'static str, theirs: Theirs, words: &'static str) -> Bar {
    Bar { row, over: None, label, theirs, words }
}

const fn over(
    row: &'static str,
    base: &'static str,
    label: &'static str,
    theirs: Theirs,
    words: &'static str,
) -> Bar {
    Bar { row, over: Some(base), label, theirs, words }
}

/// All of them. A bar whose row a run does not have is left out.
pub(crate) const FIGURES: &[Figure] =
    &[HYDRADB_9, HYDRADB_10, HYDRADB_11, KELI_3, KELI_8, KELI_9, KELI_10, KELI_11];

const RATE: &str = "\"an order of magnitude higher throughput\"";
const LATENCY: &str = "\"up to 50 x lower latency\", averages at the highest rate";
const GETS: &str = "at the highest rate of 50 clients; ours is one operation at a time";

const HYDRADB_9: Figure = Figure {
    name: "hydradb-9",
    bench: "peers",
    title: "HydraDB 9: against the better of memcached and Redis",
    source: "HydraDB, section 6.1, figure 9",
    bars: &[
        bar("mix_a_zipf", "rate, half gets, Zipf", Theirs::About(10.0), RATE),
        bar("mix_b_zipf", "rate, 90 % gets, Zipf", Theirs::About(10.0), RATE),
        bar("mix_c_zipf", "rate, gets only, Zipf", Theirs::About(10.0), RATE),
        bar("mix_a_uniform", "rate, half gets, uniform", Theirs::About(10.0), RATE),
        bar("mix_b_uniform", "rate, 90 % gets, uniform", Theirs::About(10.0), RATE),
        bar("mix_c_uniform", "rate, gets only, uniform", Theirs::About(10.0), RATE),
        bar("sync_a_zipf", "latency, half gets, Zipf", Theirs::UpTo(50.0), LATENCY),
        bar("sync_b_zipf", "latency, 90 % gets, Zipf", Theirs::UpTo(50.0), LATENCY),
        bar("sync_c_zipf", "latency, gets only, Zipf", Theirs::UpTo(50.0), LATENCY),
        bar("sync_a_uniform", "latency, half gets, uniform", Theirs::UpTo(50.0), LATENCY),
        bar("sync_b_uniform", "latency, 90 % gets, uniform", Theirs::UpTo(50.0), LATENCY),
        bar("sync_c_uniform", "latency, gets only, uniform", Theirs::UpTo(50.0), LATENCY),
        bar("get_ratio_zipf", "rate, gets only / half, Zipf", Theirs::Times(3.463), GETS),
        bar("get_ratio_uniform", "rate, gets only / half, uniform", Theirs::Times(2.828), GETS),
    ],
};

/// RDMA Write over Send/Recv, and one thread over the pipeline: half gets of uniform keys (d), and all six, a
/// to f.
const RINGS: Theirs = Theirs::Among(1.747, 1.747, 2.626);
const ONE_THREAD: Theirs = Theirs::Among(1.869, 1.274, 1.948);
const RINGS_SAID: &str =
    "RDMA Write over Send/Recv: 1.789, 2.428, 2.552, 1.747, 2.361, 2.626 for a to f; ours is d's mix";
const ONE_THREAD_SAID: &str = "1.948, 1.531, 1.274, 1.869, 1.606, 1.344 for a to f; ours is d's mix. The pipeline has four times the cores";
const POINTERS_SAID: &str = "RDMA Read by cached pointer over messages";
const POINTERS_INDEX: &str = "over messages there, over READs of the index here";
const POINTERS_UNIFORM: &str = "\"less benefit\" than with Zipf";

const HYDRADB_10: Figure = Figure {
    name: "hydradb-10",
    bench: "ablation",
    title: "HydraDB 10: each feature against the store without it",
    source: "HydraDB, sections 6.2 and 6.2.1, figure 10",
    bars: &[
        bar("ring_messages", "rings / a socket", RINGS, RINGS_SAID),
        bar("ring_messages_batch", "the same, 64 at once", RINGS, RINGS_SAID),
        bar("ring_one_core", "rings / a socket on one core", RINGS, RINGS_SAID),
        bar("ring_one_core_batch", "the same, 64 at once", RINGS, RINGS_SAID),
        bar("mix_50_zipf", "one-sided / messages, half gets, Zipf", Theirs::Times(1.101), POINTERS_SAID),
        bar("mix_90_zipf", "one-sided / messages, 90 % gets, Zipf", Theirs::Times(1.144), POINTERS_SAID),
        bar("mix_100_zipf", "one-sided / messages, gets only, Zipf", Theirs::Times(1.299), POINTERS_SAID),
        bar("mix_50_uniform", "one-sided / messages, half gets, uniform", Theirs::More, POINTERS_UNIFORM),
        bar("mix_90_uniform", "one-sided / messages, 90 % gets, uniform", Theirs::More, POINTERS_UNIFORM),
        bar("mix_100_uniform", "one-sided / messages, gets only, uniform", Theirs::More, POINTERS_UNIFORM),
        bar("pointer_cache_zipf", "cached pointers / index, Zipf", Theirs::Times(1.299), POINTERS_INDEX),
        bar("pointer_cache", "cached pointers / index, hot set", Theirs::UpTo(1.299), POINTERS_INDEX),
        bar("single_thread", "one thread / a hand-off", ONE_THREAD, ONE_THREAD_SAID),
        bar("single_thread_batch", "the same, 64 at once", ONE_THREAD, ONE_THREAD_SAID),
    ],
};

const UPDATES_SAID: &str = "fewer with more updates, no number";
const UNIFORM_SAID: &str = "\"substantially less than their counterparts in the Zipfian workloads\"";

const HYDRADB_11: Figure = Figure {
    name: "hydradb-11",
    bench: "ablation",
    title: "HydraDB 11: gets that find their item by a cached pointer",
    source: "HydraDB, section 6.2, figure 11",
    bars: &[
        over("hits_90_zipf", "hits_100_zipf", "Zipf, 90 % gets / gets only", Theirs::Less, UPDATES_SAID),
        over(
            "hits_50_zipf",
            "hits_100_zipf",
            "Zipf, half gets / gets only",
            // Its figure counts hits of as many operations: 0.245 times the hits of half the gets.
            Theirs::Times(0.49),
            "hits fall \"by 75.5 %\" while gets fall by half, so 0.245 / 0.5 of those of 1000 gets",
        ),
        over("hits_100_uniform", "hits_100_zipf", "uniform / Zipf, gets only", Theirs::Less, UNIFORM_SAID),
        over("hits_90_uniform", "hits_90_zipf", "uniform / Zipf, 90 % gets", Theirs::Less, UNIFORM_SAID),
        over("hits_50_uniform", "hits_50_zipf", "uniform / Zipf, half gets", Theirs::Less, UNIFORM_SAID),
    ],
};

const UP_TO_HALF: &str = "against HERD's lookup: \"the latency could be reduced up to 50 %\"";

const KELI_3: Figure = Figure {
    name: "keli-3",
    bench: "links",
    title: "KELI 3: following a link against looking the item up",
    source: "KELI, section 3, figure 3",
    bars: &[
        bar("chase_32", "32 bytes", Theirs::UpTo(2.0), UP_TO_HALF),
        bar("chase_128", "128 bytes", Theirs::UpTo(2.0), UP_TO_HALF),
        bar("chase_512", "512 bytes", Theirs::UpTo(2.0), UP_TO_HALF),
        bar("chase_2048", "2048 bytes", Theirs::UpTo(2.0), UP_TO_HALF),
        bar("chase_shm_32", "32 bytes, shared memory", Theirs::UpTo(2.0), UP_TO_HALF),
        bar("chase_shm_128", "128 bytes, shared memory", Theirs::UpTo(2.0), UP_TO_HALF),
        bar("chase_shm_512", "512 bytes, shared memory", Theirs::UpTo(2.0), UP_TO_HALF),
        bar("chase_shm_2048", "2048 bytes, shared memory", Theirs::UpTo(2.0), UP_TO_HALF),
    ],
};

const TWICE: &str = "\"item lookup still executes two times longer than link chasing\"";
// The sentence before the one above is about the get of RDMA-Memcached, and it may mean that one.
const MEMCACHED: &str = "\"could perform better than RDMA-Memcached\", no number that is surely this one's";

const KELI_8: Figure = Figure {
    name: "keli-8",
    bench: "links",
    title: "KELI 8: following a link against lookups, ours and memcached's",
    source: "KELI, section 6.3, figure 8",
    bars: &[
        bar("chase_64", "64 bytes / lookup", Theirs::Times(2.0), TWICE),
        bar("chase_256", "256 bytes / lookup", Theirs::Times(2.0), TWICE),
        bar("chase_1024", "1024 bytes / lookup", Theirs::Times(2.0), TWICE),
        bar("chase_4096", "4096 bytes / lookup", Theirs::Times(2.0), TWICE),
        bar("chase_shm_64", "64 bytes / lookup, shared memory", Theirs::Times(2.0), TWICE),
        bar("chase_shm_256", "256 bytes / lookup, shared memory", Theirs::Times(2.0), TWICE),
        bar("chase_shm_1024", "1024 bytes / lookup, shared memory", Theirs::Times(2.0), TWICE),
        bar("chase_shm_4096", "4096 bytes / lookup, shared memory", Theirs::Times(2.0), TWICE),
        bar("chase_memcached_64", "64 bytes / memcached", Theirs::More, MEMCACHED),
        bar("chase_memcached_256", "256 bytes / memcached", Theirs::More, MEMCACHED),
        bar("chase_memcached_1024", "1024 bytes / memcached", Theirs::More, MEMCACHED),
        bar("chase_memcached_4096", "4096 bytes / memcached", Theirs::More, MEMCACHED),
    ],
};

const MATCHING: &str =
    "\"by the factor of two in average\", \"about 2.5 times faster\" at the 95th percentile";

const KELI_9: Figure = Figure {
    name: "keli-9",
    bench: "map",
    title: "KELI 9: matching a point to the map along links against memcached",
    source: "KELI, section 6.3, figure 9",
    bars: &[
        bar("map_memcached_p5", "5th percentile", Theirs::More, MATCHING),
        bar("map_memcached_mean", "mean", Theirs::Times(2.0), MATCHING),
        bar("map_memcached_p95", "95th percentile", Theirs::Times(2.5), MATCHING),
    ],
};

const PAGES: &str = "\"construct web pages 50% faster\"";

const KELI_10: Figure = Figure {
    name: "keli-10",
    bench: "web",
    title: "KELI 10: making a page along links against memcached",
    source: "KELI, section 6.3, figure 10",
    bars: &[
        bar("page_memcached_p5", "5th percentile", Theirs::More, PAGES),
        bar("page_memcached_mean", "mean", Theirs::Times(1.5), PAGES),
        bar("page_memcached_p95", "95th percentile", Theirs::More, PAGES),
    ],
};

const SEARCHES: &str = "\"runs 75% faster\"";

const KELI_11: Figure = Figure {
    name: "keli-11",
    bench: "graph",
    title: "KELI 11: searching breadth-first along links against memcached",
    source: "KELI, section 6.3, figure 11",
    bars: &[
        bar("bfs_memcached_10_mean", "10 vertices", Theirs::Times(1.75), SEARCHES),
        bar("bfs_memcached_100_mean", "100 vertices", Theirs::Times(1.75), SEARCHES),
        bar("bfs_memcached_1000_mean", "1,000 vertices", Theirs::Times(1.75), SEARCHES),
        bar("bfs_memcached_10000_mean", "10,000 vertices", Theirs::Times(1.75), SEARCHES),
    ],
};
