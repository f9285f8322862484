//! Reading a snapshot.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use kelix_image::words::{bytes_of, bytes_of_mut};
use kelix_image::{Books, MemoryMap, redo};
use kelix_types::{Error, ErrorKind, Place, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{
    Description, HEAD_WORDS, Kind, MAGIC, PAGE_BYTES, PIECE, PIECE_WORDS_MAX, VERSION, VERSION_BEFORE, Which,
    checksum, damaged, system,
};

/// Most threads that read memory.
const THREADS_MAX: usize = 8;

/// Where a piece stands.
#[derive(Clone, Copy)]
struct Piece {
    kind: Kind,
    which: Which,
    place: u64,
    at: u64,
    words: usize,
    checksum: u64,
}

/// A snapshot whose pieces are known, and are read when they are wanted: also by several threads at once.
pub struct Snapshot {
    path: PathBuf,
    file: File,
    description: Description,
    pieces: Vec<Piece>,
    bytes: u64,
}

const CUT_SHORT: &str = "it is cut short";
const NONSENSE: &str = "its description makes no sense";

/// What of the description there is to be known.
fn described<T: DeserializeOwned>(first: &[u64]) -> Option<T> {
    let text = &bytes_of(first)[32..][..first[2] as usize];
    serde_json::from_slice(text).ok()
}

/// When a snapshot of whatever version was made, in milliseconds since 1970.
pub(crate) fn made(path: &Path) -> Option<u64> {
    #[derive(Deserialize)]
    struct Made {
        made_unix_ms: u64,
    }
    let first = Snapshot::at(path).and_then(|snapshot| snapshot.first_words()).ok()?;
    described(&first).map(|Made { made_unix_ms }| made_unix_ms)
}

impl Snapshot {
    /// Opens a snapshot. One that was not written to its end, or whose description or heads of pieces are
    /// wrong, is refused; the contents are looked at when they are read.
    pub fn open(path: &Path) -> Result<Snapshot> {
        let mut snapshot = Snapshot::at(path)?;
        let first = snapshot.first_words()?;
        if first[1] != VERSION && first[1] != VERSION_BEFORE {
            let told =
                |word: u64| format!("version {} with memory of layout {}", word as u16, word as u32 >> 16);
            let (path, of, read) = (path.display(), told(first[1]), told(VERSION));
            let context = format!("{path} is a snapshot of {of}; this release reads {read}");
            return Err(Error::new(ErrorKind::Incompatible, "read snapshot", context));
        }
        snapshot.description = described(&first).ok_or_else(|| snapshot.damaged(NONSENSE))?;
        let (mut at, length) = (first.len() as u64 * 8, snapshot.bytes);
        let mut head = [0; HEAD_WORDS];
        loop {
            if at + HEAD_WORDS as u64 * 8 > length {
                return Err(snapshot.damaged("it has no end"));
            }
            snapshot.read(at, &mut head)?;
            at += HEAD_WORDS as u64 * 8;
            let piece =
                Piece::of_head(&head, at).ok_or_else(|| snapshot.damaged("a piece makes no sense"))?;
            if piece.kind == Kind::End {
                let whole = piece.place == snapshot.pieces.len() as u64 && at == length;
                return if whole { Ok(snapshot) } else { Err(snapshot.damaged("pieces are missing")) };
            }
            at += piece.words.next_multiple_of(HEAD_WORDS) as u64 * 8;
            snapshot.pieces.push(piece);
        }
    }

    fn damaged(&self, what: &str) -> Error {
        damaged(&self.path, what)
    }

    fn read(&self, at: u64, words: &mut [u64]) -> Result<()> {
        let read = self.file.read_exact_at(bytes_of_mut(words), at);
        read.map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged(CUT_SHORT),
            _ => system("read", &self.path, source),
        })
    }

    /// A file of which nothing was read.
    fn at(path: &Path) -> Result<Snapshot> {
        let file = File::open(path).map_err(|source| system("read", path, source))?;
        let bytes = file.metadata().map_err(|source| system("read", path, source))?.len();
        let description =
            Description { store: 0, release: String::new(), made_unix_ms: 0, namespaces: Vec::new() };
        Ok(Snapshot { path: path.to_path_buf(), file, description, pieces: Vec::new(), bytes })
    }

    /// The first words and the description, which are whole, and may be of any version.
    fn first_words(&self) -> Result<Vec<u64>> {
        let mut words = vec![0; PAGE_BYTES / 8];
        // A file of another kind may be shorter.
        let whole = words.len().min((self.bytes / 8) as usize);
        self.read(0, &mut words[..whole])?;
        if self.bytes > 0 && words[0] != MAGIC {
            let context = format!("{} is no snapshot of Kelix's", self.path.display());
            return Err(Error::new(ErrorKind::Damaged, "read snapshot", context));
        }
        if whole < words.len() {
            return Err(self.damaged(CUT_SHORT));
        }
        let count = usize::try_from(words[2]).ok().filter(|count| *count < 1 << 24);
        let count = count.ok_or_else(|| self.damaged(NONSENSE))?;
        words.resize(PAGE_BYTES.max(32 + count).next_multiple_of(PAGE_BYTES) / 8, 0);
        self.read(0, &mut words)?;
        let sum = std::mem::take(&mut words[3]);
        if sum == checksum(&words) { Ok(words) } else { Err(self.damaged("its first checksum is wrong")) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What it is of.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Bytes of memory in it, and of notes.
    pub fn sizes(&self) -> (u64, u64) {
        let bytes = |kind: Kind| {
            self.pieces
                .iter()
                .filter(move |piece| piece.kind == kind)
                .map(|piece| piece.words as u64 * 8)
                .sum()
        };
        (bytes(Kind::Memory), bytes(Kind::Notes))
    }

    fn of(&self, kind: Kind, which: Which) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(move |piece| piece.kind == kind && piece.which == which)
    }

    fn contents(&self, piece: &Piece, words: &mut Vec<u64>) -> Result<()> {
        words.resize(piece.words, 0);
        self.read(piece.at, words)?;
        if checksum(words) == piece.checksum { Ok(()) } else { Err(self.damaged("a checksum is wrong")) }
    }

    fn all(&self, kind: Kind, which: Which) -> Result<Vec<u64>> {
        let (mut all, mut words) = (Vec::new(), Vec::new());
        for piece in self.of(kind, which) {
            self.contents(piece, &mut words)?;
            all.extend_from_slice(&words);
        }
        Ok(all)
    }

    /// What a shard knew beside its memory: its books, and what it kept.
    pub fn beside(&self, which: Which) -> Result<(Books, Vec<u64>)> {
        let books = Books::of_words(&self.all(Kind::Books, which)?);
        let books = books.ok_or_else(|| self.damaged("the books of a shard make no sense"))?;
        Ok((books, self.all(Kind::Kept, which)?))
    }

    /// The position of a shard in the log: its last record, and what clients were answered. Empty in a
    /// snapshot of a release that wrote none.
    pub fn position(&self, which: Which) -> Result<Vec<u64>> {
        self.all(Kind::Position, which)
    }

    /// Writes what there was of a shard into memory that is zero. What it reads it verifies.
    pub fn fill(&self, which: Which, map: &MemoryMap) -> Result<()> {
        let pieces: Vec<&Piece> = self.of(Kind::Memory, which).collect();
        let next = AtomicUsize::new(0);
        let fill = || {
            let mut words = Vec::with_capacity(PIECE_WORDS_MAX);
            while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.contents(piece, &mut words)?;
                // What was in segments that went while it was copied is of no use.
                if let Some(memory) = map.words(Place(piece.place), piece.words) {
                    memory.copy_in(0, &words);
                }
            }
            Ok(())
        };
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(THREADS_MAX);
        std::thread::scope(|scope| -> Result<()> {
            let aside = || std::thread::Builder::new().name("kelix-restore".into()).spawn_scoped(scope, fill);
            // This thread, and as many more as there are.
            let others: Vec<_> = (1..threads).map_while(|_| aside().ok()).collect();
            let own = fill();
            others.into_iter().try_for_each(|thread| thread.join().expect("it reads or says why not"))?;
            own
        })?;
        // A note may end in the next piece.
        let (mut notes, mut words) = (Vec::new(), Vec::new());
        for piece in self.of(Kind::Notes, which) {
            self.contents(piece, &mut words)?;
            notes.extend_from_slice(&words);
            let left = redo(&notes, |place, count| map.words(place, count)).len();
            notes.drain(..notes.len() - left);
        }
        if notes.is_empty() { Ok(()) } else { Err(self.damaged("notes make no sense")) }
    }

    /// Reads everything, and so finds out whether it is whole.
    pub fn verify(&self) -> Result<()> {
        let mut words = Vec::new();
        self.pieces.iter().try_for_each(|piece| self.contents(piece, &mut words))
    }
}

impl Piece {
    fn of_head(head: &[u64; HEAD_WORDS], at: u64) -> Option<Piece> {
        let [first, which, place, words, sum, ..] = *head;
        if checksum(&head[..7]) != head[7]
            || first & 0xffff_ffff_ffff != PIECE
            || words > PIECE_WORDS_MAX as u64
        {
            return None;
        }
        let kinds = [Kind::Memory, Kind::Notes, Kind::Books, Kind::Kept, Kind::End, Kind::Position];
        let kind = kinds.into_iter().find(|kind| *kind as u64 == first >> 48)?;
        let which = Which { namespace: which as u16, shard: (which >> 16) as u16 };
        Some(Piece { kind, which, place, at, words: words as usize, checksum: sum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NamespaceDescription, Writer, keep, list};
    use kelix_image::Span;

    const WHICH: Which = Which { namespace: 0, shard: 1 };

    fn description(made_unix_ms: u64) -> Description {
        let namespace = NamespaceDescription { name: "default".into(), hash_seed: 42, shards: 2 };
        Description { store: 7, release: "0.1.0".into(), made_unix_ms, namespaces: vec![namespace] }
    }

    fn made(directory: &Path, at: u64) -> PathBuf {
        let mut writer = Writer::create(directory, &description(at)).unwrap();
        writer.memory(WHICH, Place(64 << 20), &[1, 2, 3]).unwrap();
        // A note that ends in the next piece.
        writer.notes(WHICH, &[1 << 41 | (8 << 20)]).unwrap();
        writer.notes(WHICH, &[7]).unwrap();
        writer.end_shard(WHICH, &[5, 6], &[8; 9], &[11, 12]).unwrap();
        writer.finish().unwrap().0
    }

    #[test]
    fn what_was_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = made(directory.path(), 1000);
        let snapshot = Snapshot::open(&path).unwrap();
        assert_eq!(snapshot.description(), &description(1000));
        snapshot.verify().unwrap();
        let (books, kept) = snapshot.beside(WHICH).unwrap();
        assert_eq!((books.incarnation, books.directory, kept), (5, 6, vec![8; 9]));
        assert_eq!(snapshot.position(WHICH).unwrap(), [11, 12]);
        let mut map = MemoryMap::default();
        let span = Span::private(1 << 20);
        map.add(1, span.clone());
        snapshot.fill(WHICH, &map).unwrap();
        assert_eq!([0, 1, 2, 3].map(|index| span.words().load(index)), [7, 2, 3, 0]);
    }

    /// A copy that somebody gave another name is as old as it was, and is left to them.
    #[test]
    fn names_of_others_are_neither_newer_nor_removed() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| directory.path().join(format!("{name}.kelix-snapshot"));
        let old = made(directory.path(), 1000);
        std::fs::copy(&old, of("before-upgrade")).unwrap();
        std::fs::write(of("nonsense"), b"nothing").unwrap();
        let new = made(directory.path(), 2000);
        let listed = list(directory.path()).unwrap();
        assert_eq!(listed.len(), 4);
        assert_eq!((&listed[0], &listed[3]), (&new, &of("nonsense")));
        let newer = made(directory.path(), 500);
        assert_eq!(list(directory.path()).unwrap()[0], newer, "also where the clock was set back");
        keep(directory.path(), 1).unwrap();
        assert_eq!(list(directory.path()).unwrap(), [newer, of("before-upgrade"), of("nonsense")]);
    }

    /// Whatever byte is another, or however the file is cut, it is refused.
    #[test]
    fn what_is_damaged_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let good = std::fs::read(made(directory.path(), 1000)).unwrap();
        let path = directory.path().join("other");
        let check = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Snapshot::open(&path).and_then(|snapshot| snapshot.verify()).map_err(|error| error.kind())
        };
        assert_eq!(check(&good), Ok(()));
        for cut in (0..good.len()).step_by(61) {
            assert_eq!(check(&good[..cut]), Err(ErrorKind::Damaged), "cut at {cut}");
        }
        let text = 32 + serde_json::to_vec(&description(1000)).unwrap().len();
        let padding = |at: usize| (4096..good.len()).contains(&at) && good[at] == 0;
        for at in (0..text).chain(4096..good.len()).filter(|at| !padding(*at)) {
            let mut bad = good.clone();
            bad[at] ^= 4;
            assert_eq!(check(&bad), Err(ErrorKind::Damaged), "byte {at}");
        }
        // What is whole, but of a later release, is another matter: nothing older is to be taken in its
        // place.
        let mut page = vec![0; PAGE_BYTES / 8];
        bytes_of_mut(&mut page).copy_from_slice(&good[..PAGE_BYTES]);
        for later in [VERSION + 1, VERSION + (1 << 16)] {
            (page[1], page[3]) = (later, 0);
            page[3] = checksum(&page);
            let later = [bytes_of(&page), &good[PAGE_BYTES..]].concat();
            assert_eq!(check(&later), Err(ErrorKind::Incompatible));
        }
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_older_one() {
        let directory = tempfile::tempdir().unwrap();
        let [first, second] = [5000, 4000].map(|at| made(directory.path(), at));
        assert_eq!(list(directory.path()).unwrap(), [second, first]);
    }

    #[test]
    fn the_newest_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let [_, second, third] = [999, 1000, 12_345].map(|at| made(directory.path(), at));
        // One that was begun and given up leaves nothing.
        drop(Writer::create(directory.path(), &description(5)).unwrap());
        // Of one whose server died something is left, and of other programs' files nothing is known.
        for name in ["0000000000005.kelix-snapshot.part", "other.part"] {
            std::fs::write(directory.path().join(name), b"half").unwrap();
        }
        assert_eq!(list(directory.path()).unwrap().len(), 3);
        keep(directory.path(), 2).unwrap();
        assert_eq!(list(directory.path()).unwrap(), [third, second]);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 3);
        assert!(directory.path().join("other.part").exists());
    }
}
