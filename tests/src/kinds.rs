//! Tables of each kind and a large value, all of one counter, which whoever looks can check.

use kelix::{Result, Rows, Scan, Session, Table, TableKind, Values};

use crate::value;

/// Keys of each table, from 0 on.
const KEYS: u64 = 2000;
/// Keys of the values that stand in page runs.
const LARGE: std::ops::Range<u64> = KEYS..KEYS + 4;
const LARGE_BYTES: usize = 1_500_000;

/// The tables.
pub struct Kinds(Vec<Table>);

fn key(table: Table, number: u64) -> Vec<u8> {
    match table.kind() {
        TableKind::Strings => format!("key {number:06}").into_bytes(),
        _ => number.to_be_bytes().to_vec(),
    }
}

fn bytes_of(table: Table, number: u64, counter: u64) -> Vec<u8> {
    match table.kind() {
        TableKind::Inline => counter.to_le_bytes().to_vec(),
        _ if LARGE.contains(&number) => value::make(number, counter, LARGE_BYTES),
        _ => value::make(number, counter, 60 + number as usize % 700),
    }
}

/// The counter of a value, which must prove itself.
#[track_caller]
fn counter_of(table: Table, number: u64, bytes: &[u8]) -> u64 {
    match table.kind() {
        TableKind::Inline => u64::from_le_bytes(bytes.try_into().expect("8 bytes")),
        _ => value::check(number, bytes).unwrap_or_else(|what| panic!("a wrong read: {what}")),
    }
}

impl Kinds {
    /// Opens them, and makes those that are not there.
    pub fn open(session: &mut Session) -> Result<Kinds> {
        let kinds = [TableKind::Hash, TableKind::Inline, TableKind::Numbers, TableKind::Strings];
        let table = |(number, kind)| session.create_table_of(kind, &format!("kinds {number}"));
        (1..).zip(kinds).map(table).collect::<Result<_>>().map(Kinds)
    }

    /// Puts everything with this counter.
    #[track_caller]
    pub fn put(&self, session: &mut Session, counter: u64) {
        for table in &self.0 {
            for number in 0..KEYS {
                let value = bytes_of(*table, number, counter);
                session.put(*table, &key(*table, number), &value).expect("a put");
            }
        }
        for number in LARGE {
            let value = bytes_of(self.0[0], number, counter);
            session.put(self.0[0], &key(self.0[0], number), &value).expect("a large put");
        }
    }

    /// Reads everything in each way, and calls `check` with each counter.
    pub fn read(&self, session: &mut Session, mut check: impl FnMut(u64)) -> Result<()> {
        let mut buffer = vec![0; LARGE_BYTES];
        let mut rows = Rows::new();
        for table in &self.0 {
            for number in (0..KEYS).step_by(3) {
                let (length, _) = session
                    .get_into(*table, &key(*table, number), &mut buffer)?
                    .expect("a key that is there");
                check(counter_of(*table, number, &buffer[..length]));
            }
            self.read_batch(session, *table, &mut check)?;
            if table.kind().is_ordered() {
                session.scan_into(*table, &Scan::all(), &mut rows)?;
                assert_eq!(rows.len() as u64, KEYS);
                for number in 0..KEYS {
                    assert_eq!(rows.key(number as usize), key(*table, number));
                    check(counter_of(*table, number, rows.value(number as usize)));
                }
            }
        }
        for number in LARGE {
            let item = session.get(self.0[0], &key(self.0[0], number))?.expect("a key that is there");
            check(counter_of(self.0[0], number, item.value()));
        }
        Ok(())
    }

    /// Reads all small values of all tables, so many at once that a session seldom looks around.
    pub fn read_batches(&self, session: &mut Session, mut check: impl FnMut(u64)) -> Result<()> {
        self.0.iter().try_for_each(|table| self.read_batch(session, *table, &mut check))
    }

    fn read_batch(&self, session: &mut Session, table: Table, check: &mut impl FnMut(u64)) -> Result<()> {
        let keys: Vec<Vec<u8>> = (0..KEYS).map(|number| key(table, number)).collect();
        let slices: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut values = Values::new();
        session.multi_get_into(table, &slices, &mut values)?;
        for number in 0..KEYS {
            let value = values.get(number as usize).expect("a key that is there");
            check(counter_of(table, number, value));
        }
        Ok(())
    }
}
