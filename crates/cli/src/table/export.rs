//! `kelix table export`: the items of a table into a file, from which another server can import them.
//!
//! A file is written beside its name, and takes it when it is whole. Beside it stands, from time to time, how
//! far the scan was: an export that was ended goes on there.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kelix::{Scan, Session, Table};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::record::{Format, Writer};
use crate::bytes::{parse, show};
use crate::context::{Context, open_table, plural, say};
use crate::items::{Named, TableNames};
use crate::kept::Lent;
use crate::progress::Line;
use crate::{Exit, Failure};

const OPERATION: &str = "table export";

/// How often it is written down how far an export or an import is.
pub(super) const NOTED_EACH: Duration = Duration::from_millis(500);

#[derive(clap::Args)]
pub(crate) struct ExportArgs {
    /// The table
    table: String,
    /// The file; standard output if there is none
    file: Option<PathBuf>,
    /// How: jsonl or csv [default: csv for a name that ends so, else jsonl]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Replace a file that is there, and begin anew where an export was ended
    #[arg(long, requires = "file")]
    overwrite: bool,
}

/// How far an export is that was ended.
#[derive(Serialize, Deserialize)]
struct Note {
    table: String,
    /// Of which store: the order of a scan is its own.
    store: u64,
    format: String,
    /// Of CSV: the columns of the heading.
    columns: Option<Vec<String>>,
    bytes: u64,
    items: u64,
    /// Where the scan goes on.
    place: String,
}

/// A name beside another one.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(ending);
    name.into()
}

/// Writes a note, so that the old one or the new one is there whatever happens.
pub(super) fn write_note(operation: &str, path: &Path, note: &impl Serialize) -> Result<(), Failure> {
    let fresh = beside(path, ".new");
    let text = serde_json::to_string(note).expect("plain data");
    std::fs::write(&fresh, text)
        .and_then(|()| std::fs::rename(&fresh, path))
        .map_err(|source| Failure::io(operation, format!("cannot write {}", path.display()), &source))
}

/// Reads a note; `None`: there is none.
pub(super) fn read_note<T: for<'a> Deserialize<'a>>(
    operation: &str,
    path: &Path,
) -> Result<Option<T>, Failure> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|_| {
            let context =
                format!("{} is not what was written there; remove it to begin anew", path.display());
            Failure::usage(operation, context)
        }),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Failure::io(operation, format!("cannot read {}", path.display()), &source)),
    }
}

/// Where an export goes.
enum Target {
    /// Into an ordinary file, which is written beside its name: that of a link's target, if a link was named.
    File(PathBuf),
    /// Into what takes bytes as they come and keeps its name: a pipe, a device.
    Stream,
}

impl Target {
    fn of(path: &Path) -> Result<Target, Failure> {
        let cannot = |source| Failure::io(OPERATION, format!("cannot write {}", path.display()), &source);
        match path.metadata() {
            Ok(found) if found.is_dir() => {
                let context = format!("{} is a directory: name a file in it", path.display());
                Err(Failure::usage(OPERATION, context))
            }
            Ok(found) if !found.is_file() => Ok(Target::Stream),
            Ok(_) => path.canonicalize().map(Target::File).map_err(cannot),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !path.is_symlink() => {
                Ok(Target::File(path.to_path_buf()))
            }
            Err(error) => Err(cannot(error)),
        }
    }
}

pub(super) fn run(context: &Context, args: &ExportArgs) -> Result<(), Failure> {
    // Before anything is read.
    let named = args.file.as_deref().filter(|path| path.as_os_str() != "-");
    let target = named.map(Target::of).transpose()?;
    let mut session = context.session()?;
    let table = open_table(&mut session, "table export", &args.table)?;
    let of_name = args.file.as_deref().map_or(Format::Jsonl, Format::of_name);
    let format = args.format.unwrap_or(of_name);
    let names = session.attribute_names(table)?;
    let writer = Writer::new(Named { name: &args.table, kind: table.kind() }, format, names);
    let mut export = Export {
        context,
        table,
        writer,
        asking: None,
        names: TableNames::default(),
        items: 0,
        line: Line::new(context.json),
    };
    let began = Instant::now();
    let (path, known) = match (named, target) {
        (Some(path), Some(Target::File(file))) => {
            (path, export.write_file(&mut session, args, format, &file)?)
        }
        (Some(path), _) => {
            let cannot = |source| Failure::io(OPERATION, format!("cannot write {}", path.display()), &source);
            let out = OpenOptions::new().write(true).open(path).map_err(cannot)?;
            export.stream(&mut session, out)?;
            (path, 0)
        }
        (None, _) => return export.stream(&mut session, std::io::stdout().lock()),
    };
    let (items, seconds) = (export.items, began.elapsed().as_secs_f64());
    if context.json {
        return context.print_json(&json!({"items": items, "went_on_from": known, "seconds": seconds}));
    }
    let (items, path) = (plural(items, "item"), path.display());
    Ok(writeln!(std::io::stdout(), "exported {items} to {path} in {seconds:.1} s")?)
}

struct Export<'a> {
    context: &'a Context,
    table: Table,
    writer: Writer<'a>,
    /// Looks up the names of tables that links lead to, since the scan has the other session for itself.
    asking: Option<Lent>,
    names: TableNames,
    items: u64,
    line: Line,
}

impl Export<'_> {
    /// Writes all items, one after another.
    fn stream(&mut self, session: &mut Session, out: impl Write) -> Result<(), Failure> {
        let mut out = BufWriter::new(out);
        self.writer.begin(&mut out)?;
        self.all(session, Scan::all(), &mut out, |_, _, _| Ok(()))?;
        Ok(out.flush()?)
    }

    /// Writes all items of a scan, and lets `noted` know after each page where it would go on.
    fn all<W: Write>(
        &mut self,
        session: &mut Session,
        scan: Scan,
        out: &mut W,
        mut noted: impl FnMut(&mut W, u64, &[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        // Takes no longer for many items than for few.
        let about = session.estimate(self.table, &Scan::all())?;
        let mut scanner = session.scan(self.table, &scan)?;
        while let Some(item) = scanner.next_item()? {
            self.names.learn_beside(&mut self.asking, self.context, &item)?;
            self.writer.write(out, &item, &self.names)?;
            self.items += 1;
            if self.context.is_interrupted() {
                self.line.clear();
                return Err(Failure::new(Exit::Other, OPERATION, "interrupted; begun again, it goes on"));
            }
            let items = self.items;
            self.line.show(|| format!("exporting: {items} of some {}", plural(about, "item")));
            if let Some(place) = scanner.place() {
                noted(out, items, &place)?;
            }
        }
        self.line.clear();
        Ok(())
    }

    /// Writes the file, and returns how many items were there from before.
    fn write_file(
        &mut self,
        session: &mut Session,
        args: &ExportArgs,
        format: Format,
        path: &Path,
    ) -> Result<u64, Failure> {
        if path.exists() && !args.overwrite {
            let context = format!("{} exists; give --overwrite to replace it", path.display());
            return Err(Failure::usage(OPERATION, context));
        }
        let (part, note) = (beside(path, ".part"), beside(path, ".part.note"));
        let cannot = |source| Failure::io(OPERATION, format!("cannot write {}", part.display()), &source);
        let known = match args.overwrite {
            true => None,
            false => read_note::<Note>(OPERATION, &note)?.filter(|_| part.exists()),
        };
        if let Some(known) =
            known.as_ref().filter(|known| known.table != args.table || known.format != format.name())
        {
            let context = format!(
                "{} is of an export of \"{}\" as {} that was ended; go on with that, or give --overwrite",
                part.display(),
                known.table,
                known.format
            );
            return Err(Failure::usage(OPERATION, context));
        }
        let (store, _) = session.server();
        let written = std::fs::metadata(&part).map_or(0, |part| part.len());
        if known.as_ref().is_some_and(|known| known.store != store || known.bytes > written) {
            let context = format!(
                "{} cannot be gone on with: it is of another server, or was cut; give --overwrite to begin anew",
                part.display()
            );
            return Err(Failure::usage(OPERATION, context));
        }
        let file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(known.is_none())
            .open(&part)
            .map_err(cannot)?;
        let (mut scan, mut from) = (Scan::all(), 0);
        let mut out = BufWriter::with_capacity(1 << 20, file);
        match &known {
            Some(known) => {
                out.get_ref().set_len(known.bytes).map_err(cannot)?;
                out.seek(SeekFrom::End(0)).map_err(cannot)?;
                from = known.items;
                self.writer.columns.clone_from(&known.columns);
                scan = scan.resume_at(&parse(&known.place).map_err(|why| Failure::usage(OPERATION, why))?);
                say(&format!("going on behind {}", plural(from, "item")));
            }
            None => self.writer.begin(&mut out)?,
        }
        self.items = from;
        let mut last = Instant::now();
        let columns = self.writer.columns.clone();
        self.all(session, scan, &mut out, |out: &mut BufWriter<File>, items, place| {
            if last.elapsed() < NOTED_EACH {
                return Ok(());
            }
            last = Instant::now();
            out.flush()?;
            let bytes = out.stream_position()?;
            let (table, format, place) = (args.table.clone(), format.name().to_string(), show(place));
            let columns = columns.clone();
            write_note(OPERATION, &note, &Note { table, store, format, columns, bytes, items, place })
        })?;
        let file = out.into_inner().map_err(|error| cannot(error.into_error()))?;
        file.sync_all().map_err(cannot)?;
        std::fs::rename(&part, path).map_err(cannot)?;
        let _ = std::fs::remove_file(&note);
        Ok(from)
    }
}
