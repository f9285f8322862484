//! What clients do.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use kelix::{
    CompareAndSet, Error, ErrorKind, Frontier, Item, NewItem, Outcome, Path, Rows, Scan, Ticket, Values,
};
use kelix_types::mark;

use super::{BULK_KEYS, COLD_KEYS, Client, Connection, LARGE_KEYS, SEASON, Seen};
use crate::history::{Action, CompareOutcome, ValueId};
use crate::plan::Theme;
use crate::scheduler;
use crate::value::{self, Shape};

/// The name of links.
const NEXT: &str = "next";

fn bytes_of(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

impl Client {
    /// Does one thing.
    pub(super) fn act(&mut self, open: &mut Connection, seen: &mut Seen) -> Result<(), Error> {
        // Whoever writes waits where a primary is cut off, and some are to read on in its memory.
        if self.stage.clocks.len() > 1 && self.number % 3 == 2 {
            return self.read(open, seen);
        }
        let paths = [Path::Auto, Path::Index, Path::Index, Path::Pointer, Path::Pointer, Path::Message];
        open.session.set_path(paths[self.random.below(6) as usize]);
        let plan = self.stage.plan;
        match plan.theme {
            Theme::Memory if self.random.once_in(8) => return self.fill_or_empty(open),
            Theme::Large if self.random.once_in(25) => return self.act_large(open, seen),
            _ => {}
        }
        if plan.table.is_ordered() && self.random.once_in(12) {
            return self.scan(open);
        }
        let key = self.key();
        if key >= plan.hot_keys {
            // Cold keys come for a season and go for the next, one after the other, so that few are left.
            let (remaining, coming) = self.season();
            let following = |count| {
                let key = move |index| COLD_KEYS.0 + (remaining * count + index) % COLD_KEYS.1;
                (0..count).map(key)
            };
            return match self.random.below(8) {
                0..=1 => self.get(open, key, seen).map(|_| ()),
                2..=4 if coming => self.put(open, key, seen),
                2..=4 => self.delete(open, COLD_KEYS.0 + remaining % COLD_KEYS.1),
                _ if coming => self.put_many(open, following(8).map(|key| (key, self.new_id())).collect()),
                _ => {
                    let delete = |key| (key, Action::Delete { was_there: None });
                    self.submit_all(open, following(8).map(delete).collect())
                }
            };
        }
        match self.random.below(16) {
            0..=4 => self.get_and_follow(open, key, seen),
            5 => self.get_into(open, key),
            6..=7 => self.get_many(open),
            8..=9 => self.put(open, key, seen),
            10 => {
                let values = self.some_keys().into_iter().map(|key| (key, self.new_id())).collect();
                let wanted = if self.random.once_in(2) { self.some_keys() } else { Vec::new() };
                self.get_and_put(open, &wanted, values)
            }
            11 => self.delete(open, key),
            12 => self.compare_and_delete(open, key, seen),
            13 => self.submit_some(open),
            _ => self.compare_and_set(open, key, seen),
        }
    }

    /// Reads something on a mirror, from keys that are wanted all the time.
    pub(super) fn read_mirror(&mut self, open: &mut Connection, seen: &mut Seen) -> Result<(), Error> {
        mark!("read on a mirror");
        self.read(open, seen)
    }

    /// Reads something of keys that are wanted all the time.
    fn read(&mut self, open: &mut Connection, seen: &mut Seen) -> Result<(), Error> {
        let paths = [Path::Auto, Path::Index, Path::Pointer, Path::Message];
        open.session.set_path(paths[self.random.below(4) as usize]);
        let key = self.random.below(self.stage.plan.hot_keys);
        match self.random.below(8) {
            0..=1 if self.stage.plan.table.is_ordered() => self.scan(open),
            0..=2 => self.get_and_follow(open, key, seen),
            3..=4 => self.get_into(open, key),
            5 => self.get_many(open),
            _ => self.get(open, key, seen).map(|_| ()),
        }
    }

    /// Scans some keys. Each of them is a read of its own within the time of the scan: one that does not come
    /// was absent at some moment of it.
    fn scan(&mut self, open: &mut Connection) -> Result<(), Error> {
        let (first, count) = match self.random.below(6) < self.stage.plan.cold_in_6 {
            true => (COLD_KEYS.0 + self.random.below(COLD_KEYS.1), 1 + self.random.below(100)),
            false => (0, self.stage.plan.hot_keys),
        };
        let mut scan = Scan::all().range(&bytes_of(first)..&bytes_of(first + count));
        if self.random.once_in(3) {
            scan = scan.backwards();
        }
        let called_ns = scheduler::now_ns();
        let mut found: HashMap<u64, ValueId> = HashMap::new();
        let key_of = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap_or_default());
        let mut came = Vec::new();
        if self.random.once_in(4) {
            let counted = open.session.count(open.table, &scan)?;
            if counted > count {
                self.find(format!("{counted} of {count} keys are counted"));
            }
            return Ok(());
        }
        if self.random.once_in(2) {
            let mut rows = Rows::new();
            open.session.scan_into(open.table, &scan, &mut rows)?;
            for row in 0..rows.len() {
                let (key, id) = (key_of(rows.key(row)), self.decode(rows.value(row)));
                self.learn(key, rows.version(row), id);
                came.push((key, id));
            }
        } else {
            for item in open.session.scan(open.table, &scan)? {
                let item = item?;
                let key = key_of(item.key());
                came.push((key, self.look_at(&item, key)));
            }
        }
        mark!("keys scanned");
        let in_order = |pair: &[(u64, ValueId)]| {
            (pair[0].0 < pair[1].0) != format!("{scan:?}").contains("backwards: true")
        };
        if !came.windows(2).all(in_order) {
            self.find(format!("a scan brought its keys in the order {came:?}"));
        }
        found.extend(came);
        for key in first..first + count {
            self.record(open.term, key, called_ns, found.remove(&key));
        }
        if !found.is_empty() {
            self.find(format!("a scan of {count} keys from {first} on brought {found:?}"));
        }
        Ok(())
    }

    /// Where the run is, and whether keys come or go.
    fn season(&self) -> (u64, bool) {
        let remaining = *self.stage.remaining.borrow();
        (remaining, remaining / SEASON % 2 == 1)
    }

    fn key(&mut self) -> u64 {
        let plan = self.stage.plan;
        if self.random.below(6) < plan.cold_in_6 {
            COLD_KEYS.0 + self.random.below(COLD_KEYS.1)
        } else {
            self.random.below(plan.hot_keys)
        }
    }

    /// Keys of a batch, some of them up to four times.
    fn some_keys(&mut self) -> Vec<u64> {
        let mut keys: Vec<u64> = (0..8).map(|_| self.key()).collect();
        keys.sort_unstable();
        let again = |index: &usize| *index < 4 || keys[*index] != keys[*index - 4];
        (0..keys.len()).filter(again).map(|index| keys[index]).collect()
    }

    pub(super) fn new_value(&self, shape: Shape) -> ValueId {
        let mut values = self.stage.values.borrow_mut();
        *values += 1;
        shape.id(*values)
    }

    fn new_id(&self) -> ValueId {
        self.new_value(self.stage.plan.shape)
    }

    /// A value that fills memory.
    pub(super) fn new_bulk(&self, other: bool) -> ValueId {
        self.new_value(if other { Shape::OtherBulk } else { Shape::Bulk })
    }

    /// Fills memory for a season and empties it for the next. The values of each other year are of another
    /// size, so that the memory of the ones before is of no use until its segment is emptied.
    fn fill_or_empty(&mut self, open: &mut Connection) -> Result<(), Error> {
        let (remaining, coming) = self.season();
        let first = self.random.below(BULK_KEYS.1);
        if coming {
            let other = remaining / SEASON % 4 == 1;
            let keys = (0..4).map(|index| BULK_KEYS.0 + (first + index) % BULK_KEYS.1);
            let values = keys.map(|key| (key, self.new_bulk(other))).collect();
            return self.put_many(open, values);
        }
        let keys = (0..24).map(|index| BULK_KEYS.0 + (first + index) % BULK_KEYS.1);
        let deletes = keys.map(|key| (key, Action::Delete { was_there: None })).collect();
        self.submit_all(open, deletes)
    }

    /// Writes and reads values that are sent in pieces.
    fn act_large(&mut self, open: &mut Connection, seen: &mut Seen) -> Result<(), Error> {
        let key = LARGE_KEYS.0 + self.random.below(LARGE_KEYS.1);
        match self.random.below(9) {
            0 => self.get_into(open, key),
            1 | 8 => self.get_part(open, key),
            2..=4 => {
                let found = self.get(open, key, seen)?;
                if found.is_some_and(|(_, id)| Shape::of(id) == Some(Shape::Runs)) {
                    mark!("large value read");
                }
                Ok(())
            }
            5 if self.random.once_in(3) => self.delete(open, key),
            5..=6 => self.put_value(open, key, self.new_value(Shape::Runs), seen),
            _ => self.put_value(open, key, self.new_value(Shape::Pieces), seen),
        }
    }

    /// Gets an item and says which value it has.
    pub(super) fn get(
        &self,
        open: &mut Connection,
        key: u64,
        seen: &mut Seen,
    ) -> Result<Option<(Item, ValueId)>, Error> {
        let called_ns = scheduler::now_ns();
        let item = open.session.get(open.table, &bytes_of(key))?;
        let found = item.map(|item| {
            let id = self.look_at(&item, key);
            seen.insert(key, (item.version(), id));
            (item, id)
        });
        self.record(open.term, key, called_ns, found.as_ref().map(|(_, id)| *id));
        Ok(found)
    }

    /// Checks an item that was read under a key; its value.
    fn look_at(&self, item: &Item, key: u64) -> ValueId {
        let id = self.decode(item.value());
        if item.key() != bytes_of(key) {
            self.find(format!("an item of another key than {key}"));
        }
        let links = value::links(id, self.stage.plan.hot_keys).len();
        if item.link_count(NEXT) != links {
            self.find(format!("{} links of {id:?}, which was written with {links}", item.link_count(NEXT)));
        }
        self.learn(key, item.version(), id);
        id
    }

    fn get_and_follow(&mut self, open: &mut Connection, key: u64, seen: &mut Seen) -> Result<(), Error> {
        let Some((item, id)) = self.get(open, key, seen)? else { return Ok(()) };
        let targets = value::links(id, self.stage.plan.hot_keys);
        if targets.is_empty() {
            return Ok(());
        }
        mark!("link followed");
        let called_ns = scheduler::now_ns();
        if self.random.once_in(8) {
            let other = self.random.below(self.stage.plan.hot_keys);
            if self.get(open, other, seen)?.is_some() {
                mark!("false claim about a link");
                kelix::sim::claim_falsely(&mut open.session, &item, NEXT)?;
            }
        }
        let items = match self.random.below(4) {
            0 => vec![open.session.follow(&item, NEXT)?],
            1 => {
                let mut at = item.clone();
                let found = open.session.follow_into(&mut at, NEXT)?;
                vec![Some(at).filter(|_| found)]
            }
            2 => {
                let (mut frontier, mut items) = (Frontier::new(), Vec::new());
                frontier.add_links(&item, NEXT, |_| true);
                open.session.visit(&frontier, |_, item| {
                    items.push(item.cloned());
                    ControlFlow::Continue(())
                })?;
                items
            }
            _ => open.session.follow_all(&item, NEXT)?,
        };
        for (target, item) in targets.iter().zip(items) {
            let found = item.map(|item| self.look_at(&item, *target));
            self.record(open.term, *target, called_ns, found);
        }
        Ok(())
    }

    fn get_into(&self, open: &mut Connection, key: u64) -> Result<(), Error> {
        let called_ns = scheduler::now_ns();
        let mut buffer = vec![0; if key < LARGE_KEYS.0 { 4 << 10 } else { 2 << 20 }];
        let found = open.session.get_into(open.table, &bytes_of(key), &mut buffer)?;
        let found = found.map(|(length, version)| {
            let id = self.decode(&buffer[..length]);
            self.learn(key, version, id);
            id
        });
        self.record(open.term, key, called_ns, found);
        Ok(())
    }

    /// Reads a part of a value, which is to be that of the value of its version.
    fn get_part(&mut self, open: &mut Connection, key: u64) -> Result<(), Error> {
        let called_ns = scheduler::now_ns();
        let most = if key < LARGE_KEYS.0 { 100 } else { 1 << 20 };
        let from = self.random.below(most);
        let mut buffer = vec![0; self.random.below(most) as usize];
        let part = open.session.get_range_into(open.table, &bytes_of(key), from, &mut buffer)?;
        let Some(part) = part else {
            self.record(open.term, key, called_ns, None);
            return Ok(());
        };
        let known = self.stage.versions.borrow().get(&(key, part.version)).copied();
        let Some(id) = known else { return Ok(()) };
        mark!("part of a value read");
        let written = value::encode(id);
        let start = written.len().min(from as usize);
        if (part.value_bytes, &buffer[..part.copied])
            != (written.len(), &written[start..written.len().min(start + buffer.len())])
        {
            self.find(format!("{} bytes from {from} on are not those of {id:?}", part.copied));
        }
        self.record(open.term, key, called_ns, Some(id));
        Ok(())
    }

    fn get_many(&mut self, open: &mut Connection) -> Result<(), Error> {
        let keys = self.some_keys();
        let bytes: Vec<[u8; 8]> = keys.iter().map(|key| bytes_of(*key)).collect();
        let slices: Vec<&[u8]> = bytes.iter().map(|key| &key[..]).collect();
        let called_ns = scheduler::now_ns();
        let found: Vec<Option<ValueId>> = if self.random.once_in(2) {
            let mut values = Values::new();
            open.session.multi_get_into(open.table, &slices, &mut values)?;
            (0..keys.len()).map(|index| values.get(index).map(|bytes| self.decode(bytes))).collect()
        } else {
            let items = open.session.multi_get(open.table, &slices)?;
            let items = items.into_iter().zip(&keys);
            items.map(|(item, key)| item.map(|item| self.look_at(&item, *key))).collect()
        };
        for (key, found) in keys.iter().zip(found) {
            self.record(open.term, *key, called_ns, found);
        }
        Ok(())
    }

    fn put(&mut self, open: &mut Connection, key: u64, seen: &mut Seen) -> Result<(), Error> {
        let linked = self.stage.plan.theme == Theme::Links && !self.random.once_in(3);
        let id = if linked { self.new_value(Shape::Linked) } else { self.new_id() };
        self.put_value(open, key, id, seen)
    }

    /// Puts a value, one in a few only for a while.
    fn put_value(
        &mut self,
        open: &mut Connection,
        key: u64,
        id: ValueId,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        let links = value::links(id, self.stage.plan.hot_keys);
        let may_end = self.random.once_in(8) && self.stage.plan.table.has_items();
        let time_ns = may_end.then(|| self.random.below(20 * self.stage.plan.kind.epoch_ns));
        let action = Action::Put { value: id };
        let called_ns = scheduler::now_ns();
        let position = self.begin(open.term, key, called_ns, action.clone());
        if let Some(time_ns) = time_ns {
            self.begin_end(open.term, key, called_ns + time_ns, id);
        }
        let outcome = if links.is_empty() && time_ns.is_none() {
            open.session.put(open.table, &bytes_of(key), &value::encode(id))
        } else {
            let mut item = NewItem::new();
            item = item.bytes("", &value::encode(id));
            for target in links.iter() {
                item = item.link(NEXT, open.table, &bytes_of(*target));
            }
            if let Some(time_ns) = time_ns {
                item = item.expires_in(Duration::from_nanos(time_ns));
            }
            open.session.put_item(open.table, &bytes_of(key), &item)
        };
        let version = outcome.inspect_err(|error| self.fail(position, error))?;
        self.learn(key, version, id);
        seen.insert(key, (version, id));
        self.finish(position, action);
        if let Some(time_ns) = time_ns {
            self.stage.ends.borrow_mut().insert(id, scheduler::now_ns() + time_ns);
        }
        Ok(())
    }

    /// Puts a batch.
    pub(super) fn put_many(&self, open: &mut Connection, values: Vec<(u64, ValueId)>) -> Result<(), Error> {
        self.get_and_put(open, &[], values)
    }

    /// Gets and puts a batch.
    fn get_and_put(
        &self,
        open: &mut Connection,
        wanted: &[u64],
        values: Vec<(u64, ValueId)>,
    ) -> Result<(), Error> {
        let encoded: Vec<([u8; 8], Vec<u8>)> =
            values.iter().map(|(key, id)| (bytes_of(*key), value::encode(*id))).collect();
        let items: Vec<(&[u8], &[u8])> = encoded.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let bytes: Vec<[u8; 8]> = wanted.iter().map(|key| bytes_of(*key)).collect();
        let keys: Vec<&[u8]> = bytes.iter().map(|key| &key[..]).collect();
        let called_ns = scheduler::now_ns();
        let begin =
            |(key, id): &(u64, ValueId)| self.begin(open.term, *key, called_ns, Action::Put { value: *id });
        let positions: Vec<usize> = values.iter().map(begin).collect();
        let mut found = Values::new();
        let outcome = if wanted.is_empty() {
            open.session.multi_put(open.table, &items)
        } else {
            open.session.multi_get_put(open.table, &keys, &mut found, &items)
        };
        let results = match outcome {
            Ok(results) => results,
            Err(error) => {
                positions.iter().for_each(|position| self.fail(*position, &error));
                return Err(error);
            }
        };
        for (index, key) in wanted.iter().enumerate() {
            let found = found.get(index).map(|bytes| self.decode(bytes));
            self.record(open.term, *key, called_ns, found);
        }
        let mut last = Ok(());
        for ((result, position), (key, id)) in results.into_iter().zip(positions).zip(values) {
            match result {
                Ok(version) => {
                    self.learn(key, version, id);
                    self.finish(position, Action::Put { value: id });
                }
                Err(error) => {
                    self.fail(position, &error);
                    last = Err(error);
                }
            }
        }
        last
    }

    pub(super) fn delete(&self, open: &mut Connection, key: u64) -> Result<(), Error> {
        let action = |was_there| Action::Delete { was_there };
        let position = self.begin(open.term, key, scheduler::now_ns(), action(None));
        let outcome = open.session.delete(open.table, &bytes_of(key));
        let was_there = outcome.inspect_err(|error| self.fail(position, error))?;
        self.finish(position, action(Some(was_there)));
        Ok(())
    }

    fn compare_and_set(&self, open: &mut Connection, key: u64, seen: &mut Seen) -> Result<(), Error> {
        let (version, expected) = seen.get(&key).copied().unzip();
        let id = self.new_id();
        let action = |outcome| Action::CompareAndSet { expected, value: Some(id), outcome };
        let position = self.begin(open.term, key, scheduler::now_ns(), action(None));
        let bytes = value::encode(id);
        let outcome = open.session.compare_and_set(open.table, &bytes_of(key), version, &bytes);
        let outcome = outcome.inspect_err(|error| self.fail(position, error))?;
        if let CompareAndSet::Done(Some(version)) = outcome {
            self.learn(key, version, id);
            seen.insert(key, (version, id));
        }
        self.finish_comparison(position, action, outcome, (key, seen));
        Ok(())
    }

    fn compare_and_delete(&self, open: &mut Connection, key: u64, seen: &mut Seen) -> Result<(), Error> {
        let Some((version, id)) = seen.remove(&key) else { return self.delete(open, key) };
        let action = |outcome| Action::CompareAndSet { expected: Some(id), value: None, outcome };
        let position = self.begin(open.term, key, scheduler::now_ns(), action(None));
        let outcome = open.session.compare_and_delete(open.table, &bytes_of(key), version);
        let outcome = outcome.inspect_err(|error| self.fail(position, error))?;
        self.finish_comparison(position, action, outcome, (key, seen));
        Ok(())
    }

    fn finish_comparison(
        &self,
        position: usize,
        action: impl Fn(Option<CompareOutcome>) -> Action,
        outcome: CompareAndSet,
        (key, seen): (u64, &mut Seen),
    ) {
        match outcome {
            CompareAndSet::Done(_) => self.finish(position, action(Some(CompareOutcome::Done))),
            CompareAndSet::Mismatch(found) => {
                seen.remove(&key);
                self.finish(position, action(Some(CompareOutcome::Mismatch(None))));
                if let Some(found) = found {
                    // Whose version it is may be learnt later only.
                    self.stage.mismatches.borrow_mut().push((position, found));
                }
            }
        }
    }

    /// Submits gets, puts and deletes of several keys together.
    fn submit_some(&mut self, open: &mut Connection) -> Result<(), Error> {
        let keys = self.some_keys();
        let mut choose = |key| {
            let action = match self.random.below(4) {
                0 => Action::Put { value: self.new_id() },
                1 => Action::Delete { was_there: None },
                _ => Action::Get { found: None },
            };
            (key, action)
        };
        let actions = keys.into_iter().map(&mut choose).collect();
        self.submit_all(open, actions)
    }

    /// Submits operations, and polls until all have ended, asleep in between.
    fn submit_all(&self, open: &mut Connection, actions: Vec<(u64, Action)>) -> Result<(), Error> {
        let called_ns = scheduler::now_ns();
        let mut submitted: Vec<(Ticket, u64, Action, Option<usize>)> = Vec::new();
        for (key, action) in actions {
            let bytes = bytes_of(key);
            let position = (!matches!(action, Action::Get { .. }))
                .then(|| self.begin(open.term, key, called_ns, action.clone()));
            let ticket = match action {
                Action::Put { value } => open.session.submit_put(open.table, &bytes, &value::encode(value)),
                Action::Delete { .. } => open.session.submit_delete(open.table, &bytes),
                _ => open.session.submit_get(open.table, &bytes),
            };
            let ticket = ticket.inspect_err(|error| {
                position.into_iter().for_each(|position| self.fail(position, error));
            })?;
            submitted.push((ticket, key, action, position));
        }
        let mut last = Ok(());
        let mut completions = Vec::new();
        while open.session.outstanding() > 0 {
            if open.session.poll(&mut completions)? == 0 {
                open.line.bell().sleep(self.stage.plan.timeout_ns);
            }
            for completion in completions.drain(..) {
                let known = submitted.iter().find(|(ticket, ..)| *ticket == completion.ticket);
                let Some((_, key, action, position)) = known else {
                    self.find(format!("a completion of {:?}, which nobody submitted", completion.ticket));
                    continue;
                };
                match (completion.outcome, position) {
                    (Ok(outcome), _) => {
                        self.finish_submitted((open.term, called_ns), *key, action, *position, outcome);
                    }
                    (Err(error), position) => {
                        position.iter().for_each(|position| self.fail(*position, &error));
                        if error.kind() != ErrorKind::OutOfMemory {
                            last = Err(error);
                        }
                    }
                }
            }
        }
        last
    }

    fn finish_submitted(
        &self,
        (term, called_ns): (u64, u64),
        key: u64,
        action: &Action,
        position: Option<usize>,
        outcome: Outcome,
    ) {
        match (outcome, action, position) {
            (Outcome::Item(item), Action::Get { .. }, None) => {
                let found = item.map(|item| self.look_at(&item, key));
                self.record(term, key, called_ns, found);
            }
            (Outcome::Written(version), Action::Put { value }, Some(position)) => {
                self.learn(key, version, *value);
                self.finish(position, action.clone());
            }
            (Outcome::Deleted(was_there), Action::Delete { .. }, Some(position)) => {
                self.finish(position, Action::Delete { was_there: Some(was_there) });
            }
            (outcome, action, _) => self.find(format!("{action} ended as {outcome:?}")),
        }
    }
}
