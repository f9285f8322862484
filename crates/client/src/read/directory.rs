//! Renewing the copy of a directory that turned out old.

use kelix_fabric::RemoteMemory;
use kelix_image::Kind;
use kelix_index::{Directory, DirectoryRoot};
use kelix_types::limits::READ_RETRIES_MAX;
use kelix_types::{Guardian, mark};

use super::{ReadOp, ShardReader, State, Step, Verdict, judge};

/// Words of a directory in one READ.
const DIRECTORY_PIECE_WORDS: usize = 1 << 16;

impl ReadOp {
    /// A bucket does not serve the hash: the directory copy is old.
    #[cold]
    #[inline(never)]
    pub(super) fn renew_directory<F: RemoteMemory>(&mut self, fabric: &mut F, shard: &ShardReader) -> Step {
        mark!("directory copy was old");
        self.spent.retries += 1;
        if self.spent.retries > READ_RETRIES_MAX {
            return Step::Ask;
        }
        self.renewed = true;
        self.post_root(fabric, shard);
        Step::Pending
    }

    #[cold]
    #[inline(never)]
    pub(super) fn post_root<F: RemoteMemory>(&mut self, fabric: &mut F, shard: &ShardReader) {
        self.state = State::Root;
        self.before = None;
        self.post(fabric, shard, DirectoryRoot::AT, 1);
    }

    /// The root is the one the copy was made under: only the entry of this hash is old. Otherwise all of it
    /// is.
    pub(super) fn on_root<F: RemoteMemory>(&mut self, fabric: &mut F, shard: &mut ShardReader) -> Step {
        let mut word = [0];
        if let Err(step) = self.poll(fabric, shard, &mut word) {
            return step;
        }
        let Some(root) = DirectoryRoot::from_word(word[0]) else { return Step::Ask };
        let is_same = word[0] == shard.directory.root();
        // Where memory is within reach of loads nobody needs a copy.
        let direct = shard.direct.as_ref().filter(|_| !is_same || !shard.directory.is_copy());
        if let Some(directory) = direct.and_then(|direct| Directory::in_place(&direct.map, root)) {
            shard.directory = directory;
            return self.post_bucket_again(fabric, shard);
        }
        if is_same {
            self.state = State::Entry { root: word[0] };
            self.post(fabric, shard, root.entry(self.hash), 1);
        } else {
            self.state = State::Directory { root: word[0], done: 0 };
            let words = directory_words(root).min(DIRECTORY_PIECE_WORDS);
            self.post(fabric, shard, root.place, words);
        }
        Step::Pending
    }

    /// An entry is one word, and names a current subtable if the directory was still the root's when it was
    /// read: memory of a directory only ever becomes a directory again, so at worst the next bucket does not
    /// serve either.
    pub(super) fn on_entry<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &mut ShardReader,
        root: u64,
    ) -> Step {
        let mut word = [0];
        if let Err(step) = self.poll(fabric, shard, &mut word) {
            return step;
        }
        // Another read of the same batch may have fetched a newer copy meanwhile.
        if shard.directory.root() == root && shard.directory.is_copy() {
            shard.directory.refresh(self.hash, word[0]);
        }
        self.post_bucket_again(fabric, shard)
    }

    /// Goes on with an entry that was just found. One that leads nowhere would be looked for over and over.
    fn post_bucket_again<F: RemoteMemory>(&mut self, fabric: &mut F, shard: &ShardReader) -> Step {
        if shard.directory.bucket(self.hash, 0).is_none() {
            return Step::Ask;
        }
        self.post_bucket(fabric, shard);
        Step::Pending
    }

    /// Reads the whole directory, piece by piece like a large value, its guardian first and last.
    pub(super) fn on_directory<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        value: &mut Vec<u64>,
        root: u64,
        done: usize,
    ) -> Step {
        let Some(at) = DirectoryRoot::from_word(root) else { return Step::Ask };
        let all = directory_words(at);
        let words = (all - done).min(DIRECTORY_PIECE_WORDS);
        // As much as there is, and no more: the depth is the server's word.
        value.resize(done + words, 0);
        let sampled = match self.poll(fabric, shard, &mut value[done..done + words]) {
            Ok(sampled) => sampled,
            Err(step) => return step,
        };
        if done == 0 {
            match judge(Guardian(value[0]), sampled, fabric.stamp_window(), shard.term) {
                Verdict::Valid => {}
                Verdict::Invalid => return self.renew_directory(fabric, shard),
                Verdict::Superseded => return Step::Superseded,
            }
        }
        let done = done + words;
        if done < all {
            self.state = State::Directory { root, done };
            let words = (all - done).min(DIRECTORY_PIECE_WORDS);
            self.post(fabric, shard, at.place.plus(done as u64 * 8), words);
        } else {
            self.state = State::DirectoryGuardian { root };
            self.post(fabric, shard, at.place, 1);
        }
        Step::Pending
    }

    pub(super) fn on_directory_guardian<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &mut ShardReader,
        value: &[u64],
        root: u64,
    ) -> Step {
        let mut word = [0];
        if let Err(step) = self.poll(fabric, shard, &mut word) {
            return step;
        }
        if word[0] != value[0] {
            mark!("directory died while it was read");
            return self.renew_directory(fabric, shard);
        }
        let entries = &value[Kind::DIRECTORY_ENTRIES_START as usize / 8..];
        shard.directory = Directory::new(root, entries);
        self.post_bucket_again(fabric, shard)
    }
}

fn directory_words(root: DirectoryRoot) -> usize {
    Kind::DIRECTORY_ENTRIES_START as usize / 8 + root.entries()
}
