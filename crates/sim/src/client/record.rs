//! How clients write down what they did.

use kelix::{Effect, Error, Version};
use kelix_types::mark;

use super::Client;
use crate::history::{Action, Operation, ValueId};
use crate::scheduler;
use crate::value;

/// No item outlives its end by more, when all harm is over.
const LATE_NS_MAX: u64 = 10_000_000;

/// Each term begins with an empty store, so its keys are keys of their own.
fn key_of(term: u64, key: u64) -> u64 {
    term << 32 | key
}

impl Client {
    /// Writes a read down.
    pub(super) fn record(&self, term: u64, key: u64, called_ns: u64, found: Option<ValueId>) {
        let position = self.begin(term, key, called_ns, Action::Get { found });
        self.finish(position, Action::Get { found });
    }

    /// Writes down that a write was called; its outcome is unknown as yet, and stays so if the client is
    /// killed.
    pub(super) fn begin(&self, term: u64, key: u64, called_ns: u64, action: Action) -> usize {
        let mut history = self.stage.history.borrow_mut();
        let key = key_of(term, key);
        history.push(Some(Operation { client: self.number, key, called_ns, returned_ns: None, action }));
        history.len() - 1
    }

    /// Writes down that a value may end from a time on, by a clock that may be fast: a delete if it still
    /// stands there, whose outcome nobody is told.
    pub(super) fn begin_end(&self, term: u64, key: u64, ends_ns: u64, id: ValueId) {
        let (now_ns, plan) = (scheduler::now_ns(), &self.stage.plan);
        let early_ns = (ends_ns - now_ns) * plan.drift_ppm_max / 1_000_000;
        // A server that goes on with what another one has has another clock, since the beginning.
        let of_others_ns = if plan.goes_on() { now_ns / 1_000_000 * 2 * plan.drift_ppm_max } else { 0 };
        let end = Action::CompareAndSet { expected: Some(id), value: None, outcome: None };
        self.begin(term, key, ends_ns.saturating_sub(early_ns + of_others_ns).max(now_ns), end);
    }

    /// Looks whether a value that was found at the end of a run should have ended long before.
    pub(super) fn look_at_end(&self, id: ValueId) {
        let ended_ns = self.stage.ends.borrow().get(&id).copied();
        // A server that goes on with what another one has has another clock.
        let plan = &self.stage.plan;
        let drift_ppm = if plan.goes_on() { 2 * plan.drift_ppm_max } else { 0 };
        let late_ns_max = LATE_NS_MAX + scheduler::now_ns() / 1_000_000 * drift_ppm;
        if let Some(ended_ns) = ended_ns.filter(|ended_ns| ended_ns + late_ns_max < scheduler::now_ns()) {
            self.find(format!("{id:?} is there at {}, and ended at {ended_ns}", scheduler::now_ns()));
        }
    }

    /// Writes down what came of it.
    pub(super) fn finish(&self, position: usize, action: Action) {
        mark!("operation answered");
        let mut history = self.stage.history.borrow_mut();
        let operation = history[position].as_mut().expect("begun and not taken back");
        let term = operation.key >> 32;
        let successor = self.stage.terms.borrow().get(&(term + 1)).copied();
        if let Some(since_ns) = successor.filter(|since_ns| *since_ns < operation.called_ns) {
            self.find(format!(
                "an answer of term {term} to what was called at {}, after term {} began at {since_ns}: {action:?}",
                operation.called_ns,
                term + 1
            ));
        }
        operation.returned_ns = Some(scheduler::now_ns());
        operation.action = action;
    }

    /// A write failed. Takes it back if it certainly had no effect.
    pub(super) fn fail(&self, position: usize, error: &Error) {
        if error.effect() == Effect::Unknown {
            mark!("outcome unknown");
        } else {
            self.stage.history.borrow_mut()[position] = None;
        }
    }

    /// Something cannot be.
    pub(super) fn find(&self, what: String) {
        self.stage.findings.borrow_mut().push(format!("client {}: {what}", self.number));
    }

    /// The value of some bytes that were read; a finding if there is none.
    pub(super) fn decode(&self, bytes: &[u8]) -> ValueId {
        value::decode(bytes).unwrap_or_else(|what| {
            self.find(what);
            ValueId(0)
        })
    }

    /// A version of a key belongs to one value, and a value has one version, whatever server tells it.
    pub(super) fn learn(&self, key: u64, version: Version, id: ValueId) {
        let before = self.stage.versions.borrow_mut().insert((key, version), id);
        if let Some(before) = before.filter(|before| *before != id) {
            self.find(format!("{version:?} is that of {id:?}, and was that of {before:?}"));
        }
        let before = self.stage.versions_of.borrow_mut().insert(id, version);
        if let Some(before) = before.filter(|before| *before != version) {
            self.find(format!("{id:?} has {version:?}, and had {before:?}"));
        }
    }
}
