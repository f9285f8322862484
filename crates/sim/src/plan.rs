//! What a seed decides.

use kelix::TableKind;

use crate::cluster::ClusterPlan;
use crate::fabric::Kind;
use crate::random::Random;
use crate::scheduler::Temper;
use crate::value::Shape;

/// What a run is about, beside keys that are wanted all the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Theme {
    /// Keys of all kinds that come and go, so that the index grows and shrinks.
    Index,
    /// One or two keys, whose values follow each other in the same few slots within a READ or two.
    Hot,
    /// Memory so full that writes wait for it, and segments that are emptied.
    Memory,
    /// Items with links, which are followed.
    Links,
    /// Values that do not fit a message, and such that do not fit a slot.
    Large,
}

/// How often each kind of harm is done, of all harm.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Average time between two.
    pub pause_ns: u64,
    /// The longest that a node is stopped, or a connection held up.
    pub longest_ns: u64,
    /// Clients that are stopped for a while.
    pub stopped_clients: u64,
    /// Shards that are stopped for a while.
    pub stopped_shards: u64,
    /// Connections that are cut.
    pub cuts: u64,
    /// Connections on which nothing arrives for a while.
    pub delays: u64,
    /// Clients that are killed.
    pub kills: u64,
    /// Servers that are superseded.
    pub take_overs: u64,
}

/// What a seed decides.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Operations to be done.
    pub operations: u64,
    /// What the run is about.
    pub theme: Theme,
    /// What kind of table the keys stand in.
    pub table: TableKind,
    /// The fabric.
    pub kind: Kind,
    /// How moments are dealt with.
    pub temper: Temper,
    /// Number of shards of a server.
    pub shards: usize,
    /// Number of clients.
    pub clients: u32,
    /// Keys that are wanted all the time.
    pub hot_keys: u64,
    /// How many operations in six are on keys that come and go.
    pub cold_in_6: u64,
    /// How most values are made.
    pub shape: Shape,
    /// Memory is filled but for a few slots of the kind that the hot keys need, so that each of their values
    /// gets that of one whose quarantine is just over.
    pub crowded: bool,
    /// Most memory of a server.
    pub memory_bytes: u64,
    /// How much faster or slower than the true time a clock may run, in parts per million.
    pub drift_ppm_max: u64,
    /// How long a request may take.
    pub timeout_ns: u64,
    /// Generations of a dataset are loaded and read meanwhile.
    pub loads: bool,
    /// Servers log what they do, and answer when that is on the disk, which takes up to twice so long; they
    /// begin with what the one before logged.
    pub disk_ns: Option<u64>,
    /// Servers have mirrors, which are read.
    pub mirrors: bool,
    /// For how long a mirror may be read without hearing of its primary.
    pub max_lag_ns: Option<u64>,
    /// The servers are nodes of a cluster.
    pub cluster: Option<ClusterPlan>,
    /// The harm that is done.
    pub faults: Faults,
}

/// One in so many operations of a seed is done in a cluster, beside the others.
const OPERATIONS_OF_CLUSTERS: u64 = 4;

/// Clocks may be wrong by so much where time bounds a READ: a reader waits 3/4 of an epoch at most by its own
/// clock, and the shard an epoch by its own.
pub const DRIFT_PPM_MAX: u64 = 120_000;

impl Plan {
    /// The plans of a seed: of servers of their own, and of a cluster, with fewer operations.
    pub fn all(seed: u64, operations: u64) -> [Plan; 2] {
        [Plan::of(seed, operations), Plan::of_cluster(seed, operations / OPERATIONS_OF_CLUSTERS)]
    }

    /// Whether a server goes on with what another one has, and does not begin empty.
    pub fn goes_on(&self) -> bool {
        self.disk_ns.is_some() || self.cluster.is_some()
    }

    /// The plan of a cluster.
    fn of_cluster(seed: u64, operations: u64) -> Plan {
        // Memory is read where it is, and no value is large.
        let themes = [(Theme::Index, 0), (Theme::Hot, 2), (Theme::Links, 6)];
        let (_, at) = themes[(seed % 3) as usize];
        let mut plan = Plan::of(10 * seed + at, operations);
        if plan.crowded {
            plan = Plan::of(10 * seed, operations);
        }
        let mut random = Random::new(seed ^ 0xC105);
        (plan.seed, plan.disk_ns, plan.mirrors, plan.loads) = (seed, None, false, false);
        plan.cluster = Some(ClusterPlan::of(&mut random, plan.temper.long_pause_ns_max, seed % 2 == 0));
        // Chosen by themselves, so that the rest of a seed's plan does not depend on it.
        let mut of_disks = Random::new(seed ^ 0xD15C5);
        if of_disks.once_in(3) {
            plan.cluster = plan.cluster.map(|cluster| cluster.with_disks(&mut of_disks));
        }
        let mut of_clocks = Random::new(seed ^ 0xC10C);
        if of_clocks.once_in(3) {
            plan.cluster = plan.cluster.map(|cluster| cluster.with_wrong_clock(&mut of_clocks));
        }
        (plan.faults.take_overs, plan.faults.stopped_shards) = (8, 8);
        plan.faults.pause_ns = 60_000 + random.below(400_000);
        if let Some(hosts) = plan.cluster.and_then(|cluster| cluster.hosts) {
            // A successor waits for a lease before anything can be done again.
            plan.faults.pause_ns *= 2;
            // Some write at the successor while others still read in the memory of the primary before.
            plan.timeout_ns = (hosts.lease_ns / 6).max(20_000);
        }
        plan
    }

    /// The plan of a seed.
    pub fn of(seed: u64, operations: u64) -> Plan {
        let mut random = Random::new(seed ^ 0xD1CE);
        let ordered = seed % 2 == 0;
        let themes = [Theme::Index, Theme::Hot, Theme::Memory, Theme::Links, Theme::Large];
        let theme = themes[(seed / 2) as usize % themes.len()];
        let hot = theme == Theme::Hot;
        let crowded = hot && random.once_in(2);
        // An unordered READ must have a chance to be done within an epoch, and a chain of them too.
        let epoch_ns = match (hot, ordered) {
            (true, true) => 200 + random.below(2_000),
            (true, false) => 2_000 + random.below(10_000),
            (false, true) => 1_000 + random.below(20_000),
            (false, false) => 8_000 + random.below(50_000),
        };
        // A slow READ meets several puts.
        let slow = if ordered { 400 } else { epoch_ns / 4 };
        let delay_ns_max = [20 + random.below(400), 20 + random.below(slow)][random.below(2) as usize];
        // Now and then a slot goes from one value to the next while the words of one READ are on their way.
        let steadiness = if crowded { [1, 50][random.below(2) as usize] } else { 1 };
        let temper = Temper {
            loads_a_switch: (3 + random.below(60)) * steadiness,
            stores_a_switch: (2 + random.below(20)) * steadiness,
            moment_ns_max: 1 + random.below(8),
            pause_ns_max: 10 + random.below(if hot { epoch_ns } else { 3_000 }),
            pauses_a_long_one: [3, 24, 24, 100][random.below(4) as usize],
            long_pause_ns_max: 4 * epoch_ns,
        };
        // Where much is to happen to one server, that is to live for a while; and words by the ten thousand
        // take theirs.
        let slow_theme = matches!(theme, Theme::Memory | Theme::Large);
        let slowness = if slow_theme { 20 } else { 1 };
        let faults = Faults {
            pause_ns: (100_000 + random.below(2_000_000)) * slowness,
            longest_ns: 20 * epoch_ns * slowness,
            stopped_clients: 10,
            stopped_shards: 4,
            cuts: 3,
            delays: 2,
            kills: 2,
            // A successor begins empty.
            take_overs: if crowded { 0 } else { [1, 1, 0][random.below(3) as usize] },
        };
        // Chosen by themselves, so that the rest of a seed's plan does not depend on it.
        let mut of_table = Random::new(seed ^ 0x7AB1E);
        let table = match theme {
            _ if crowded => TableKind::Hash,
            Theme::Index | Theme::Hot => TableKind::ALL[of_table.below(4) as usize],
            _ => [TableKind::Hash, TableKind::Hash, TableKind::Numbers, TableKind::Strings]
                [of_table.below(4) as usize],
        };
        let mut plan = Plan {
            seed,
            operations,
            theme,
            table,
            kind: Kind {
                ordered,
                delay_ns_max,
                slow_ns_max: 3 * epoch_ns,
                reads_a_slow_one: if crowded { 6 } else { 40 },
                epoch_ns,
                // Where clocks bound READs a server has one distance for all of its life.
                epoch_ns_usual: if seed % 4 == 0 { 8 * epoch_ns } else { epoch_ns },
            },
            temper,
            shards: match theme {
                Theme::Index | Theme::Links => [1, 1, 2, 3][random.below(4) as usize],
                Theme::Hot | Theme::Memory | Theme::Large => 1,
            },
            hot_keys: if hot { 1 + random.below(2) } else { [1, 2, 3, 12][random.below(4) as usize] },
            cold_in_6: match theme {
                Theme::Index => 2 + 2 * random.below(2),
                Theme::Hot => 0,
                _ => random.below(2),
            },
            shape: match theme {
                _ if table == TableKind::Inline => Shape::Number,
                Theme::Hot => [Shape::Short, Shape::Long][random.below(2) as usize],
                // Of the size that fills memory, so that a new value waits for the slot of an old one.
                Theme::Memory if random.once_in(2) => Shape::Bulk,
                _ => [Shape::Mixed, Shape::Mixed, Shape::Short, Shape::Long][random.below(4) as usize],
            },
            clients: 2 + random.below(4) as u32,
            // So little that what was given back is soon used again.
            crowded,
            memory_bytes: match theme {
                Theme::Hot if crowded => 4 << 20,
                Theme::Memory => (8 + random.below(5)) << 20,
                Theme::Large => (9 + random.below(5)) << 20,
                _ => 32 << 20,
            },
            drift_ppm_max: if ordered { 1_000 } else { DRIFT_PPM_MAX },
            loads: theme == Theme::Links || (theme == Theme::Index && of_table.once_in(2)),
            disk_ns: None,
            mirrors: false,
            max_lag_ns: None,
            cluster: None,
            timeout_ns: if slow_theme { 20_000_000 } else { 800_000 },
            faults,
        };
        let mut of_disk = Random::new(seed ^ 0xD15C);
        if !crowded && theme != Theme::Memory && of_disk.once_in(2) {
            plan.disk_ns = Some((200 << of_disk.below(8)).min(plan.timeout_ns / 8));
            plan.loads = false;
            plan.faults.take_overs = 4;
            plan.table = match theme {
                // Leaves say the most by themselves where values stand in them.
                Theme::Index | Theme::Hot if of_disk.once_in(2) => TableKind::Inline,
                _ => plan.table,
            };
        }
        let mut of_mirrors = Random::new(seed ^ 0x4D19);
        plan.mirrors = plan.disk_ns.is_none() && of_mirrors.once_in(2);
        plan.max_lag_ns = of_mirrors.once_in(3).then(|| 5_000 + of_mirrors.below(100_000));
        if plan.table == TableKind::Inline {
            plan.shape = Shape::Number;
        }
        // Links between shards are those of hash tables.
        if theme == Theme::Links && plan.shards > 1 {
            plan.table = TableKind::Hash;
        }
        plan
    }
}
