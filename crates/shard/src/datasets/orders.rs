//! What shards tell each other of datasets.

use std::ops::Range;

use kelix_types::TableId;

use super::remote_links::{LinkPlace, Question, Target};

/// What one shard has to tell others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// From shard 0 to all others: who has this connection builds a generation, of these tables, each with
    /// whether clients may write to it. Only it may fill them, and say that they are complete.
    Begin {
        /// Which one it is.
        generation: u64,
        /// Whose connection.
        connection: u64,
        /// Its tables.
        tables: Vec<(TableId, bool)>,
    },
    /// From shard 0 to all others: what is in these tables is to be dropped.
    Drop {
        /// Which one it is.
        generation: u64,
        /// Its tables.
        tables: Vec<TableId>,
        /// It was never in force.
        given_up: bool,
    },
    /// From shard 0 to all others, when it goes on with an image: these are all tables that were dropped.
    /// What was under way when the server before ended, and is not among its records, is ordered anew by
    /// that.
    Reconcile {
        /// Its tables.
        dropped: Vec<TableId>,
    },
    /// From others to shard 0: that is done.
    Dropped {
        /// Which one it is.
        generation: u64,
    },
    /// From shard 0 to all others: which of these tables, which were dropped, do links of items lead to?
    FindLinks {
        /// In their order.
        tables: Vec<TableId>,
    },
    /// From others to shard 0: to these.
    LinksFound {
        /// In their order.
        tables: Vec<TableId>,
    },
    /// From shard 0 to all others: these tables, which were dropped, are such as never were.
    Forget {
        /// In their order.
        tables: Vec<TableId>,
    },
    /// From others to shard 0: they are.
    Forgotten,
    /// Where are these targets of links?
    Ask {
        /// The generation that is built.
        generation: u64,
        /// Who asks.
        from: usize,
        /// Who has them.
        to: usize,
        /// Which ones.
        question: Question,
    },
    /// The answer.
    Tell {
        /// The generation that is built.
        generation: u64,
        /// Who asked.
        to: usize,
        /// Where they are.
        told: Vec<(LinkPlace, Target)>,
    },
}

impl Order {
    /// For which shards it is, if this one has to tell it.
    pub fn is_for(&self, from: usize, shards: usize) -> Range<usize> {
        match self {
            Order::Ask { to, .. } | Order::Tell { to, .. } => *to..to + 1,
            _ if from == 0 => 1..shards,
            _ => 0..1,
        }
    }
}
