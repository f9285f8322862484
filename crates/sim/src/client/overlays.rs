//! Somebody who writes into a loaded table by its name, with keys of its own, while generations come and go:
//! what it wrote last it finds, in whichever generation.

use kelix::{Effect, Error, ErrorKind, NewItem};
use kelix_types::mark;

use super::datasets::{OVERLAYS, own_key};
use super::{Client, Connection};
use crate::scheduler;

/// Keys of each table.
const KEYS: u64 = 6;

/// What a key may have: one of these; nothing is known of it if there are none.
type Possible = Vec<Option<u64>>;

impl Client {
    /// Writes and looks.
    pub fn write_overlays(mut self) {
        let mut connection: Option<Connection> = None;
        let mut possible: Vec<Possible> = Vec::new();
        let mut term = 0;
        while *self.stage.remaining.borrow() > 0 {
            if connection.is_none() {
                connection = self.connect();
            }
            if let Some(open) = connection.as_mut() {
                if open.term != term {
                    // Another server has nothing of what was written.
                    term = open.term;
                    possible = vec![vec![None]; KEYS as usize * OVERLAYS.len()];
                }
                let outcome = self.write_or_look(open, &mut possible);
                self.count(open);
                if !outcome.map_or_else(|error| self.goes_on_writing(&error), |()| true) {
                    connection = None;
                }
            }
            let lease_ns = self.lease_ns();
            scheduler::sleep(self.random.below(lease_ns / 8) + 1);
        }
    }

    fn goes_on_writing(&mut self, error: &Error) -> bool {
        match error.kind() {
            // Loads came one after the other for as long as it tried, or nothing has been loaded yet.
            ErrorKind::Frozen | ErrorKind::ViewExpired | ErrorKind::NoSuchTable => true,
            _ => self.goes_on(error),
        }
    }

    fn write_or_look(&mut self, open: &mut Connection, possible: &mut [Possible]) -> Result<(), Error> {
        let which = self.random.below(OVERLAYS.len() as u64);
        let number = self.random.below(KEYS);
        let slot = &mut possible[(which * KEYS + number) as usize];
        let table = open.session.table(OVERLAYS[which as usize])?;
        let key = own_key(self.number, number);
        match self.random.below(5) {
            0 => {
                let outcome = open.session.delete(table, &key);
                if let Ok(was_there) = outcome {
                    if !slot.is_empty() && !slot.iter().any(|value| value.is_some() == was_there) {
                        self.find(format!(
                            "a delete in an overlay says {was_there} where {slot:?} was written"
                        ));
                    }
                }
                note(slot, None, outcome.map(drop))
            }
            1 | 2 => {
                let value = self.stage.loads.borrow().len() as u64 * 1000 + self.random.below(1000);
                let mut item = NewItem::new();
                item = item.bytes("mine", &value.to_be_bytes());
                let outcome = open.session.put_item(table, &key, &item);
                note(slot, Some(value), outcome.map(drop))
            }
            _ => {
                let item = open.session.get(table, &key)?;
                let found = item.map(|item| {
                    let bytes = item.bytes("mine").expect("it is its own");
                    u64::from_be_bytes(bytes.try_into().expect("8 bytes"))
                });
                if !slot.is_empty() && !slot.contains(&found) {
                    self.find(format!("{found:?} is found in an overlay where {slot:?} was written"));
                }
                mark!("overlay read");
                Ok(())
            }
        }
    }
}

/// Notes what became of a write.
fn note(slot: &mut Possible, value: Option<u64>, outcome: Result<(), Error>) -> Result<(), Error> {
    match &outcome {
        // What may still come of an earlier write nobody knows.
        _ if slot.is_empty() => {}
        Ok(()) => *slot = vec![value],
        Err(error) if error.effect() == Effect::No => {}
        Err(_) => slot.clear(),
    }
    outcome
}
