//! The C interface: gets through `libkelix`, loaded, against the same of the Rust client that is in this
//! program.

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

use kelix_report::interleave::compare;
use kelix_report::progress;
use kelix_report::report::{Row, compared};
use libloading::Library;

use super::draw::{Draw, get_into};
use super::text;
use crate::store::Store;

/// The library as cargo leaves it beside this program, and as it is installed.
const BUILT: &str = "libkelix_capi.so";
const INSTALLED: &str = "libkelix.so.0";
/// Records of the row about few.
const FEW: u64 = 1_000;

#[repr(C)]
#[derive(Clone, Copy)]
struct Bytes {
    data: *const c_void,
    bytes: usize,
}

impl Bytes {
    fn of(bytes: &[u8]) -> Bytes {
        Bytes { data: bytes.as_ptr().cast(), bytes: bytes.len() }
    }
}

/// `struct kelix_options`, as far as is said here: its size tells that.
#[repr(C)]
struct Options {
    size: usize,
    address: Bytes,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Table {
    word: [u64; 3],
}

type Get = unsafe extern "C" fn(*mut c_void, Table, Bytes, *mut c_void, usize, *mut c_void) -> c_int;

/// A session of the library's.
struct Session {
    get: Get,
    session: *mut c_void,
    table: Table,
}

/// The library, and the name of its file. `None`: there is none.
fn library() -> Result<Option<(Library, String)>, String> {
    let beside = std::env::current_exe().map_err(text)?.with_file_name(BUILT);
    let load = |path: PathBuf| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        // SAFETY: what is loaded is ours, and does nothing when it is loaded.
        Some((unsafe { Library::new(&path) }.ok()?, name))
    };
    Ok(load(beside).or_else(|| load(PathBuf::from(INSTALLED))))
}

impl Session {
    /// Opens a session with the server of a run directory. The library stays for as long as the process.
    fn open(library: &'static Library, directory: &Path, table: &[u8]) -> Result<Session, String> {
        let done = |code: c_int, what: &str| {
            if code == 0 { Ok(()) } else { Err(format!("{what} of the C interface ended with {code}")) }
        };
        let address = directory.as_os_str().as_encoded_bytes();
        let options = Options { size: size_of::<Options>(), address: Bytes::of(address) };
        let (mut client, mut session, mut found) =
            (null_mut::<c_void>(), null_mut::<c_void>(), Table::default());
        // SAFETY: the names and signatures are those of kelix.h; all that is passed stays for the call.
        unsafe {
            let connect: libloading::Symbol<
                '_,
                unsafe extern "C" fn(*const Options, *mut *mut c_void) -> c_int,
            > = library.get(b"kelix_connect").map_err(text)?;
            let open_session: libloading::Symbol<
                '_,
                unsafe extern "C" fn(*const c_void, *const c_void, *mut *mut c_void) -> c_int,
            > = library.get(b"kelix_session_open").map_err(text)?;
            let open_table: libloading::Symbol<
                '_,
                unsafe extern "C" fn(*mut c_void, Bytes, *mut Table) -> c_int,
            > = library.get(b"kelix_table_open").map_err(text)?;
            done(connect(&options, &mut client), "kelix_connect")?;
            done(open_session(client, null(), &mut session), "kelix_session_open")?;
            done(open_table(session, Bytes::of(table), &mut found), "kelix_table_open")?;
            let get: libloading::Symbol<'_, Get> = library.get(b"kelix_get").map_err(text)?;
            Ok(Session { get: *get, session, table: found })
        }
    }

    fn get(&mut self, key: &[u8], buffer: &mut [u8]) {
        // SAFETY: a session that is open, and memory of these lengths.
        let code = unsafe {
            (self.get)(
                self.session,
                self.table,
                Bytes::of(key),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                null_mut(),
            )
        };
        assert_eq!(code, 0, "kelix_get");
    }
}

/// The rows.
pub(super) fn rows(store: &mut Store) -> Result<Vec<Row>, String> {
    let Some((library, name)) = library()? else {
        eprintln!(
            "kelix-bench: no {BUILT} beside this program, and no {INSTALLED}: rows of C are left out (make install-capi)"
        );
        return Ok(Vec::new());
    };
    let mut ours = Session::open(Box::leak(Box::new(library)), &store.directory, b"records")?;
    let (table, mut other) = (store.table, store.client.session().map_err(text)?);
    let mut row = |id, what, records: u64| {
        progress::show(id);
        let (mut our_draw, mut other_draw) = (Draw::of(3, records), Draw::of(4, records));
        let comparison =
            compare(store.rounds, &mut || our_draw.block(|key, buffer| ours.get(key, buffer)), &mut || {
                other_draw.block(|key, buffer| get_into(&mut other, table, key, buffer))
            });
        compared(id, what, "ns", 1.05, comparison, &format!("{name}; "))
    };
    Ok(vec![
        row("c_get", "kelix_get of independent keys / get_into of the Rust client", store.records),
        row("c_get_few", "the same of a thousand records", FEW.min(store.records)),
    ])
}
