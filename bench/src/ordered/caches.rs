//! Learned gets against clients of a tree that they read by themselves, with copies of its inner nodes: with
//! as many bytes of copies as our models take (`inner_cache`), and with copies of all inner nodes, of which
//! ours have a hundredth at most (`cache_ladder`). In shared memory we copy nothing, nor over TCP, where the
//! server's agent goes through the models; what READs would take there (as over verbs) stands beside.

use std::time::Duration;

use kelix::{FabricChoice, Path, SessionOptions, TableKind};

use super::keys::{self, shuffle};
use super::tree::{Asked, LOAD_ORDER, Reader, Tree, check, value_of};
use super::{SIZES, Size, best_size, better};
use crate::baselines::{Cost, Here, Remote, TreeServer};
use kelix_report::cores::{cores, pin, unpin};
use kelix_report::interleave::{compared, take_turns};
use kelix_report::report::Row;

/// Keys that are asked for in turn, and keys of one call.
const ASKED: usize = 1 << 17;
const CALL: usize = 1 << 12;
/// Bytes of an inner node of the tree: over TCP it is slower with 1024, and in shared memory no faster.
const NODE_BYTES: usize = 320;
/// What is wanted: against as many bytes, in shared memory and over TCP, and against all inner nodes.
const WANTED_SHM: f64 = 0.95;
const WANTED_TCP: f64 = 1.7;
const WANTED_LADDER: f64 = 0.8;

/// Gets the values of numbers, whose keys these are, and checks them.
trait Getter {
    fn get_many(&mut self, numbers: &[u64], keys: &[&[u8]]) -> Result<u64, String>;
    /// What all gets have cost.
    fn cost(&self) -> Cost;
}

/// A session, and how many gets it has done.
struct Ours(Reader, u64);

impl Getter for Ours {
    fn get_many(&mut self, numbers: &[u64], keys: &[&[u8]]) -> Result<u64, String> {
        self.1 += numbers.len() as u64;
        self.0.get_many(numbers, keys)
    }

    fn cost(&self) -> Cost {
        let cost = self.0.session.cost();
        Cost { gets: self.1, reads: cost.reads, read_bytes: cost.read_bytes }
    }
}

/// A client of the tree, and the values that it got last.
struct Theirs<C>(C, Vec<u64>);

fn check_all(numbers: &[u64], values: &[u64]) -> Result<u64, String> {
    for (number, value) in numbers.iter().zip(values) {
        check(*number, Some(&value.to_le_bytes()))?;
    }
    Ok(numbers.len() as u64)
}

impl Getter for Theirs<Here> {
    fn get_many(&mut self, numbers: &[u64], _: &[&[u8]]) -> Result<u64, String> {
        self.0.get_many(numbers, &mut self.1)?;
        check_all(numbers, &self.1)
    }

    fn cost(&self) -> Cost {
        self.0.cost
    }
}

impl Getter for Theirs<Remote> {
    fn get_many(&mut self, numbers: &[u64], _: &[&[u8]]) -> Result<u64, String> {
        self.0.get_many(numbers, &mut self.1)?;
        check_all(numbers, &self.1)
    }

    fn cost(&self) -> Cost {
        self.0.cost
    }
}

/// Who gets, where in the keys it is, and the size of its batches.
struct Side<'a> {
    getter: Box<dyn Getter>,
    asked: &'a Asked,
    keys: &'a [&'a [u8]],
    at: usize,
    size: usize,
    /// Bytes of its copies.
    copied: u64,
    /// What its gets had cost when it was measured.
    before: Cost,
}

impl Side<'_> {
    /// Gets the keys of one call.
    fn run(&mut self) -> Result<u64, String> {
        let (size, mut done) = (self.size, 0);
        for _ in 0..CALL / size {
            let range = self.at..self.at + size;
            done += self.getter.get_many(&self.asked.numbers[range.clone()], &self.keys[range])?;
            self.at = if self.at + 2 * size > self.keys.len() { 0 } else { self.at + size };
        }
        Ok(done)
    }

    /// Finds the size of a batch at which it is fastest.
    fn choose_size(&mut self, trial: Duration) -> Result<(), String> {
        self.size = best_size(trial, |size| {
            self.size = size;
            self.run()
        })?;
        Ok(())
    }

    /// What it has copied, and what a get has cost while it was measured.
    fn words(&self) -> String {
        let (now, before) = (self.getter.cost(), self.before);
        let gets = (now.gets - before.gets) as f64;
        let each = |now: u64, before: u64| (now - before) as f64 / gets;
        format!(
            "{} bytes copied, {:.2} READs and {:.0} bytes a get, batches of {}",
            self.copied,
            each(now.reads, before.reads),
            each(now.read_bytes, before.read_bytes),
            self.size
        )
    }
}

/// Runs sides in turn, each with the size of a batch at which it is fastest.
fn measure(size: &Size, sides: &mut [Side<'_>]) -> Result<Vec<Vec<f64>>, String> {
    let trial = Duration::from_millis(3) * size.rounds as u32;
    sides.iter_mut().try_for_each(|side| side.choose_size(trial))?;
    sides.iter_mut().for_each(|side| side.before = side.getter.cost());
    take_turns(size.rounds, sides.len(), |side| sides[side].run())
}

/// Both stores with the same keys and values, and what is asked of them.
struct Stores<'a> {
    tree: &'a Tree,
    server: TreeServer,
    asked: &'a Asked,
    keys: Vec<&'a [u8]>,
}

/// The rows.
pub(super) fn rows(size: &Size) -> Result<Vec<Row>, String> {
    let numbers = keys::numbers("noised", size.records);
    let mut order = numbers.clone();
    shuffle(&mut order, LOAD_ORDER);
    // Agents have the last core, and who asks the first.
    pin(cores() - 1);
    let started = Tree::start(TableKind::Inline, size.records)
        .and_then(|tree| Ok((tree, TreeServer::start(&order, |number| value_of(number, 0), NODE_BYTES)?)));
    unpin();
    let (mut tree, server) = started?;
    tree.put(&order)?;
    tree.settle()?;
    let asked = Asked::draw(&numbers, 45, ASKED);
    let stores = Stores { tree: &tree, server, asked: &asked, keys: asked.keys() };
    pin(0);
    let rows = stores.here(size).and_then(|mut rows| {
        rows.extend(stores.over_tcp(size)?);
        Ok(rows)
    });
    unpin();
    rows
}

impl Stores<'_> {
    fn side(&self, getter: Box<dyn Getter>, copied: u64) -> Side<'_> {
        let (asked, keys) = (self.asked, &self.keys[..]);
        Side { getter, asked, keys, at: 0, size: SIZES[0], copied, before: Cost::default() }
    }

    /// Bytes of the server's models and tables.
    fn model_bytes(&self) -> Result<u64, String> {
        let told = self.tree.statistics()?;
        let bytes = |name: &str| told[name].as_u64().ok_or(format!("statistics tell no {name}"));
        Ok(bytes("model_bytes")? + bytes("table_bytes")?)
    }

    fn ours(&self, fabric: FabricChoice) -> Result<Side<'_>, String> {
        self.ours_with(SessionOptions::default().fabric(fabric))
    }

    /// A session over TCP that READs leaves, with room for so many bytes of models.
    fn ours_by_models(&self, model_bytes: usize) -> Result<Side<'_>, String> {
        let options = SessionOptions::default().fabric(FabricChoice::Tcp).path(Path::Index);
        self.ours_with(options.model_bytes(model_bytes))
    }

    /// A session with these options, once it has copied what it will.
    fn ours_with(&self, options: SessionOptions) -> Result<Side<'_>, String> {
        let before = self.tree.copied_bytes()?;
        let mut side = self.side(Box::new(Ours(self.tree.reader_with(options)?, 0)), 0);
        // Often enough for it to tell the server.
        for _ in 0..self.keys.len() / CALL {
            side.run()?;
        }
        side.copied = self.tree.copied_bytes()? - before;
        Ok(side)
    }

    fn theirs_over_tcp(&self, cache_bytes: usize) -> Result<Side<'_>, String> {
        let mut client = self.server.remote(cache_bytes)?;
        client.get_many(&self.asked.numbers, &mut Vec::new())?;
        let copied = client.cache_bytes() as u64;
        Ok(self.side(Box::new(Theirs(client, Vec::new())), copied))
    }

    fn theirs_here(&self, cache_bytes: usize) -> Result<Side<'_>, String> {
        let mut client = self.server.here(cache_bytes)?;
        client.get_many(&self.asked.numbers, &mut Vec::new())?;
        let copied = client.cache_bytes() as u64;
        Ok(self.side(Box::new(Theirs(client, Vec::new())), copied))
    }

    /// In shared memory.
    fn here(&self, size: &Size) -> Result<Vec<Row>, String> {
        let models = self.model_bytes()?;
        let mut sides = [self.ours(FabricChoice::Shm)?, self.theirs_here(models as usize)?];
        let times = measure(size, &mut sides)?;
        let note = format!(
            "models and tables have {models} bytes; {}; theirs {}; ",
            sides[0].words(),
            sides[1].words()
        );
        let name = "gets by models / by a tree with as many bytes of inner nodes copied, in shared memory";
        let equal = better("inner_cache_shm", name, WANTED_SHM, compared(&times[0], &times[1]), &note);
        let mut sides = [self.ours(FabricChoice::Shm)?, self.theirs_here(self.server.inner_bytes())?];
        let times = measure(size, &mut sides)?;
        let note = format!("{}; theirs {}; {}; ", sides[0].words(), sides[1].words(), self.server.words());
        let name = "gets by models / by a tree with all inner nodes copied, in shared memory";
        let ladder = better("cache_ladder_shm", name, WANTED_LADDER, compared(&times[0], &times[1]), &note);
        Ok(vec![equal, ladder])
    }

    /// Over TCP.
    fn over_tcp(&self, size: &Size) -> Result<Vec<Row>, String> {
        let room = SessionOptions::default().model_bytes;
        let models = self.model_bytes()?;
        let mut sides = [
            self.ours(FabricChoice::Tcp)?,
            self.theirs_over_tcp(models as usize)?,
            self.ours_by_models(room)?,
        ];
        let times = measure(size, &mut sides)?;
        let ratio = |times: &[Vec<f64>], side: usize| compared(&times[side], &times[1]).ratio.recip();
        let note = format!(
            "models and tables have {models} bytes; {}; theirs {}; by READs {:.2} with {}; ",
            sides[0].words(),
            sides[1].words(),
            ratio(&times, 2),
            sides[2].words()
        );
        let name = "gets by models / by a tree with as many bytes of inner nodes copied, over TCP";
        let equal = better("inner_cache_tcp", name, WANTED_TCP, compared(&times[0], &times[1]), &note);
        let [found, _, all] = sides;
        let inner = self.server.inner_bytes();
        let mut sides = [
            found,
            self.theirs_over_tcp(inner)?,
            self.ours_by_models(inner / 100)?,
            self.ours_by_models(inner / 10)?,
            all,
        ];
        let times = measure(size, &mut sides)?;
        let rung = |side: usize| format!("{:.2} with {}", ratio(&times, side), sides[side].words());
        let note = format!(
            "{}; theirs {}; by READs with room for a hundredth {}; for a tenth {}; for all models {}; ",
            sides[0].words(),
            sides[1].words(),
            rung(2),
            rung(3),
            rung(4)
        );
        let name = "gets by models / by a tree with all inner nodes copied, over TCP";
        let ladder = better("cache_ladder_tcp", name, WANTED_LADDER, compared(&times[0], &times[1]), &note);
        Ok(vec![equal, ladder])
    }
}
