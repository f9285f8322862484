//! The graph by its links.

use std::ops::ControlFlow;

use kelix::{Frontier, Session, Table, View, Visit, Walk};
use kelix_apps::Failure;

use crate::load::{DATASET, LISTS, USERS, user_key, user_of};
use crate::search::Ground;

/// A search along links, all of it in the generation that was in force when it was made.
pub struct Links {
    session: Session,
    /// Keeps that generation.
    _view: View,
    users: Table,
    lists: Table,
    here: Frontier,
    next: Frontier,
    /// Lists of those who are here, and who they are.
    round: (Frontier, Vec<u32>),
    another: (Frontier, Vec<u32>),
}

impl Links {
    /// In the graph that this session's store has.
    pub fn new(mut session: Session) -> Result<Links, Failure> {
        let view = session.view(DATASET)?;
        let table = |name: &str| view.table(name).map_err(Failure::from);
        let (users, lists) = (table(USERS)?, table(LISTS)?);
        let round = || (Frontier::new(), Vec::new());
        let (here, next) = (Frontier::new(), Frontier::new());
        Ok(Links { session, _view: view, users, lists, here, next, round: round(), another: round() })
    }

    /// A failure if one of these users is not there.
    pub fn expect(&mut self, users: &[u32]) -> Result<(), Failure> {
        for user in users {
            if self.session.get(self.users, &user_key(*user))?.is_none() {
                return Err(Failure::not_there(format!("there is no user {user}")));
            }
        }
        Ok(())
    }

    /// The session, to ask what it has cost.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Searches depth-first along the links as they stand, from user to list to user, and shows each user.
    /// Returns how many that were.
    pub fn deep(&mut self, from: u32, limit: usize, mut see: impl FnMut(u32)) -> Result<usize, Failure> {
        let (lists, mut count) = (self.lists.id(), 0);
        let walk = Walk::along(&["list", "follows", "next"]).depth_first();
        let walked = self.session.walk(&[(self.users, &user_key(from))], &walk, |visited| {
            if visited.item.table() == lists {
                return ControlFlow::Continue(Visit::On);
            }
            if count == limit {
                return ControlFlow::Break(());
            }
            count += 1;
            see(user_of(visited.item.key()));
            ControlFlow::Continue(Visit::On)
        });
        walked?;
        Ok(count)
    }
}

impl Ground for Links {
    fn begin(&mut self, user: u32) -> Result<(), Failure> {
        self.next.clear();
        self.next.add(self.users, &user_key(user));
        Ok(())
    }

    fn arrive(&mut self, mut see: impl FnMut(u32, &[u8]) -> ControlFlow<()>) -> Result<(), Failure> {
        std::mem::swap(&mut self.here, &mut self.next);
        self.next.clear();
        let (lists, whose) = &mut self.round;
        lists.clear();
        whose.clear();
        let mut gone = None;
        let visited = self.session.visit(&self.here, |index, item| {
            let Some(item) = item else {
                gone = Some(index);
                return ControlFlow::Break(());
            };
            let user = user_of(item.key());
            if lists.add_links(item, "list", |_| true) > 0 {
                whose.push(user);
            }
            see(user, item.bytes("name").unwrap_or(&[]))
        });
        visited?;
        match gone {
            None => Ok(()),
            Some(index) => {
                Err(Failure::not_there(format!("there is no user {}", user_of(self.here.target(index).1))))
            }
        }
    }

    fn look_around(
        &mut self,
        mut wanted: impl FnMut(u32, u32) -> ControlFlow<(), bool>,
    ) -> Result<(), Failure> {
        let Links { session, next, round, another, .. } = self;
        let mut enough = false;
        while !round.0.is_empty() && !enough {
            another.0.clear();
            another.1.clear();
            let visited = session.visit(&round.0, |index, item| {
                let Some(item) = item else { return ControlFlow::Continue(()) };
                let who = round.1[index];
                next.add_links(item, "follows", |link| match wanted(who, user_of(link.key)) {
                    _ if enough => false,
                    ControlFlow::Continue(wanted) => wanted,
                    ControlFlow::Break(()) => {
                        enough = true;
                        false
                    }
                });
                if another.0.add_links(item, "next", |_| true) > 0 {
                    another.1.push(who);
                }
                if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            visited?;
            std::mem::swap(round, another);
        }
        Ok(())
    }
}
