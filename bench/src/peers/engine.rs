//! What stores records under measurement: a peer, or us.

use crate::workload::{Batch, Records};

/// Records of a batch while they are loaded.
const LOAD: u64 = 64;
/// Batches that are loaded at once.
const LOADS: u64 = 256;

/// An error of somebody else's, as text.
pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Something that stores records, with its clients.
pub(super) trait Engine {
    /// How it is called in notes.
    fn name(&self) -> &'static str;

    /// The batches that `run` does from now on, one after the other, and again from the first. Each client
    /// begins at another.
    fn prepare(&mut self, batches: &[Batch]);

    /// Every client does so many batches and verifies every answer; returns how many operations these were.
    /// Together: the next ones are sent before the first is answered.
    fn run(&mut self, batches: usize, together: bool) -> Result<u64, String>;

    /// Gets a record; which one follows, as its value says.
    fn follow(&mut self, record: u64) -> Result<u64, String>;

    /// How busy the server's threads were while batches were done together, since this was asked last, as a
    /// share of the time. `None`: it has none, or is ours.
    fn take_busy(&mut self) -> Option<f64> {
        None
    }

    /// What an operation has cost on the way since this was asked last, in words. `None`: nobody counts it.
    fn take_cost(&mut self) -> Option<String> {
        None
    }

    /// Lets its threads run on all cores, for good.
    fn unpin(&mut self) {}

    /// Memory that it has from the system, in bytes.
    fn memory_bytes(&mut self) -> u64;
}

/// A client of an engine.
pub(super) trait Client: Send {
    /// Does so many batches and returns how many operations these were.
    fn run(&mut self, batches: usize, together: bool) -> Result<u64, String>;
}

/// Lets every client do so many batches, each in a thread of its own if there are several.
pub(super) fn run_all(clients: &mut [impl Client], batches: usize, together: bool) -> Result<u64, String> {
    let (first, others) = clients.split_first_mut().expect("a client");
    std::thread::scope(|scope| {
        let run = |client| scope.spawn(move || Client::run(client, batches, together));
        let threads: Vec<_> = others.iter_mut().map(run).collect();
        let mut operations = first.run(batches, together)?;
        for thread in threads {
            operations += thread.join().expect("a client does not panic")?;
        }
        Ok(operations)
    })
}

/// Where the `index`-th of some clients begins among so many batches.
pub(super) fn start_of(index: usize, clients: usize, batches: usize) -> usize {
    index * batches / clients
}

/// Puts all records, in batches.
pub(super) fn load(engine: &mut dyn Engine, clients: usize, records: Records) -> Result<(), String> {
    let batch =
        |first: u64| Batch { gets: Vec::new(), puts: (first..records.count.min(first + LOAD)).collect() };
    // Values of some size fill little memory at a time.
    let at_once = (LOADS * 32 / records.value_bytes as u64).max(1) * LOAD;
    for first in (0..records.count).step_by(at_once as usize) {
        let end = records.count.min(first + at_once);
        let batches: Vec<Batch> = (first..end).step_by(LOAD as usize).map(batch).collect();
        engine.prepare(&batches);
        engine.run(batches.len().div_ceil(clients), true)?;
    }
    Ok(())
}
