//! Copying the models of a table, where memory is out of reach of loads.

use kelix_image::{Span, header_word};
use kelix_index::{DirectoryRoot, TOP_HEADER_WORDS, Top, root_word};
use kelix_types::{Guardian, Location, Place, Result, TableId, mark};

use super::Engine;
use crate::ordered::{Items, ModelCopy, Origin};
use crate::transport::Path;

/// Words of a top model in one READ.
const PIECE_WORDS: usize = 1 << 16;
/// Changes when copies are laid out in another way, or what they are of.
const LAYOUT: u32 = 1;
/// Gets between two tries to copy models that could not be copied.
const GETS_A_TRY: u32 = 256;

impl Engine {
    /// Sees to it that gets of a table find its leaves, where nobody does so for them: there is a copy of its
    /// models then, as behind [`copy_models`](Self::copy_models).
    pub fn copy_models_for_gets(&mut self, table: TableId, shard: usize) -> Result<()> {
        if self.transport.finds(shard) { Ok(()) } else { self.copy_models(table, shard) }
    }

    /// Sees to it that there is a copy of the models of a table, if there can be one and it is of use.
    pub fn copy_models(&mut self, table: TableId, shard: usize) -> Result<()> {
        let budget = self.connection.options.model_bytes;
        if self.transport.path() == Path::Message || self.transport.reads_directly() || budget == 0 {
            return Ok(());
        }
        let ordered = &mut self.transport.reader(shard).ordered;
        if ordered.has_copy(table) || !ordered.may_try(table, GETS_A_TRY) {
            return Ok(());
        }
        if let Some(copy) = self.read_models(table, shard, budget)? {
            mark!("models copied");
            self.transport.reader(shard).ordered.keep_copy(table, copy);
        }
        Ok(())
    }

    /// READs the models of a table, from the header page on. `None`: there are none, or they changed
    /// meanwhile, or there is no room.
    fn read_models(&mut self, table: TableId, shard: usize, budget: usize) -> Result<Option<ModelCopy>> {
        let page = Span::private(header_word::ROOTS as u64 * 8 + 8);
        if !self.read_span(shard, Place(0), &page)? {
            return Ok(None);
        }
        let (image, word) = (page.words().load(header_word::IMAGE_ID), page.words().load(header_word::ROOTS));
        let root = root_word(table);
        let Some(list) = DirectoryRoot::from_word(word).filter(|list| word != 0 && root >> list.depth == 0)
        else {
            return Ok(None);
        };
        // Memory of a list only ever becomes a list again, so this is a top model's place, old or new, or
        // none.
        let Some(word) = self.read_word(shard, list.place.plus(root as u64 * 8))? else {
            return Ok(None);
        };
        let place = Location::place_of(word);
        let header = Span::private(TOP_HEADER_WORDS as u64 * 8);
        if word == 0 || !self.read_span(shard, place, &header)? {
            return Ok(None);
        }
        let guardian = Guardian(header.words().load(0));
        let is_it = Top::open_shape(header.words()).is_some_and(|top| top.table() == table);
        let Some(words) = ModelCopy::words_wanted(&header, budget).filter(|_| guardian.is_live() && is_it)
        else {
            return Ok(None);
        };
        let name = format!("models-{LAYOUT}-{image:016x}-{}-{:016x}-{budget}", table.0, guardian.0);
        let origin = Origin { place, guardian, budget, shelf: self.transport.shelf.clone(), name };
        if let Some(copy) = ModelCopy::find(origin.clone()) {
            mark!("models copied by another session");
            return Ok(Some(copy));
        }
        let Some(top) = Span::try_private(words as u64 * 8) else { return Ok(None) };
        if !self.read_span(shard, place, &top)? {
            return Ok(None);
        }
        // What was live before and is live after was so all the time.
        let last = self.read_word(shard, place)?;
        let whole = last == Some(guardian.0) && top.words().load(0) == guardian.0;
        Ok(if whole { ModelCopy::new(origin, top.words()) } else { None })
    }

    fn read_word(&mut self, shard: usize, place: Place) -> Result<Option<u64>> {
        let span = Span::private(8);
        Ok(self.read_span(shard, place, &span)?.then(|| span.words().load(0)))
    }

    /// READs as many words as a span has. `false`: they could not be had.
    pub fn read_span(&mut self, shard: usize, place: Place, into: &Span) -> Result<bool> {
        let all = into.words().count();
        let mut piece = Items::default();
        for done in (0..all).step_by(PIECE_WORDS) {
            piece.clear();
            piece.room((all - done).min(PIECE_WORDS));
            if self.read_spans(shard, &[place.plus(done as u64 * 8)], &mut piece)?.is_none() {
                return Ok(false);
            }
            into.words().copy_in(done, &piece.words);
        }
        Ok(true)
    }
}
