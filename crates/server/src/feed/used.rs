//! What a mirror's clients read, on its way to the shards of a cache.
//!
//! A mirror passes up a message for a shard, and waits for its answer before the next one. What comes
//! meanwhile all the same is left out: a mirror cannot have more under way here than one message a shard.

use std::sync::mpsc::{Receiver, Sender, channel};

use kelix_fabric::tcp::FeedLink;
use kelix_wire::feed::{FEED_HINTS_MAX, FeedPart};

use crate::shard_thread::{Command, ShardHandle};

/// Messages of a mirror to the shards.
pub(super) struct Uses {
    tell: Sender<(usize, u64)>,
    told: Receiver<(usize, u64)>,
    is_under_way: Vec<bool>,
}

impl Uses {
    /// To so many shards.
    pub fn new(shards: usize) -> Uses {
        let (tell, told) = channel();
        Uses { tell, told, is_under_way: vec![false; shards] }
    }

    /// Hands a message to its shard. `false`: it is none.
    pub fn take(&mut self, shards: &[ShardHandle], shard: usize, words: &[u64]) -> bool {
        let (Some(handle), Some(is_under_way)) = (shards.get(shard), self.is_under_way.get_mut(shard)) else {
            return false;
        };
        if words.len() > FEED_HINTS_MAX {
            return false;
        }
        if !std::mem::replace(is_under_way, true) {
            handle.command(Command::Used { shard, locations: words.to_vec(), tell: self.tell.clone() });
        }
        true
    }

    /// Passes the shards' answers on, unless so many bytes wait to be sent already.
    pub fn answer(&mut self, link: &mut FeedLink, unsent_max: usize) {
        if link.unsent() > unsent_max {
            return;
        }
        while let Ok((shard, epoch)) = self.told.try_recv() {
            self.is_under_way[shard] = false;
            link.push(FeedPart::UseEpoch as u32, shard as u8, &[epoch]);
        }
    }
}
