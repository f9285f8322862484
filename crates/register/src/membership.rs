//! What a node knows of its cluster's view, and how it changes that.

use std::sync::{Mutex, MutexGuard};

use kelix_types::{Result, locks};

use crate::{Member, Register, Swapped, View};

/// A member: one node from its start on until its process begins anew.
pub struct Membership {
    /// The number that tells this member from every other, before and after it.
    pub boot: u64,
    /// Where numbers of proposals come from.
    random: fn() -> Result<u64>,
    /// Held while the register is asked, which may take as long as the register likes.
    register: Mutex<Box<dyn Register>>,
    /// The newest view that was seen.
    seen: Mutex<Option<View>>,
}

impl Membership {
    /// A member of the cluster of a register, with a number of its own out of these random ones.
    pub fn new(register: Box<dyn Register>, random: fn() -> Result<u64>) -> Result<Membership> {
        let register = Mutex::new(register);
        // 0 is nobody's.
        Ok(Membership { boot: random()?.max(1), random, register, seen: Mutex::default() })
    }

    fn register(&self) -> MutexGuard<'_, Box<dyn Register>> {
        locks::lock(&self.register)
    }

    /// The newest view as far as it is known here. Never waits for the register.
    pub fn view(&self) -> Option<View> {
        locks::lock(&self.seen).clone()
    }

    fn note(&self, view: &Option<View>) {
        locks::lock(&self.seen).clone_from(view);
    }

    /// The newest view.
    pub fn look(&self) -> Result<Option<View>> {
        self.look_in(&mut self.register())
    }

    fn look_in(&self, register: &mut Box<dyn Register>) -> Result<Option<View>> {
        let known = self.view();
        if register.is_current(known.as_ref().map_or(0, |view| view.number))? {
            return Ok(known);
        }
        let found = register.read()?;
        self.note(&found);
        Ok(found)
    }

    /// Whether nobody lives who is in sync in a view that is still in force: what was written last is gone.
    /// One that was put into the view meanwhile may go on.
    pub fn all_have_ended(&self, view: &View, lives: impl Fn(u64) -> bool) -> Result<bool> {
        let one_lives = view.in_sync.iter().any(|boot| lives(*boot));
        Ok(!one_lives && self.look()?.is_some_and(|now| now.number == view.number))
    }

    /// Names this member before it is put among those in sync, or with what it offers where there is no
    /// primary.
    pub fn join(&self, own: &Member) -> Result<()> {
        let joined = self.change(|view| {
            let view = view.filter(|view| view.member(own.boot) != Some(own))?;
            let mut next = view.next(0);
            let stays = |member: &Member| member.node != own.node || view.is_in_sync(member.boot);
            next.retain_members(|member| member.boot != own.boot && stays(member));
            next.members.push(own.clone());
            next.successor =
                next.successor.or(view.successor.filter(|boot| *boot == own.boot && own.offer.is_some()));
            Some(next)
        });
        joined.map(drop)
    }

    /// Has this member be primary with what it offers, alone, in this term or a later one, where the view
    /// `seen` says that it may. `None`: that view is not in force any more.
    pub fn recover(&self, seen: &View, term: u64) -> Result<Option<View>> {
        let (is_chosen, view) = self.change(|view| {
            let view = view.filter(|view| view.number == seen.number && view.recovers(self.boot))?;
            let mut next = view.next(0);
            (next.primary, next.in_sync, next.successor) = (self.boot, vec![self.boot], None);
            // What it offers stays: the log has that number until this member has written its own there.
            // Those who were in sync are none of this cluster any more; others may wait as this one did.
            next.retain_members(|of| of.boot == self.boot || !view.is_in_sync(of.boot));
            next.term = term.max(view.term + 1);
            Some(next)
        })?;
        Ok(view.filter(|_| is_chosen))
    }

    /// Has this member be primary, in this term or a later one, in the place of the one that the view `seen`
    /// names. `None`: that view is not in force any more, and what was true then may not be. The view `seen`
    /// may be one that this member has put in without hearing so.
    pub fn succeed(&self, seen: &View, term: u64) -> Result<Option<View>> {
        if seen.primary == self.boot {
            return Ok(self.look()?.filter(|view| view.primary == self.boot));
        }
        let (is_chosen, view) = self.change(|view| {
            let view = view.filter(|view| view.number == seen.number)?;
            let mut next = view.next(0);
            next.primary = self.boot;
            next.take_out_of_sync(view.primary);
            next.successor = None;
            next.term = term.max(view.term + 1);
            Some(next)
        })?;
        Ok(view.filter(|_| is_chosen))
    }

    /// Asks the primary to let this member go.
    pub fn ask_to_leave(&self) -> Result<()> {
        let asked = self.change(|view| {
            let view = view.filter(|view| view.member(self.boot).is_some())?;
            let mut next = view.next(0);
            next.leaving.push(self.boot);
            (!view.leaving.contains(&self.boot)).then_some(next)
        });
        asked.map(drop)
    }

    /// Takes this member out of the view, which is not in sync: nobody has to reckon with it any more, or can
    /// put it among those in sync. That it ever was primary has to be over where it could be read or asked.
    /// `false`: it is in sync, and stays.
    pub fn leave(&self) -> Result<bool> {
        let (_, view) = self.change(|view| {
            let view = view.filter(|view| view.member(self.boot).is_some() && !view.is_in_sync(self.boot))?;
            let mut next = view.next(0);
            next.retain_members(|member| member.boot != self.boot);
            Some(next)
        })?;
        Ok(view.is_none_or(|view| view.member(self.boot).is_none()))
    }

    /// Puts a member among those in sync with this one, which is primary. Whether it is there then.
    pub fn list(&self, boot: u64) -> Result<bool> {
        let changed = self.change(|view| {
            let view = view.filter(|view| view.primary == self.boot && !view.is_in_sync(boot))?;
            // Whoever follows has joined the members before.
            let listed = view.member(boot).filter(|_| !view.leaving.contains(&boot))?;
            let mut next = view.next(0);
            next.in_sync.push(boot);
            // Of a member of the same node before it that was in sync when this one joined.
            next.retain_members(|member| {
                member.node != listed.node || view.is_in_sync(member.boot) || member.boot == boot
            });
            Some(next)
        });
        let is_in = |view: View| view.primary == self.boot && view.is_in_sync(boot);
        changed.map(|(_, view)| view.is_some_and(is_in))
    }

    /// Takes a member out of those in sync with this one. `false`: this one is not primary any more.
    pub fn unlist(&self, boot: u64) -> Result<bool> {
        let changed = self.change(|view| {
            let view = view.filter(|view| view.primary == self.boot && view.is_in_sync(boot))?;
            let mut next = view.next(0);
            next.take_out_of_sync(boot);
            Some(next)
        });
        changed.map(|(_, view)| view.is_some_and(|view| view.primary == self.boot))
    }

    /// Changes the view as `change` says, which is asked again if somebody else was quicker, and says `None` if
    /// there is nothing to be changed any more. Returns whether that was done, and the view in force.
    pub fn change(&self, change: impl Fn(Option<&View>) -> Option<View>) -> Result<(bool, Option<View>)> {
        let mut register = self.register();
        let mut known = self.look_in(&mut register)?;
        loop {
            let expected = known.as_ref().map_or(0, |view| view.number);
            let Some(mut next) = change(known.as_ref()) else { return Ok((false, known)) };
            next.number = expected + 1;
            next.proposal = (self.random)()?;
            match register.swap(expected, &next) {
                Ok(Swapped::Done) => {
                    let next = Some(next);
                    self.note(&next);
                    return Ok((true, next));
                }
                Ok(Swapped::Lost) => known = self.look_in(&mut register)?,
                Err(error) => {
                    // The outcome may be unknown; whoever proposed a view recognises it.
                    let found = self.look_in(&mut register)?;
                    if found.as_ref().is_some_and(|view| view.proposal == next.proposal) {
                        return Ok((true, found));
                    }
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryRegister;
    use crate::conformance::member;

    /// A cluster whose primary is this member, with another one in sync.
    fn primary() -> (Membership, Member) {
        let mut register = MemoryRegister::default();
        let membership = Membership::new(Box::new(register.clone()), || Ok(101)).unwrap();
        let other = member(102);
        let mut view = View { proposal: 1, ..View::first(77, 5, member(101)) };
        view.members.push(other.clone());
        view.in_sync.push(other.boot);
        assert_eq!(register.swap(0, &view).unwrap(), Swapped::Done);
        (membership, other)
    }

    /// A process that has ended is in sync until the primary takes that one out, and its node's next process
    /// is another member, which is not. The one that has ended is no member any more when the next one is in
    /// sync, even if it was told to leave.
    #[test]
    fn the_next_process_of_a_node_is_another_member() {
        let (membership, before) = primary();
        let next = Member { boot: 302, ..before.clone() };
        membership.change(|view| Some(View { leaving: vec![before.boot], ..view?.next(0) })).unwrap();
        membership.join(&next).unwrap();
        let view = membership.look().unwrap().unwrap();
        assert_eq!(view.in_sync, [101, before.boot], "the next one has nothing yet");
        assert!(view.member(before.boot).is_some() && view.member(next.boot).is_some());
        assert!(membership.unlist(before.boot).unwrap() && membership.list(next.boot).unwrap());
        let view = membership.look().unwrap().unwrap();
        assert_eq!((view.in_sync, view.leaving), (vec![101, next.boot], Vec::new()));
        let members: Vec<u64> = view.members.iter().map(|member| member.boot).collect();
        assert_eq!(members, [101, next.boot]);
    }
}
