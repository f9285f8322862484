//! LMDB: the distribution's library, on memory, in this process.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::ptr;

use libloading::Library;

/// The file of Debian's package, with the version of its interface.
const LIBRARY: &str = "liblmdb.so.0";
/// Where memory is a file system.
pub(crate) const MEMORY: &str = "/dev/shm";

/// There is no such key, or no further one.
const NOT_FOUND: c_int = -30798;
const READ_ONLY: c_uint = 0x2_0000;
/// The fastest there is: written through the map, never synchronised, no locks against other processes, pages
/// not cleared first, and read in any thread.
const OPTIONS: c_uint = 0x1_0000 | 0x8_0000 | 0x20_0000 | 0x40_0000 | 0x80_0000 | 0x100_0000;

/// A byte string of LMDB's.
#[repr(C)]
struct Bytes {
    count: usize,
    at: *mut c_void,
}

impl Bytes {
    fn of(bytes: &[u8]) -> Bytes {
        Bytes { count: bytes.len(), at: bytes.as_ptr().cast_mut().cast() }
    }

    /// # Safety
    /// LMDB has filled it, and what it names is still there.
    unsafe fn slice(&self) -> &[u8] {
        // SAFETY: as the caller says.
        unsafe { std::slice::from_raw_parts(self.at.cast::<u8>(), self.count) }
    }
}

/// The table's keys are numbers of this machine's.
pub(crate) const INTEGER_KEYS: c_uint = 0x8;
/// Where a cursor goes: to the first key that is not below one, and to the next.
const SET_RANGE: c_uint = 17;
const NEXT: c_uint = 8;

/// An environment, a transaction, and a cursor, as LMDB sees them.
type Env = *mut c_void;
type Txn = *mut c_void;
type Cursor = *mut c_void;

/// The functions that are used.
struct Functions {
    txn_begin: unsafe extern "C" fn(Env, Txn, c_uint, *mut Txn) -> c_int,
    txn_commit: unsafe extern "C" fn(Txn) -> c_int,
    txn_abort: unsafe extern "C" fn(Txn),
    txn_reset: unsafe extern "C" fn(Txn),
    txn_renew: unsafe extern "C" fn(Txn) -> c_int,
    get: unsafe extern "C" fn(Txn, c_uint, *mut Bytes, *mut Bytes) -> c_int,
    put: unsafe extern "C" fn(Txn, c_uint, *mut Bytes, *mut Bytes, c_uint) -> c_int,
    cursor_open: unsafe extern "C" fn(Txn, c_uint, *mut Cursor) -> c_int,
    cursor_get: unsafe extern "C" fn(Cursor, *mut Bytes, *mut Bytes, c_uint) -> c_int,
    cursor_close: unsafe extern "C" fn(Cursor),
    close: unsafe extern "C" fn(Env),
    error: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Functions {
    fn check(&self, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: takes any number, and gives a string that stays.
        let text = unsafe { CStr::from_ptr((self.error)(code)) };
        Err(format!("LMDB: {}", text.to_string_lossy()))
    }
}

/// An environment with one table.
pub(crate) struct Environment {
    functions: Functions,
    env: Env,
    table: c_uint,
    /// A transaction for reads, which is begun again for each batch.
    reader: Txn,
    folder: PathBuf,
    _library: Library,
}

impl Environment {
    /// Opens an environment of so many bytes at most, with a table of this kind.
    pub fn open(bytes: u64, kind: c_uint) -> Result<Environment, String> {
        // SAFETY: loading it runs nothing but its own set-up, which does nothing.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|error| {
            format!("{LIBRARY} is not installed ({error}); on Debian: apt-get install liblmdb0")
        })?;
        let folder = PathBuf::from(MEMORY).join(format!("kelix-bench-lmdb-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        // SAFETY: these are the names and types of lmdb.h.
        let functions = || unsafe {
            Ok::<_, libloading::Error>(Functions {
                txn_begin: *library.get(b"mdb_txn_begin\0")?,
                txn_commit: *library.get(b"mdb_txn_commit\0")?,
                txn_abort: *library.get(b"mdb_txn_abort\0")?,
                txn_reset: *library.get(b"mdb_txn_reset\0")?,
                txn_renew: *library.get(b"mdb_txn_renew\0")?,
                get: *library.get(b"mdb_get\0")?,
                put: *library.get(b"mdb_put\0")?,
                cursor_open: *library.get(b"mdb_cursor_open\0")?,
                cursor_get: *library.get(b"mdb_cursor_get\0")?,
                cursor_close: *library.get(b"mdb_cursor_close\0")?,
                close: *library.get(b"mdb_env_close\0")?,
                error: *library.get(b"mdb_strerror\0")?,
            })
        };
        let functions = functions().map_err(|error| error.to_string())?;
        let (env, reader) = (ptr::null_mut(), ptr::null_mut());
        let mut opened = Environment { functions, env, table: 0, reader, folder, _library: library };
        opened.set_up(bytes, kind)?;
        Ok(opened)
    }

    fn set_up(&mut self, bytes: u64, kind: c_uint) -> Result<(), String> {
        type Create = unsafe extern "C" fn(*mut Env) -> c_int;
        type MapSize = unsafe extern "C" fn(Env, usize) -> c_int;
        type Open = unsafe extern "C" fn(Env, *const c_char, c_uint, c_uint) -> c_int;
        type OpenTable = unsafe extern "C" fn(Txn, *const c_char, c_uint, *mut c_uint) -> c_int;
        let path = CString::new(self.folder.display().to_string()).expect("a path of this program's");
        let library = &self._library;
        // SAFETY: names and types are those of lmdb.h; the environment is opened once, and what it is given
        // lives as long as the call.
        unsafe {
            let get = |error: libloading::Error| error.to_string();
            let create = library.get::<Create>(b"mdb_env_create\0").map_err(get)?;
            let map_size = library.get::<MapSize>(b"mdb_env_set_mapsize\0").map_err(get)?;
            let open = library.get::<Open>(b"mdb_env_open\0").map_err(get)?;
            let open_table = library.get::<OpenTable>(b"mdb_dbi_open\0").map_err(get)?;
            self.functions.check(create(&mut self.env))?;
            self.functions.check(map_size(self.env, bytes as usize))?;
            self.functions.check(open(self.env, path.as_ptr(), OPTIONS, 0o600))?;
            let txn = self.begin(0)?;
            self.functions.check(open_table(txn, ptr::null(), kind, &mut self.table))?;
            self.functions.check((self.functions.txn_commit)(txn))?;
            self.reader = self.begin(READ_ONLY)?;
            (self.functions.txn_reset)(self.reader);
        }
        Ok(())
    }

    fn begin(&self, flags: c_uint) -> Result<Txn, String> {
        let mut txn = ptr::null_mut();
        // SAFETY: the environment is open.
        let code = unsafe { (self.functions.txn_begin)(self.env, ptr::null_mut(), flags, &mut txn) };
        self.functions.check(code)?;
        Ok(txn)
    }

    /// Gets these keys in one transaction, and shows the value of each.
    pub fn get<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]>,
        look: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        self.get_each(keys.map(Bytes::of), look)
    }

    /// The same of keys that are numbers of this machine's, as they stand in memory.
    pub fn get_words(
        &self,
        keys: &[u64],
        look: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let word = |key: &u64| Bytes { count: 8, at: ptr::from_ref(key).cast_mut().cast() };
        self.get_each(keys.iter().map(word), look)
    }

    fn get_each(
        &self,
        keys: impl Iterator<Item = Bytes>,
        mut look: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let Functions { txn_renew, txn_reset, get, .. } = self.functions;
        // SAFETY: the reader was reset; LMDB does not change keys; a value stays until the reader is reset.
        unsafe {
            self.functions.check(txn_renew(self.reader))?;
            for mut key in keys {
                let mut value = Bytes { count: 0, at: ptr::null_mut() };
                self.functions.check(get(self.reader, self.table, &mut key, &mut value))?;
                look(value.slice())?;
            }
            txn_reset(self.reader);
        }
        Ok(())
    }

    /// Scans in one transaction: of each range the first key that is not below this one, and so many in all,
    /// as far as there are.
    pub fn scan<'a>(
        &self,
        ranges: impl Iterator<Item = (&'a [u8], usize)>,
        mut look: impl FnMut(&[u8], &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let Functions { txn_renew, txn_reset, cursor_open, cursor_get, cursor_close, .. } = self.functions;
        let mut cursor = ptr::null_mut();
        // SAFETY: as in `get`; the cursor is closed before its transaction is reset, whatever comes.
        unsafe {
            self.functions.check(txn_renew(self.reader))?;
            let opened = self.functions.check(cursor_open(self.reader, self.table, &mut cursor));
            let mut scan = |first: &[u8], count: usize| {
                let (mut key, mut value) = (Bytes::of(first), Bytes { count: 0, at: ptr::null_mut() });
                for at in 0..count {
                    let to = if at == 0 { SET_RANGE } else { NEXT };
                    match cursor_get(cursor, &mut key, &mut value, to) {
                        NOT_FOUND => break,
                        code => self.functions.check(code)?,
                    }
                    look(key.slice(), value.slice())?;
                }
                Ok(())
            };
            let mut ranges = ranges;
            let scanned = opened.and_then(|()| ranges.try_for_each(|(first, count)| scan(first, count)));
            if !cursor.is_null() {
                cursor_close(cursor);
            }
            txn_reset(self.reader);
            scanned
        }
    }

    /// Puts these values in one transaction.
    pub fn put<'a>(&self, items: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<(), String> {
        let txn = self.begin(0)?;
        for (key, value) in items {
            // SAFETY: the transaction has begun; LMDB copies key and value.
            let code = unsafe {
                (self.functions.put)(txn, self.table, &mut Bytes::of(key), &mut Bytes::of(value), 0)
            };
            if let Err(error) = self.functions.check(code) {
                // SAFETY: as above; it is not used again.
                unsafe { (self.functions.txn_abort)(txn) };
                return Err(error);
            }
        }
        // SAFETY: as above; it is not used again.
        let code = unsafe { (self.functions.txn_commit)(txn) };
        self.functions.check(code)
    }

    /// Memory that its file has.
    pub fn memory_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(self.folder.join("data.mdb")).map_or(0, |metadata| metadata.blocks() * 512)
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // SAFETY: the reader is not used any more, and closed before its environment; both may not have been
        // opened.
        unsafe {
            if !self.reader.is_null() {
                (self.functions.txn_abort)(self.reader);
            }
            if !self.env.is_null() {
                (self.functions.close)(self.env);
            }
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
