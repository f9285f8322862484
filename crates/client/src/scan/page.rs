//! A page of a scan as an operation that waits for nothing.
//!
//! ```text
//! Reading -> Apart -> page                  memory within reach of loads; Reading again if nothing came
//!    | cannot be read so, or is out of reach
//!    v
//! Unsent -> Asked -> Apart -> page          Apart: items too large for a page, one after the other
//! ```
//!
//! Where memory is within reach of loads, the leaves and their items are read at once. Elsewhere the shard is
//! asked, for a way there and back: a plain scan READs leaves and then items there, and waits for each of
//! these rounds where it is (docs/design/0013, "What is left").

use std::collections::VecDeque;

use kelix_types::{Error, Result};
use kelix_wire::ScanArgument;

use super::{Cursor, Found, PAGE_KEYS, PausedScan, add_found};
use crate::catalogue::{BoundTable, Catalogue};
use crate::engine::{Buffers, Engine, Fetch, check_answer};
use crate::item::Item;
use crate::read::Landing;
use crate::transport::{PostError, RequestId};

/// Some of the items of a scan, in its order, which a submitted operation has brought.
#[derive(Clone, Debug)]
pub struct ScanPage {
    items: Vec<Item>,
    rest: Option<Box<PausedScan>>,
}

impl ScanPage {
    /// The items. There are none only where the scan has none left.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The items, and the scan of all that comes behind them. `None`: that was all.
    pub fn into_parts(self) -> (Vec<Item>, Option<PausedScan>) {
        (self.items, self.rest.map(|rest| *rest))
    }
}

/// A page under way. [`PageRead::advance`] takes it as far as it goes without waiting.
pub(crate) struct PageRead {
    scan: PausedScan,
    /// Tells the READs of its large items from those of others under way.
    tag: u32,
    stage: Stage,
    /// Items that are too large to come with the others: where in the page each belongs, and its key.
    apart: VecDeque<(usize, Vec<u8>)>,
}

enum Stage {
    /// Memory is to be read, if it is within reach of loads.
    Reading,
    /// The shard is to be asked, once there is room for the request.
    Unsent,
    Asked(RequestId),
    /// What came is in the page, but for large items, of which one may be under way.
    Apart(Option<Box<(Fetch, Landing)>>),
}

impl PageRead {
    /// The next page of a scan; what that has at hand already, if there is anything.
    pub fn new(scan: PausedScan) -> PageRead {
        let stage = if scan.page.is_empty() { Stage::Reading } else { Stage::Apart(None) };
        PageRead { scan, tag: 0, stage, apart: VecDeque::new() }
    }

    /// Gives it the tag of its READs.
    pub fn set_tag(&mut self, tag: u32) {
        self.tag = tag;
    }

    /// The tag of its READs.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// Whether a shard is to be asked: by [`PageRead::ask`].
    pub fn is_unsent(&self) -> bool {
        match &self.stage {
            Stage::Unsent => true,
            Stage::Apart(Some(large)) => large.0.is_unsent(),
            Stage::Reading | Stage::Asked(_) | Stage::Apart(None) => false,
        }
    }

    /// The shard that is asked next.
    pub fn shard(&self, engine: &Engine) -> usize {
        match &self.stage {
            Stage::Apart(Some(large)) => large.0.shard(),
            _ => self.scan.cursor.shard(engine),
        }
    }

    /// Asks the shard, if there is room for the request now.
    pub fn ask(&mut self, engine: &mut Engine) -> std::result::Result<(), PostError> {
        if let (Stage::Apart(Some(large)), Some((_, key))) = (&mut self.stage, self.apart.front()) {
            return large.0.ask(engine, key);
        }
        let (head, from, end) = self.scan.cursor.request(PAGE_KEYS, ScanArgument::default());
        let shard = self.shard(engine);
        self.stage = Stage::Asked(engine.try_post(shard, head, &from, &end)?);
        Ok(())
    }

    /// Goes on as far as that takes no waiting. `None`: something is under way, or a shard is to be asked.
    pub fn advance(
        &mut self,
        engine: &mut Engine,
        catalogue: &mut Catalogue,
        buffers: &mut Buffers,
    ) -> Result<Option<ScanPage>> {
        loop {
            match &self.stage {
                Stage::Unsent => return Ok(None),
                Stage::Reading if self.scan.cursor.is_over() => self.stage = Stage::Apart(None),
                Stage::Reading => {
                    engine.note_operation()?;
                    let read = engine.transport.reads_directly() && self.read(engine, catalogue, buffers)?;
                    self.stage = if read { Stage::Apart(None) } else { Stage::Unsent };
                }
                Stage::Asked(id) => {
                    let Some(answer) = engine.arrived(*id)? else { return Ok(None) };
                    self.stage = Stage::Apart(None);
                    check_answer(&answer)?;
                    self.scan.take(&mut self.apart, catalogue, |cursor, mut take| {
                        cursor.take_page(engine, &answer, &mut take)
                    })?;
                }
                Stage::Apart(_) => {
                    if !self.bring_apart(engine, catalogue)? {
                        return Ok(None);
                    }
                    if !self.scan.page.is_empty() || self.scan.cursor.is_over() {
                        return self.finish(engine, catalogue).map(Some);
                    }
                    self.stage = Stage::Reading;
                }
            }
        }
    }

    /// Reads what comes next from memory within reach of loads. `false`: the shard is to be asked.
    fn read(
        &mut self,
        engine: &mut Engine,
        catalogue: &mut Catalogue,
        buffers: &mut Buffers,
    ) -> Result<bool> {
        self.scan.take(&mut self.apart, catalogue, |cursor, mut take| {
            engine.read_pages(cursor, PAGE_KEYS, buffers, &mut take)
        })
    }

    /// Brings the items that are too large to come with the others, one after the other. `false`: one is
    /// under way.
    fn bring_apart(&mut self, engine: &mut Engine, catalogue: &mut Catalogue) -> Result<bool> {
        let PausedScan { cursor, generation, .. } = &self.scan;
        let (table, generation) = (cursor.table, *generation);
        while let Some((_, key)) = self.apart.front() {
            let Stage::Apart(large) = &mut self.stage else { unreachable!("a page that came") };
            let (fetch, landing) = &mut **large.get_or_insert_with(|| {
                let route = engine.transport.route(table, key);
                let known = engine.transport.known_pointer(route.0);
                Box::new((engine.begin_fetch(self.tag, (table, key), route, known), Landing::default()))
            });
            let Some(exists) = fetch.run(engine, key, landing)? else { return Ok(false) };
            let item = exists.then(|| catalogue.make_item(engine, landing, generation)).transpose()?;
            self.stage = Stage::Apart(None);
            self.place_apart(item);
        }
        Ok(true)
    }

    /// Puts the first of the large items in its place, unless it has gone meanwhile: then it does not count,
    /// and those behind it move up.
    fn place_apart(&mut self, item: Option<Item>) {
        let Some((at, _)) = self.apart.pop_front() else { return };
        match item {
            Some(item) => self.scan.page.insert(at, item),
            None => {
                self.scan.cursor.left = self.scan.cursor.left.saturating_add(1);
                self.apart.iter_mut().for_each(|(at, _)| *at -= 1);
            }
        }
    }

    fn finish(&mut self, engine: &mut Engine, catalogue: &mut Catalogue) -> Result<ScanPage> {
        let PausedScan { cursor, page, generation, life } = &mut self.scan;
        let items = page.drain(..).map(|item| catalogue.name_attributes(engine, item));
        let items = items.collect::<Result<_>>()?;
        catalogue.check_generation(engine, *generation)?;
        let rest = || PausedScan {
            cursor: cursor.clone(),
            page: VecDeque::new(),
            generation: *generation,
            life: *life,
        };
        Ok(ScanPage { items, rest: (!cursor.is_over()).then(|| Box::new(rest())) })
    }

    /// The page in place of a shard that has gone, whose last state is within reach of loads; `lost` says so.
    pub fn finish_alone(
        &mut self,
        engine: &mut Engine,
        catalogue: &mut Catalogue,
        buffers: &mut Buffers,
        lost: Error,
    ) -> Result<ScanPage> {
        self.scan.cursor.in_vain = 0;
        if self.scan.page.is_empty() && self.apart.is_empty() && !self.read(engine, catalogue, buffers)? {
            return Err(lost);
        }
        while let Some((_, key)) = self.apart.front() {
            let table = BoundTable { id: self.scan.cursor.table, generation: self.scan.generation };
            let item = catalogue.fetch_item(engine, &mut Landing::default(), table, key)?;
            self.place_apart(item);
        }
        self.finish(engine, catalogue)
    }

    /// Gives the page up.
    pub fn abandon(&mut self, engine: &mut Engine) {
        match &mut self.stage {
            Stage::Asked(id) => drop(engine.transport.abandon(*id)),
            Stage::Apart(Some(large)) => large.0.abandon(engine),
            Stage::Reading | Stage::Unsent | Stage::Apart(None) => {}
        }
    }
}

impl PausedScan {
    /// Has its page filled by what brings the next keys, and notes in `apart` what has to be fetched by
    /// itself.
    fn take<T>(
        &mut self,
        apart: &mut VecDeque<(usize, Vec<u8>)>,
        catalogue: &Catalogue,
        bring: impl FnOnce(&mut Cursor, &mut dyn FnMut(&mut Engine, Found<'_>) -> Result<u64>) -> Result<T>,
    ) -> Result<T> {
        let PausedScan { cursor, page, generation, .. } = self;
        let (table, generation) = (cursor.table, *generation);
        bring(cursor, &mut |engine, found| {
            let before = page.len();
            let of = (generation, engine.transport.handles());
            if let Some(key) = add_found(page, found, table, &catalogue.names.last, of) {
                apart.push_back((page.len() + apart.len(), key.to_vec()));
                return Ok(1);
            }
            Ok((page.len() - before) as u64)
        })
    }
}
