//! The graph as arrays in this process: what any other way to it is checked against, and compared with.

use std::ops::ControlFlow;

use kelix_apps::Failure;

use crate::edges::Edges;
use crate::names::name;
use crate::search::Ground;

/// A search on arrays.
pub struct Arrays<'e> {
    edges: &'e Edges,
    here: Vec<u32>,
    next: Vec<u32>,
}

impl<'e> Arrays<'e> {
    /// Of this graph.
    pub fn new(edges: &'e Edges) -> Arrays<'e> {
        Arrays { edges, here: Vec::new(), next: Vec::new() }
    }
}

impl Ground for Arrays<'_> {
    fn begin(&mut self, user: u32) -> Result<(), Failure> {
        self.next.clear();
        self.next.push(user);
        Ok(())
    }

    fn arrive(&mut self, mut see: impl FnMut(u32, &[u8]) -> ControlFlow<()>) -> Result<(), Failure> {
        std::mem::swap(&mut self.here, &mut self.next);
        self.next.clear();
        for user in &self.here {
            if see(*user, name(*user).as_bytes()).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn look_around(
        &mut self,
        mut wanted: impl FnMut(u32, u32) -> ControlFlow<(), bool>,
    ) -> Result<(), Failure> {
        // By rounds of lists, as they stand in a store.
        let mut left: Vec<(u32, &[u32])> =
            self.here.iter().map(|user| (*user, self.edges.from(*user))).collect();
        while !left.is_empty() {
            for (user, edges) in &mut left {
                let (list, more) = edges.split_at(edges.len().min(crate::load::LIST_LINKS));
                *edges = more;
                for to in list {
                    match wanted(*user, *to) {
                        ControlFlow::Continue(true) => self.next.push(*to),
                        ControlFlow::Continue(false) => {}
                        ControlFlow::Break(()) => return Ok(()),
                    }
                }
            }
            left.retain(|(_, edges)| !edges.is_empty());
        }
        Ok(())
    }
}

/// The plainest breadth-first search there is: how many users are how far from one.
pub fn distances(edges: &Edges, from: u32) -> Vec<u32> {
    let mut distance = vec![u32::MAX; edges.vertices() as usize];
    distance[from as usize] = 0;
    let mut queue = Vec::with_capacity(edges.vertices() as usize);
    queue.push(from);
    let mut at = 0;
    while at < queue.len() {
        let user = queue[at];
        at += 1;
        let next = distance[user as usize] + 1;
        for to in edges.from(user) {
            if distance[*to as usize] == u32::MAX {
                distance[*to as usize] = next;
                queue.push(*to);
            }
        }
    }
    distance
}
