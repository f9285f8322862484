//! The graph by keys, in any store of values.

use std::ops::ControlFlow;

use kelix_apps::{Failure, Keyed, Keys};

use crate::search::Ground;

/// A search that asks for one key after the other, or for as many at once as the store was made for.
pub struct ByKey<K> {
    store: K,
    here: Vec<u32>,
    next: Vec<u32>,
    /// Those here of whom the list with number `round` is to be read.
    left: Vec<u32>,
    round: usize,
    keys: Keys,
}

impl<K: Keyed> ByKey<K> {
    /// In this store.
    pub fn new(store: K) -> ByKey<K> {
        let (here, next, left) = (Vec::new(), Vec::new(), Vec::new());
        ByKey { store, here, next, left, round: 0, keys: Keys::new() }
    }
}

/// What a value says first, and the rest.
fn flagged(value: &[u8]) -> (bool, &[u8]) {
    value.split_first().map_or((false, &[]), |(flag, rest)| (*flag == 1, rest))
}

impl<K: Keyed> Ground for ByKey<K> {
    fn begin(&mut self, user: u32) -> Result<(), Failure> {
        self.next.clear();
        self.next.push(user);
        Ok(())
    }

    fn arrive(&mut self, mut see: impl FnMut(u32, &[u8]) -> ControlFlow<()>) -> Result<(), Failure> {
        std::mem::swap(&mut self.here, &mut self.next);
        self.next.clear();
        self.left.clear();
        self.round = 0;
        self.keys.clear();
        self.here.iter().for_each(|user| self.keys.push(format_args!("u{user}")));
        let mut gone = None;
        self.store.get(&self.keys, |index, value| {
            let user = self.here[index];
            let Some(value) = value else {
                gone = Some(user);
                return ControlFlow::Break(());
            };
            let (has_list, name) = flagged(value);
            if has_list {
                self.left.push(user);
            }
            see(user, name)
        })?;
        gone.map_or(Ok(()), |user| Err(Failure::not_there(format!("there is no user {user}"))))
    }

    fn look_around(
        &mut self,
        mut wanted: impl FnMut(u32, u32) -> ControlFlow<(), bool>,
    ) -> Result<(), Failure> {
        let mut enough = false;
        while !self.left.is_empty() && !enough {
            let here = std::mem::take(&mut self.left);
            self.keys.clear();
            here.iter().for_each(|user| self.keys.push(format_args!("l{user}.{}", self.round)));
            self.round += 1;
            self.store.get(&self.keys, |index, value| {
                let (has_next, users) = flagged(value.unwrap_or(&[]));
                if has_next {
                    self.left.push(here[index]);
                }
                for user in users.chunks_exact(4) {
                    let user = u32::from_le_bytes([user[0], user[1], user[2], user[3]]);
                    match wanted(here[index], user) {
                        ControlFlow::Continue(true) => self.next.push(user),
                        ControlFlow::Continue(false) => {}
                        ControlFlow::Break(()) => {
                            enough = true;
                            return ControlFlow::Break(());
                        }
                    }
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    }
}
