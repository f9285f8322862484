//! What the register says: the members of a cluster, and which of them may do what.
//!
//! 1. The primary is in sync, and whoever is in sync is a member: asserted by [`View::check`].
//! 2. A boot number stands once among the members and once among those in sync: asserted there, too.
//! 3. All that one view says changes at once, so a term belongs to one primary.
//!
//! A view is checked before it is proposed and again when it is read: what comes from outside is never
//! trusted.

use std::collections::BTreeSet;

use kelix_types::{Error, ErrorKind, Incarnation, Result};
use serde::{Deserialize, Serialize};

use crate::OPERATION;

/// How many members a view may have. A view of that many, each with names as long as they may be, fits into
/// [`crate::DOCUMENT_BYTES_MAX`].
pub const MEMBERS_MAX: usize = 64;
/// How long the name of a node may be, in characters.
pub const NAME_CHARACTERS_MAX: usize = 64;
/// How long an address may be, in characters: the longest name of a host, a colon and a port.
pub const ADDRESS_CHARACTERS_MAX: usize = 253 + 1 + 5;

/// A node that takes part, as it is now: a restarted process is another member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The name of the node, which is the same after a restart. At most [`NAME_CHARACTERS_MAX`] characters,
    /// none of them a control character.
    pub node: String,
    /// The random number of this instance of the node.
    pub boot: u64,
    /// The process, as its own host numbers processes.
    pub pid: u32,
    /// HOST:PORT at which the member is fed, and at which it serves when it is primary. ASCII without spaces.
    pub address: String,
    /// What a member has that waits for a primary, and none is there; or with which it was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<Offer>,
}

/// What a node has on its disk, which has started where no primary answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// The boot number of the instance of the node whose log that is; 0: there is none.
    pub of: u64,
    /// How many records it has, of all shards.
    pub records: u64,
}

/// What the logs of a cluster's nodes are good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durable {
    /// Nodes keep no logs: all is lost when all end that are in sync.
    #[default]
    Off,
    /// What counts is on their disks a moment later.
    Lazy,
    /// What counts is on the disks of all that are in sync.
    Commit,
}

impl Durable {
    fn is_off(&self) -> bool {
        *self == Durable::Off
    }

    /// Its name, as users say it.
    pub fn name(self) -> &'static str {
        match self {
            Durable::Off => "off",
            Durable::Lazy => "lazy",
            Durable::Commit => "commit",
        }
    }
}

/// One state of a cluster: who is primary, who is in sync, in which term.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// The number of the view: 1, 2, 3 and so on.
    pub number: u64,
    /// The random number of the cluster, the same for all its life.
    pub cluster: u64,
    /// The term of the primary, raised with each promotion: the incarnations of its images begin there. From
    /// 1 to [`Incarnation::TERM_MAX`].
    pub term: u64,
    /// The boot number of the primary.
    pub primary: u64,
    /// The boot numbers of those that hold every committed write, the primary among them.
    pub in_sync: Vec<u64>,
    /// How many members have to be in sync for writes to be accepted. From 1 to [`MEMBERS_MAX`].
    pub min_in_sync: usize,
    /// What their logs are good for.
    #[serde(default, skip_serializing_if = "Durable::is_off")]
    pub durable: Durable,
    /// The boot number of the member in sync to which the primary is to hand over; or of one that waits,
    /// which is to go on with what it offers, since an operator accepts that more is lost.
    pub successor: Option<u64>,
    /// The boot numbers of members that are to end in good order: a primary hands over before.
    pub leaving: Vec<u64>,
    /// The members that this view names, and others that take part. At most [`MEMBERS_MAX`].
    pub members: Vec<Member>,
    /// A random number by which whoever proposed the view recognises it after an unknown outcome.
    pub proposal: u64,
}

impl Member {
    /// What is wrong with the member, if anything is.
    fn defect(&self) -> Option<String> {
        let name_characters = self.node.chars().count();
        if name_characters == 0 || name_characters > NAME_CHARACTERS_MAX {
            return Some(format!("the name of a node has 1 to {NAME_CHARACTERS_MAX} characters"));
        }
        if self.node.chars().any(char::is_control) {
            return Some(format!("the name {:?} of a node has a control character", self.node));
        }
        if self.address.len() > ADDRESS_CHARACTERS_MAX {
            return Some(format!("the address of node {} is too long", self.node));
        }
        let is_host = |host: &str| !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic());
        let address = self.address.rsplit_once(':');
        if !address.is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok()) {
            return Some(format!("the address {:?} of node {} is not HOST:PORT", self.address, self.node));
        }
        None
    }
}

impl View {
    /// The member with this boot number.
    pub fn member(&self, boot: u64) -> Option<&Member> {
        self.members.iter().find(|member| member.boot == boot)
    }

    /// Whether the member with this boot number is in sync. The primary is.
    pub fn is_in_sync(&self, boot: u64) -> bool {
        self.in_sync.contains(&boot)
    }

    /// The primary, which a view that [`View::check`] accepts always has.
    pub fn primary_member(&self) -> Option<&Member> {
        self.member(self.primary)
    }

    /// Whether a member that waits for a primary is to go on with what it offers, where no member lives that
    /// is in sync. What counted is on every disk that was in sync with `commit`. With `lazy` any may lack
    /// what was written last, so all have to be there, and the one goes on that has most. And whichever an
    /// operator has named.
    pub fn recovers(&self, own: u64) -> bool {
        let offer = |member: &Member| Some((self.waiting(member)?, member.boot));
        let Some((offered, _)) = self.member(own).and_then(offer) else { return false };
        if self.successor == Some(own) {
            return true;
        }
        match self.durable {
            Durable::Off => false,
            Durable::Commit => self.was_in_sync(offered),
            Durable::Lazy => {
                let offers = self.members.iter().filter_map(offer).filter(|(of, _)| self.was_in_sync(*of));
                let best = offers.max_by_key(|(offer, boot)| (offer.records, *boot));
                self.missing().next().is_none() && best.is_some_and(|(_, boot)| boot == own)
            }
        }
    }

    /// What a member offers that waits for a primary.
    pub fn waiting(&self, member: &Member) -> Option<Offer> {
        member.offer.filter(|_| !self.is_in_sync(member.boot))
    }

    /// Whether what is offered is the log of a member in sync.
    pub fn was_in_sync(&self, offer: Offer) -> bool {
        self.has_log_in_sync(offer.of)
    }

    /// Whether the log that an instance of a node has kept is that of a member in sync.
    pub fn has_log_in_sync(&self, of: u64) -> bool {
        self.in_sync.iter().filter_map(|boot| self.member(*boot)).any(|member| is_log_of(member, of))
    }

    /// Members in sync whose logs nobody offers who waits for a primary.
    pub fn missing(&self) -> impl Iterator<Item = &Member> {
        let is_offered = |member: &Member| {
            let mut offers = self.members.iter().filter_map(|of| self.waiting(of));
            offers.any(|offer| is_log_of(member, offer.of))
        };
        let in_sync = self.in_sync.iter().filter_map(|boot| self.member(*boot));
        in_sync.filter(move |member| !is_offered(member))
    }

    /// The member that an operator would have go on who accepts a loss: one that was in sync, before others,
    /// and then that which offers most. `None`: nobody waits.
    pub fn best_offer(&self) -> Option<(&Member, Offer)> {
        let waits = self.members.iter().filter_map(|member| Some((member, self.waiting(member)?)));
        waits.max_by_key(|(member, offer)| (self.was_in_sync(*offer), offer.records, member.boot))
    }

    /// The view that begins a cluster: a member is primary, and alone.
    pub fn first(cluster: u64, term: u64, primary: Member) -> View {
        View {
            number: 1,
            cluster,
            term,
            primary: primary.boot,
            in_sync: vec![primary.boot],
            min_in_sync: 1,
            durable: Durable::Off,
            successor: None,
            leaving: Vec::new(),
            members: vec![primary],
            proposal: 0,
        }
    }

    /// A copy with the next number and a proposal of its own, for the caller to change and to propose.
    /// `proposal` is a new random number.
    pub fn next(&self, proposal: u64) -> View {
        // A view that was checked is below the last number.
        View { number: self.number.saturating_add(1), proposal, ..self.clone() }
    }

    /// Takes a member out of those in sync, who has to be another one than the primary.
    pub fn take_out_of_sync(&mut self, boot: u64) {
        self.in_sync.retain(|of| *of != boot);
        self.successor = self.successor.filter(|of| *of != boot);
    }

    /// Names no members but those that `stays` says, who have to have those in sync among them.
    pub fn retain_members(&mut self, stays: impl FnMut(&Member) -> bool) {
        self.members.retain(stays);
        let members = &self.members;
        let is_member = |boot: &u64| members.iter().any(|member| member.boot == *boot);
        self.leaving.retain(is_member);
        self.successor = self.successor.filter(is_member);
    }

    /// An [`ErrorKind::InvalidArgument`] that says what is wrong, if the view contradicts itself or breaks a
    /// limit.
    pub fn check(&self) -> Result<()> {
        let refuse = |defect| Err(Error::new(ErrorKind::InvalidArgument, OPERATION, defect));
        self.defect().map_or(Ok(()), refuse)
    }

    /// What is wrong with the view, if anything is.
    pub(crate) fn defect(&self) -> Option<String> {
        if self.number == 0 || self.number == u64::MAX {
            return Some(format!("no view has the number {}", self.number));
        }
        if self.term == 0 || self.term > Incarnation::TERM_MAX {
            return Some(format!("view {} has the term {}, which there is not", self.number, self.term));
        }
        if self.members.len() > MEMBERS_MAX || self.min_in_sync > MEMBERS_MAX {
            return Some(format!("a cluster has at most {MEMBERS_MAX} members"));
        }
        if self.min_in_sync == 0 {
            return Some(format!("no member has to be in sync in view {}", self.number));
        }
        if let Some(defect) = self.members.iter().find_map(Member::defect) {
            return Some(defect);
        }
        if let Some(boot) = repeated(self.members.iter().map(|member| member.boot)) {
            return Some(format!("boot {boot} is two members of view {}", self.number));
        }
        if let Some(boot) = repeated(self.in_sync.iter().copied()) {
            return Some(format!("boot {boot} is twice in sync in view {}", self.number));
        }
        if let Some(boot) = self.in_sync.iter().find(|boot| self.member(**boot).is_none()) {
            return Some(format!("boot {boot} is in sync in view {} but is no member", self.number));
        }
        if let Some(boot) = repeated(self.leaving.iter().copied()) {
            return Some(format!("boot {boot} is to leave twice in view {}", self.number));
        }
        if let Some(boot) = self.leaving.iter().find(|boot| self.member(**boot).is_none()) {
            return Some(format!("boot {boot} is to leave in view {} but is no member", self.number));
        }
        let offers = |boot: u64| self.member(boot).is_some_and(|member| member.offer.is_some());
        let may_follow = |boot: u64| (self.is_in_sync(boot) || offers(boot)) && boot != self.primary;
        if let Some(boot) = self.successor.filter(|boot| !may_follow(*boot)) {
            return Some(format!(
                "boot {boot} is to go on in view {} but is no replica in sync",
                self.number
            ));
        }
        if !self.is_in_sync(self.primary) {
            return Some(format!(
                "the primary of view {}, boot {}, is not in sync",
                self.number, self.primary
            ));
        }
        None
    }
}

/// Whether a log that an instance of a node has kept is that of a member: the member wrote the log, or was
/// chosen with the log, and may have ended before its own number stood there.
fn is_log_of(member: &Member, of: u64) -> bool {
    member.boot == of || of != 0 && member.offer.is_some_and(|offer| offer.of == of)
}

/// The first number that comes twice.
fn repeated(numbers: impl Iterator<Item = u64>) -> Option<u64> {
    let mut seen = BTreeSet::new();
    numbers.into_iter().find(|number| !seen.insert(*number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{member, view};

    /// Changes a good view, and returns what the check says.
    fn refusal(change: impl FnOnce(&mut View)) -> String {
        let mut view = view(3, 1);
        view.check().unwrap();
        change(&mut view);
        let error = view.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.context().to_string()
    }

    #[test]
    fn helpers_find_members() {
        let view = view(3, 1);
        assert_eq!(view.member(102).map(|member| member.node.as_str()), Some("2"));
        assert!(view.member(104).is_none());
        assert_eq!(view.primary_member().map(|member| member.boot), Some(101));
        assert!(view.is_in_sync(101) && view.is_in_sync(102) && !view.is_in_sync(103));
    }

    #[test]
    fn next_has_the_next_number_and_its_own_proposal() {
        let view = view(3, 1);
        let next = view.next(9);
        assert_eq!((next.number, next.proposal), (4, 9));
        assert_eq!(View { number: 3, proposal: 1, ..next }, view);
    }

    /// With logs that count any disk that was in sync will do; with others all have to be there, and the one
    /// with most goes on; and an operator may name any that waits.
    #[test]
    fn whoever_recovers_has_what_counted() {
        let offering = |durable, offers: &[(u64, u64, u64)]| {
            let mut view = View { durable, ..view(3, 1) };
            let waits = |(boot, of, records): &(u64, u64, u64)| {
                let offer = Some(Offer { of: *of, records: *records });
                Member { offer, ..member(*boot) }
            };
            view.members.extend(offers.iter().map(waits));
            view.check().unwrap();
            view
        };
        let recovers = |view: &View| -> Vec<u64> {
            view.members.iter().map(|of| of.boot).filter(|boot| view.recovers(*boot)).collect()
        };
        // Of 101 to 103 the third is not in sync.
        let all = [(201, 101, 70), (202, 102, 90), (203, 103, 99)];
        assert!(recovers(&offering(Durable::Off, &all)).is_empty());
        assert_eq!(recovers(&offering(Durable::Commit, &all)), [201, 202]);
        assert_eq!(recovers(&offering(Durable::Lazy, &all)), [202]);
        assert!(recovers(&offering(Durable::Lazy, &all[..1])).is_empty(), "102 may have more");
        assert_eq!(recovers(&offering(Durable::Lazy, &[(201, 101, 7), (202, 102, 7)])), [202], "as many");
        let mut named = offering(Durable::Lazy, &all[..1]);
        assert_eq!(named.best_offer().map(|(member, _)| member.boot), Some(201));
        named.successor = Some(201);
        named.check().unwrap();
        assert_eq!(recovers(&named), [201]);
        assert_eq!(offering(Durable::Off, &[(203, 0, 0)]).best_offer().map(|(of, _)| of.boot), Some(203));
        assert!(view(3, 1).best_offer().is_none());
        // 201 was chosen with the log of 101, and has ended before its number stood in that log.
        for durable in [Durable::Commit, Durable::Lazy] {
            let mut chosen = offering(durable, &[(201, 101, 70), (301, 101, 70), (302, 102, 90)]);
            (chosen.primary, chosen.in_sync) = (201, vec![201]);
            chosen.check().unwrap();
            assert_eq!(recovers(&chosen), [301], "{durable:?}");
            assert_eq!(chosen.best_offer().map(|(of, _)| of.boot), Some(301));
            chosen.members.retain(|of| of.boot != 301);
            assert_eq!(chosen.missing().map(|of| of.boot).collect::<Vec<_>>(), [201]);
        }
    }

    #[test]
    fn contradictions_are_refused() {
        assert!(refusal(|view| view.primary = 103).contains("is not in sync"));
        assert!(refusal(|view| view.in_sync.clear()).contains("is not in sync"));
        assert!(refusal(|view| view.in_sync.push(104)).contains("is no member"));
        assert!(refusal(|view| view.in_sync.push(101)).contains("twice in sync"));
        assert!(refusal(|view| view.members.push(member(102))).contains("two members"));
        assert!(refusal(|view| view.leaving.push(104)).contains("is no member"));
        assert!(refusal(|view| view.leaving = vec![103, 103]).contains("to leave twice"));
        for boot in [101, 103, 104] {
            assert!(refusal(|view| view.successor = Some(boot)).contains("no replica in sync"), "{boot}");
        }
    }

    #[test]
    fn who_is_taken_out_is_named_nowhere() {
        let mut view = view(3, 1);
        (view.successor, view.leaving) = (Some(102), vec![101, 102]);
        view.check().unwrap();
        view.take_out_of_sync(102);
        view.retain_members(|member| member.boot != 102);
        view.check().unwrap();
        assert_eq!((view.successor, &view.leaving[..], &view.in_sync[..]), (None, &[101][..], &[101][..]));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert!(refusal(|view| view.number = 0).contains("no view has the number 0"));
        assert!(refusal(|view| view.number = u64::MAX).contains("no view has the number"));
        assert!(refusal(|view| view.term = 0).contains("the term 0"));
        assert!(refusal(|view| view.term = Incarnation::TERM_MAX + 1).contains("the term"));
        assert!(refusal(|view| view.min_in_sync = MEMBERS_MAX + 1).contains("at most"));
        assert!(refusal(|view| view.min_in_sync = 0).contains("no member has to be"));
        let many =
            |view: &mut View| view.members = (0..=MEMBERS_MAX as u64).map(|n| member(101 + n)).collect();
        assert!(refusal(many).contains("at most"));
    }

    #[test]
    fn names_out_of_bounds_are_refused() {
        assert!(refusal(|view| view.members[0].node.clear()).contains("characters"));
        assert!(refusal(|view| view.members[0].node = "x".repeat(65)).contains("characters"));
        assert!(refusal(|view| view.members[0].node = "a\u{1b}[2J".into()).contains("control character"));
        let mut longest = view(3, 1);
        longest.members[0].node = "\u{10348}".repeat(NAME_CHARACTERS_MAX);
        longest.check().unwrap();
    }

    #[test]
    fn addresses_are_host_and_port() {
        for address in ["", "host", ":7000", "host:", "host:65536", "a b:1", "h\n:1", "h\u{f6}st:1"] {
            assert!(
                refusal(|view| view.members[1].address = address.into()).contains("HOST:PORT"),
                "{address}"
            );
        }
        assert!(
            refusal(|view| view.members[1].address = format!("{}:1", "h".repeat(300))).contains("too long")
        );
        let mut good = view(3, 1);
        good.members[1].address = "[::1]:7000".into();
        good.check().unwrap();
    }
}
