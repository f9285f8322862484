//! `kelix table import`: items from a file, as `kelix table export` writes them.
//!
//! Items are put some hundreds at once. Beside the file stands, from time to time, how much of it the server
//! has: an import that was ended, or met a wrong line, goes on there.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kelix::{Completion, Table};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::export::{NOTED_EACH, beside, read_note, write_note};
use super::record::{Format, Reader};
use super::{KindArgs, open_or_create};
use crate::bytes::show;
use crate::context::{Context, plural, say};
use crate::items::Named;
use crate::kept::Lent;
use crate::progress::Line;
use crate::{Exit, Failure};

const OPERATION: &str = "table import";
/// Items that are put at once.
const BATCH: u64 = 256;
/// Between two looks whether they are.
const LOOK: Duration = Duration::from_micros(100);
/// Bytes before the place where an import goes on, by which the file is known again.
const BEFORE: u64 = 64;

#[derive(clap::Args)]
pub(crate) struct ImportArgs {
    /// The table; it is made if it does not exist
    table: String,
    /// The file; standard input if there is none
    file: Option<PathBuf>,
    /// How items stand there: jsonl or csv [default: csv for a name that ends so, else jsonl]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Which column of CSV has the keys, or which name in each object: its other names become attributes then
    /// [default: key, and objects as `table export` writes them]
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,
    /// Begin at the first line also where an import was ended
    #[arg(long)]
    restart: bool,
    #[command(flatten)]
    kind: KindArgs,
}

/// How much of a file was put.
#[derive(Serialize, Deserialize)]
struct Note {
    table: String,
    /// Of which store, and which of its servers: what was put may be lost with it.
    server: (u64, u64),
    table_id: u16,
    format: String,
    bytes: u64,
    lines: u64,
    items: u64,
    /// What stands before.
    before: String,
}

pub(super) fn run(context: &Context, args: &ImportArgs) -> Result<(), Failure> {
    let mut session = context.session()?;
    let table = open_or_create(&mut session, OPERATION, &args.kind, &args.table)?;
    let of_name = args.file.as_deref().map_or(Format::Jsonl, Format::of_name);
    let format = args.format.unwrap_or(of_name);
    let began = Instant::now();
    let mut import =
        Import { context, session, table, args, format, items: 0, line: Line::new(context.json) };
    let known = match args.file.as_deref().filter(|path| path.as_os_str() != "-") {
        Some(path) if is_ordinary(path)? => import.read_file(path)?,
        // A pipe or a device is read once, from its beginning to its end, and an import of it that is ended
        // begins anew.
        Some(path) => {
            let cannot = |source| Failure::io(OPERATION, format!("cannot read {}", path.display()), &source);
            let file = BufReader::with_capacity(1 << 20, File::open(path).map_err(cannot)?);
            import.read_stream(file, &path.display().to_string())?;
            0
        }
        None => {
            context.check_input(OPERATION, "a file")?;
            import.read_stream(std::io::stdin().lock(), "standard input")?;
            0
        }
    };
    let (items, seconds) = (import.items, began.elapsed().as_secs_f64());
    if context.json {
        let object = json!({"items": items, "went_on_from": known, "seconds": seconds});
        return context.print_json(&object);
    }
    Ok(writeln!(std::io::stdout(), "imported {} in {seconds:.1} s", plural(items, "item"))?)
}

/// Whether a file can be read from any place, and again.
fn is_ordinary(path: &Path) -> Result<bool, Failure> {
    let metadata = path.metadata();
    let cannot = |source| Failure::io(OPERATION, format!("cannot read {}", path.display()), &source);
    Ok(metadata.map_err(cannot)?.is_file())
}

struct Import<'a> {
    context: &'a Context,
    session: Lent,
    table: Table,
    args: &'a ImportArgs,
    format: Format,
    items: u64,
    line: Line,
}

impl Import<'_> {
    /// Puts what is in a file, or the rest of it, and returns how many items were put before.
    fn read_file(&mut self, path: &Path) -> Result<u64, Failure> {
        let cannot = |source| Failure::io(OPERATION, format!("cannot read {}", path.display()), &source);
        let name = path.display().to_string();
        let place = beside(path, ".import.note");
        let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(cannot)?);
        let known = match self.args.restart {
            true => None,
            false => read_note::<Note>(OPERATION, &place)?,
        };
        let (server, table_id) = (self.session.server(), self.table.id().0);
        let known =
            known.filter(|known| known.table == self.args.table && known.format == self.format.name());
        let known = known.filter(|known| {
            let is_same = (known.server, known.table_id) == (server, table_id);
            if !is_same {
                say("beginning at the first line: this is another server or table, or was restarted since");
            }
            is_same
        });
        if let Some(known) = &known {
            if before(&mut file, known.bytes).map_err(cannot)? != known.before {
                let context = format!(
                    "{name} was changed where it was imported before; give --restart to begin at its first line"
                );
                return Err(Failure::usage(OPERATION, context));
            }
        }
        file.rewind().map_err(cannot)?;
        let wrong = |why: String| Failure::usage(OPERATION, format!("{name}: {why}"));
        let mut reader = Reader::new(self.format, file, self.args.key.as_deref()).map_err(wrong)?;
        let mut from = 0;
        if let Some(known) = known {
            reader.go_on((known.bytes, known.lines)).map_err(cannot)?;
            from = known.items;
            if known.lines > 0 {
                say(&format!("going on behind line {}, after {}", known.lines, plural(from, "item")));
            }
        }
        self.items = from;
        let (args, format) = (self.args, self.format);
        let mut file = File::open(path).map_err(cannot)?;
        self.all(&mut reader, &name, |(bytes, lines), items| {
            let before = before(&mut file, bytes).map_err(cannot)?;
            let (table, format) = (args.table.clone(), format.name().to_string());
            write_note(
                OPERATION,
                &place,
                &Note { table, server, table_id, format, bytes, lines, items, before },
            )
        })?;
        let _ = std::fs::remove_file(&place);
        Ok(from)
    }

    /// Puts all items of a stream.
    fn read_stream(&mut self, from: impl BufRead, name: &str) -> Result<(), Failure> {
        let reader = Reader::new(self.format, from, self.args.key.as_deref());
        let mut reader = reader.map_err(|why| Failure::usage(OPERATION, format!("{name}: {why}")))?;
        self.all(&mut reader, name, |_, _| Ok(()))
    }

    /// Puts what a reader brings, and lets `noted` know how far it is.
    fn all<R: BufRead>(
        &mut self,
        reader: &mut Reader<R>,
        name: &str,
        mut noted: impl FnMut((u64, u64), u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (mut last, mut can_note) = (Instant::now(), true);
        loop {
            let (ended, position) = self.batch(reader);
            let items = self.items;
            self.line.show(|| format!("importing: {}", plural(items, "item")));
            let interrupted =
                || Stop::Store(Failure::new(Exit::Other, OPERATION, "interrupted; begun again, it goes on"));
            let ended = if self.context.is_interrupted() { Err(interrupted()) } else { ended };
            let over = matches!(ended, Ok(true));
            if !over && can_note && (ended.is_err() || last.elapsed() >= NOTED_EACH) {
                if let Err(failure) = noted(position, items) {
                    can_note = false;
                    self.line.clear();
                    say(&format!("warning: an import that is ended will begin at the first line: {failure}"));
                }
                last = Instant::now();
            }
            match ended {
                Ok(true) => {
                    self.line.clear();
                    return Ok(());
                }
                Ok(false) => {}
                Err(Stop::Store(failure)) => {
                    self.line.clear();
                    return Err(failure);
                }
                Err(Stop::Line(line, why)) => {
                    self.line.clear();
                    let context =
                        format!("{name}, line {line}: {why}; {} put before it", plural(items, "item"));
                    return Err(Failure::usage(OPERATION, context));
                }
            }
        }
    }

    /// Puts the next items. Returns whether that was all, and up to where all were put.
    fn batch<R: BufRead>(&mut self, reader: &mut Reader<R>) -> (Result<bool, Stop>, (u64, u64)) {
        let named = Named { name: &self.args.table, kind: self.table.kind() };
        let start = reader.position();
        let (mut keys, mut position, mut items) = (HashSet::new(), start, 0);
        let mut ended = Ok(false);
        while items < BATCH {
            let record = match reader.next() {
                Ok(Some(record)) => record,
                Ok(None) => {
                    ended = Ok(true);
                    break;
                }
                Err(why) => {
                    ended = Err(Stop::Line(position.1 + 1, why));
                    break;
                }
            };
            match record.item(named, &mut self.session) {
                // Of two items of one key the later one is to stay.
                Ok((key, item)) => {
                    if keys.contains(&key) {
                        if let Err(failure) = self.until_put() {
                            return (Err(Stop::Store(failure)), start);
                        }
                        keys.clear();
                    }
                    if let Err(error) = self.session.submit_item(self.table, &key, &item) {
                        ended = Err(Stop::Line(position.1 + 1, error.context().to_string()));
                        break;
                    }
                    keys.insert(key);
                    items += 1;
                }
                Err(failure) => {
                    ended = Err(Stop::Line(position.1 + 1, failure.to_string()));
                    break;
                }
            }
            position = reader.position();
        }
        if let Err(failure) = self.until_put() {
            return (Err(Stop::Store(failure)), start);
        }
        self.items += items;
        (ended, position)
    }

    fn until_put(&mut self) -> Result<(), Failure> {
        let mut done: Vec<Completion> = Vec::new();
        while self.session.outstanding() > 0 {
            if self.session.poll(&mut done)? == 0 {
                std::thread::sleep(LOOK);
            }
            for completion in done.drain(..) {
                completion.outcome?;
            }
        }
        Ok(())
    }
}

/// Why an import stops.
enum Stop {
    /// A line makes no sense.
    Line(u64, String),
    Store(Failure),
}

/// The last bytes before a place in a file.
fn before(file: &mut (impl std::io::Read + Seek), bytes: u64) -> std::io::Result<String> {
    let count = bytes.min(BEFORE);
    file.seek(SeekFrom::Start(bytes - count))?;
    let mut last = vec![0; count as usize];
    match file.read_exact(&mut last) {
        Ok(()) => Ok(show(&last)),
        // It is shorter now.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(String::new()),
        Err(error) => Err(error),
    }
}
