//! What may be done with tables that are or were loaded, and with those that were dropped.
//!
//! ```text
//! filled (by its builder) -> read -> gone with its generation, or dropped -> forgotten: any other table
//!                             ^ |
//!                     thawed  | v
//!                            frozen (its next generation takes over what clients wrote)
//! ```
//!
//! A table of which nothing is known here is a client's own, and takes everything. Each shard knows that of
//! all tables, since each answers for its own items; which generations there are knows shard 0
//! ([`crate::datasets`]).
//!
//! 1. Only the connection that builds a generation fills its tables ([`Tables::forbid`]).
//! 2. A frozen table takes no write before its follower is in force, is given up, or took too long; then its
//!    follower cannot come into force any more ([`Tables::forbid`], [`Tables::has_thawed`]).
//! 3. The bits of dropped tables are a superset of those that are ([`Tables::is_dropped`]).

use std::collections::{HashMap, HashSet};

use kelix_types::{TableId, mark};
use kelix_wire::{Op, RequestHead, Status};

use crate::shard::Now;

/// What may be done with a table that is or was of a generation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is being filled by the builder of this generation.
    Filled { generation: u64, overlay: bool },
    /// It is read.
    Read { overlay: bool },
    /// It is read, and takes no writes before this moment, unless the generation that follows it is given up
    /// earlier.
    Frozen { follower: u64, until_ns: u64 },
    /// Nothing: what was in it went with this generation. 0: it was dropped by a client.
    Gone(u64),
}

/// What a shard knows of tables.
#[derive(Default)]
pub(crate) struct Tables {
    uses: HashMap<TableId, Use>,
    /// A bit for each table: it may be one that was dropped. Without any, empty.
    dropped: Vec<u64>,
    /// Generations that are being built, and the connections of those who build them.
    builders: HashMap<u64, u64>,
    /// Generations for which tables were frozen.
    followers: HashSet<u64>,
    /// Generations whose builders took too long.
    thawed: Vec<u64>,
}

impl Tables {
    /// Whether all tables are clients' own.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }

    /// What is known of a table.
    pub fn table_use(&self, table: TableId) -> Option<Use> {
        self.uses.get(&table).copied()
    }

    /// All that is known.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (TableId, Use)> {
        self.uses.iter().map(|(table, used)| (*table, *used))
    }

    /// Takes over what another shard knew of a table, whose memory this one goes on with.
    /// [`Tables::count_dropped`] ends that.
    pub fn restore(&mut self, table: TableId, used: Use) {
        self.uses.insert(table, used);
    }

    /// Why a request cannot be done, where that is for its table's sake.
    pub fn forbid(&mut self, now: Now, connection: u64, head: &RequestHead) -> Option<Status> {
        let writes = head.op.properties().changes_items;
        let used = self.uses.get_mut(&head.table)?;
        match *used {
            Use::Gone(_) if head.op != Op::Build => Some(Status::Gone),
            Use::Filled { generation, .. } if writes && head.argument != Some(generation) => {
                Some(Status::Loaded)
            }
            // Its builder came again, and what it began goes with the connection from which it did.
            Use::Filled { generation, .. }
                if writes && self.builders.get(&generation) != Some(&connection) =>
            {
                mark!("build went on over another connection");
                Some(Status::Gone)
            }
            Use::Read { overlay: false } if writes => Some(Status::Loaded),
            Use::Frozen { follower, until_ns } if writes && until_ns <= now.monotonic_ns => {
                // Its builder took too long, and must not go on: what is written now it would not take over.
                mark!("table thawed by itself");
                *used = Use::Read { overlay: true };
                self.thawed.push(follower);
                None
            }
            Use::Frozen { .. } if writes => Some(Status::Frozen),
            _ => None,
        }
    }

    /// A generation is being built, by whoever has a connection: its tables are filled.
    pub fn begin(&mut self, generation: u64, connection: u64, tables: impl Iterator<Item = (TableId, bool)>) {
        self.builders.insert(generation, connection);
        self.uses.extend(tables.map(|(table, overlay)| (table, Use::Filled { generation, overlay })));
    }

    /// The connection of who builds a generation.
    pub fn builder(&self, generation: u64) -> Option<u64> {
        self.builders.get(&generation).copied()
    }

    /// The generation for which a table is being filled.
    pub fn filled(&self, table: TableId) -> Option<u64> {
        match self.uses.get(&table) {
            Some(Use::Filled { generation, .. }) => Some(*generation),
            _ => None,
        }
    }

    /// Whether tables are being filled for a generation.
    pub fn is_built(&self, number: u64) -> bool {
        let filled = |used: &Use| matches!(used, Use::Filled { generation, .. } if *generation == number);
        self.uses.values().any(filled)
    }

    /// A generation is complete: its tables are read, and those that it follows take no writes any more
    /// unless it is given up.
    pub fn complete(&mut self, number: u64) {
        self.builders.remove(&number);
        for used in self.uses.values_mut() {
            match *used {
                Use::Filled { generation, overlay } if generation == number => *used = Use::Read { overlay },
                _ => {}
            }
        }
        if !self.followers.contains(&number) {
            return;
        }
        for used in self.uses.values_mut() {
            match used {
                Use::Frozen { follower, until_ns } if *follower == number => *until_ns = u64::MAX,
                _ => {}
            }
        }
    }

    /// Takes no writes to a table until its follower is in force or given up, or until this moment. `false`:
    /// it cannot be frozen.
    pub fn freeze(&mut self, table: TableId, follower: u64, until_ns: u64) -> bool {
        if !self.is_built(follower) {
            return false;
        }
        let Some(used) = self.uses.get_mut(&table) else { return false };
        match *used {
            Use::Read { overlay: true } => {}
            Use::Frozen { follower: before, .. } if follower == before => {}
            _ => return false,
        }
        *used = Use::Frozen { follower, until_ns };
        self.followers.insert(follower);
        true
    }

    /// The builder of a frozen table's follower goes on.
    pub fn stay_frozen(&mut self, table: TableId, follower: u64, until_ns: u64) {
        if matches!(self.table_use(table), Some(Use::Frozen { .. })) {
            self.freeze(table, follower, until_ns);
        }
    }

    /// Whether a generation must not come into force, since a table took writes again that was frozen for it.
    pub fn has_thawed(&self, follower: u64) -> bool {
        self.thawed.contains(&follower)
    }

    /// The follower of frozen tables is given up.
    fn thaw(&mut self, follower: u64) {
        if !self.followers.remove(&follower) {
            return;
        }
        for used in self.uses.values_mut() {
            if matches!(used, Use::Frozen { follower: of, .. } if *of == follower) {
                *used = Use::Read { overlay: true };
            }
        }
    }

    /// Nothing may be done any more with tables of a generation. `given_up`: it was never in force. A
    /// generation of 0 is none: the tables were dropped by a client.
    pub fn end(&mut self, generation: u64, tables: &[TableId], given_up: bool) {
        self.thawed.retain(|thawed| *thawed != generation);
        self.builders.remove(&generation);
        if given_up {
            self.thaw(generation);
        }
        for table in tables {
            let used = self.uses.insert(*table, Use::Gone(generation));
            if let Some(Use::Frozen { follower, .. }) = used {
                self.followers.remove(&follower);
            }
            if generation == 0 {
                note_dropped(&mut self.dropped, *table);
            }
        }
    }

    /// Takes dropped tables for such as never were.
    pub fn forget(&mut self, tables: &[TableId]) {
        for table in tables {
            if matches!(self.uses.get(table), Some(Use::Gone(0))) {
                self.uses.remove(table);
            }
        }
        self.count_dropped();
    }

    /// Finds out anew which tables were dropped.
    pub fn count_dropped(&mut self) {
        let Tables { uses, dropped, .. } = self;
        dropped.clear();
        let gone = uses.iter().filter(|(_, used)| **used == Use::Gone(0));
        gone.for_each(|(table, _)| note_dropped(dropped, *table));
    }

    /// Whether there are tables that were dropped.
    pub fn has_dropped_tables(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// Whether a table was dropped, and is not of a generation again.
    pub fn is_dropped(&self, table: TableId) -> bool {
        let word = self.dropped.get(usize::from(table.0) / 64);
        let noted = word.is_some_and(|word| word >> (table.0 % 64) & 1 == 1);
        noted && self.uses.get(&table) == Some(&Use::Gone(0))
    }

    /// What is left of clients, in words and numbers.
    pub fn remains(&self) -> [(&'static str, usize); 4] {
        let is_loading = |used: &&Use| matches!(used, Use::Filled { .. } | Use::Frozen { .. });
        [
            ("tables that are filled or frozen", self.uses.values().filter(is_loading).count()),
            ("builders", self.builders.len()),
            ("generations for which tables are frozen", self.followers.len()),
            ("builders that took too long", self.thawed.len()),
        ]
    }
}

fn note_dropped(dropped: &mut Vec<u64>, table: TableId) {
    dropped.resize(1 << 10, 0);
    dropped[usize::from(table.0) / 64] |= 1 << (table.0 % 64);
}
