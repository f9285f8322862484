//! Absence of keys of hash tables, known without the shard: docs/read-rule.md, "Absence".

use kelix_fabric::{Direct, Sampled};
use kelix_index::names_none;
use kelix_types::limits::READ_EPOCHS_MAX;
use kelix_types::{KeyHash, TableId, mark};

use super::{ShardReader, Step};

/// Tables of which it is remembered that the shard has them. One that forgets asks the shard once more.
const TABLES: usize = 16;

/// The tables that a shard has, as of when they were last asked about.
///
/// No key is found in a table that was dropped, and whoever has an old handle is to hear why. So the shard is
/// asked for the first key that is absent, and again behind each change of the word that counts what was
/// dropped. For keys of the catalogue the shard is asked always: where one step changes several of them, as
/// with a generation that comes into force, the shard's answer knows all of that or nothing, while a look
/// between two stores would find one entry new and another one not there yet.
pub(crate) struct KnownTables([(TableId, u64); TABLES]);

impl Default for KnownTables {
    fn default() -> KnownTables {
        KnownTables([(TableId(0), u64::MAX); TABLES])
    }
}

impl KnownTables {
    /// Takes note of a table that the shard had when the word was this, or later.
    pub fn note(&mut self, table: TableId, generations: u64) {
        if table != TableId::CATALOGUE {
            self.0[usize::from(table.0) % TABLES] = (table, generations);
        }
    }

    #[inline]
    fn has(&self, table: TableId, generations: u64) -> bool {
        self.0[usize::from(table.0) % TABLES] == (table, generations)
    }
}

/// Looks whether a key is absent, where memory stands itself. [`Step::Ask`]: that cannot be told.
#[inline]
pub(crate) fn look_for_absence(shard: &ShardReader, direct: &Direct, table: TableId, hash: KeyHash) -> Step {
    let before = direct.begin();
    if !names_none(direct.map.view(), hash, |bucket| shard.directory.bucket(hash, bucket)) {
        return Step::Ask;
    }
    let Some(generations) = direct.generations() else { return Step::Ask };
    let sampled = direct.sampled(before);
    if !shard.watermark.covers_removals(direct) {
        return Step::Ask;
    }
    shard.judge_absence(table, generations, sampled, READ_EPOCHS_MAX)
}

impl ShardReader {
    /// Judges what a look at the index says, once all removals that it may have seen are known to count.
    #[inline]
    pub(super) fn judge_absence(
        &self,
        table: TableId,
        generations: u64,
        sampled: Sampled,
        window: u64,
    ) -> Step {
        if sampled.term != self.term || sampled.is_late(window) {
            mark!("absence that took too long");
            return Step::Ask;
        }
        if !self.known_tables.has(table, generations) {
            return Step::AbsentIfKnown(generations);
        }
        mark!("absence proven");
        Step::Absent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_is_known_of_tables_that_the_shard_has_and_never_of_the_catalogue() {
        let (mut known, table) = (KnownTables::default(), TableId(3));
        assert!(!known.has(table, 7));
        [table, TableId::CATALOGUE].into_iter().for_each(|table| known.note(table, 7));
        let has = |table, generations| known.has(table, generations);
        assert_eq!((has(table, 7), has(table, 8), has(TableId::CATALOGUE, 7)), (true, false, false));
    }
}
