//! Ordered tables through the public interface: what reads of them cost, and scans while keys come and go.

use std::sync::atomic::{AtomicBool, Ordering};

use kelix::{Cost, Path, Rows, Scan, Session, Table, TableKind, Values};
use kelix_tests::process::{ServerProcess, ServerProgram, patient};
use kelix_tests::{Random, RunDir, breaks, check_one_sided, fewer, until, watchdog};

const ORDERED: [TableKind; 3] = [TableKind::Inline, TableKind::Numbers, TableKind::Strings];

fn server(run: &RunDir) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards: 1, memory_bytes: 256 << 20, take_over: false }
        .serve()
}

/// A key of a kind.
fn key(kind: TableKind, number: u64) -> Vec<u8> {
    match kind.has_numbers() {
        true => (number * 1000).to_be_bytes().to_vec(),
        false => format!("user{number:010}").into_bytes(),
    }
}

fn value(number: u64) -> [u8; 8] {
    (number ^ 0x5555_5555).to_le_bytes()
}

fn load(session: &mut Session, table: Table, numbers: impl Iterator<Item = u64>) {
    let items: Vec<(Vec<u8>, [u8; 8])> =
        numbers.map(|number| (key(table.kind(), number), value(number))).collect();
    for items in items.chunks(1000) {
        let items: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        session.multi_put(table, &items).unwrap().into_iter().for_each(|put| assert!(put.is_ok()));
    }
}

/// READs of a session, but those that were done once more since the session had stood still.
fn timely_reads(cost: Cost) -> u64 {
    cost.reads - cost.retries
}

/// Gets were answered by message without anybody noticing, because what is asked is answered rightly: all
/// keys of tables of strings with few leaves.
#[test]
fn gets_leave_the_shard_alone() {
    let _watchdog = watchdog("ordered gets");
    let run = RunDir::new();
    let server = server(&run);
    for (number, kind) in ORDERED.into_iter().enumerate() {
        for count in [1, 40, 3000] {
            let mut near = server.session();
            let name = format!("{number} {count}");
            let table = near.create_table_of(kind, &name).unwrap();
            load(&mut near, table, 0..count);
            let keys: Vec<Vec<u8>> = (0..count).map(|number| key(kind, number)).collect();
            let slices: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            // Through the models only: pointers lead past them.
            let far = server.far_session_by(Path::Index);
            for (session, reads_a_get) in [(near, 2.0), (far, 2.6)] {
                let mut session = session;
                let table = session.table(&name).unwrap();
                let mut buffer = [0; 8];
                // Over verbs memory is read once it is registered.
                until("its memory is known", || {
                    let before = session.cost();
                    session.get_into(table, &keys[0], &mut buffer).unwrap().expect("just put");
                    session.cost().since(before).messages == 0
                });
                let before = session.cost();
                for (number, key) in keys.iter().enumerate() {
                    session.get_into(table, key, &mut buffer).unwrap().expect("just put");
                    assert_eq!(buffer, value(number as u64));
                }
                let mut values = Values::new();
                session.multi_get_into(table, &slices, &mut values).unwrap();
                for number in 0..count {
                    assert_eq!(values.get(number as usize), Some(&value(number)[..]));
                }
                let reads = timely_reads(session.cost().since(before));
                if kind.has_numbers() {
                    // A leaf proves that a key is absent.
                    assert!(session.get_into(table, &7u64.to_be_bytes(), &mut buffer).unwrap().is_none());
                }
                // Scans are read too; of strings only upwards.
                let half = Scan::all().range(&keys[count as usize / 2]..);
                let mut scans = vec![Scan::all(), half.clone().limit(7), half];
                if kind.has_numbers() {
                    scans.push(Scan::all().backwards());
                }
                let mut rows = vec![Rows::new(); scans.len()];
                session.multi_scan_into(table, &scans, &mut rows).unwrap();
                for (rows, wanted) in
                    rows.iter().zip([count, 7.min(count - count / 2), count - count / 2, count])
                {
                    assert_eq!(rows.len() as u64, wanted, "{kind}, {count} keys, {}", session.fabric());
                    check(kind, rows, None);
                }
                let cost = session.cost().since(before);
                let what = format!("{kind}, {count} keys, {}: {cost:?}", session.fabric());
                check_one_sided(cost, &what);
                let each = reads as f64 / (2 * count) as f64;
                assert!(count < 3000 || each <= reads_a_get, "{what}");
            }
        }
    }
}

/// With less room for copies of models a get takes more READs, and is as right.
#[test]
fn less_room_for_models_means_more_reads() {
    let _watchdog = watchdog("room for models");
    let run = RunDir::new();
    let server = server(&run);
    let mut near = server.session();
    let table = near.create_table_of(TableKind::Inline, "numbers").unwrap();
    let count = 20_000;
    load(&mut near, table, 0..count);
    let mut reads = Vec::new();
    for model_bytes in [1 << 20, 2500, 400, 0] {
        let options = patient().model_bytes(model_bytes).path(Path::Index);
        let mut session = server.far_session(options);
        let table = session.table("numbers").unwrap();
        let mut random = Random(5);
        let mut buffer = [0; 8];
        for _ in 0..2 {
            let before = session.cost();
            for _ in 0..1000 {
                let number = random.below(count);
                session.get_into(table, &key(TableKind::Inline, number), &mut buffer).unwrap().expect("put");
                assert_eq!(buffer, value(number));
            }
            reads.push(session.cost().since(before));
        }
    }
    // The first round of each learns.
    let reads: Vec<u64> = reads.into_iter().skip(1).step_by(2).map(timely_reads).collect();
    assert!(
        breaks() || reads[0] < 1500 && reads[1] >= 1900 && reads[2] >= 2900 && reads[3] == 0,
        "{reads:?}"
    );
}

/// What one session over a fabric that is not shared memory has READ of the models, others need not, unless
/// they want to be alone.
#[test]
fn sessions_share_copies_of_models() {
    let _watchdog = watchdog("shared copies of models");
    let run = RunDir::new();
    let server = server(&run);
    for (kind, looks) in [(TableKind::Inline, 1), (TableKind::Strings, 2)] {
        let name = kind.to_string();
        let mut near = server.session();
        let table = near.create_table_of(kind, &name).unwrap();
        let count = 20_000;
        load(&mut near, table, 0..count);
        let open = |private_caches: bool| {
            let options = patient().path(Path::Index).private_caches(private_caches);
            server.far_session(options)
        };
        // READs beside those of leaves and items.
        let extra = |session: &mut Session| {
            let table = session.table(&name).unwrap();
            let before = session.cost();
            let (mut random, mut buffer) = (Random(3), [0; 8]);
            for _ in 0..1000 {
                let number = random.below(count);
                session.get_into(table, &key(kind, number), &mut buffer).unwrap().expect("put");
                assert_eq!(buffer, value(number));
            }
            timely_reads(session.cost().since(before)) - 1000 * looks
        };
        let (mut first, mut second, mut alone) = (open(false), open(false), open(true));
        let (of_first, of_second, of_alone) = (extra(&mut first), extra(&mut second), extra(&mut alone));
        let what = format!("{kind}: {of_first}, {of_second}, {of_alone}");
        // A table for each sub-model, of which there is one for some hundreds of keys. The younger a leaf is
        // than all that a session has seen, the sooner it is read twice, so no two sessions read as often.
        assert!(breaks() || of_first > 20 && of_alone > 20 && of_second < 15, "{what}");
        // The leaves of the second half split. One session learns where its keys are now from the shard, and
        // the other from it.
        load(&mut near, table, count..2 * count);
        load(&mut near, table, (count..2 * count).map(|number| number + 7 * count));
        let (of_first, of_second) = (extra(&mut first), extra(&mut second));
        assert!(breaks() || of_second <= of_first, "{kind}: {of_first}, {of_second}");
    }
}

/// Keys that are there all the time come exactly once, others at most once, in order, forwards and backwards,
/// over shared memory and over the other fabric, while leaves split and merge.
#[test]
fn scans_lose_no_key_while_others_come_and_go() {
    let _watchdog = watchdog("ordered scans");
    let run = RunDir::new();
    let server = server(&run);
    for (number, kind) in ORDERED.into_iter().enumerate() {
        let mut writer = server.session();
        let name = format!("scanned {number}");
        let table = writer.create_table_of(kind, &name).unwrap();
        let stay = 400u64;
        load(&mut writer, table, (0..stay).map(|number| number * 8));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(number as u64 + 1);
                for round in 0..fewer(12).max(2) {
                    for _ in 0..2000 {
                        let number = random.below(stay * 8);
                        if number % 8 == 0 {
                            // A value that is there stays what it is; only its item does not.
                            writer.put(table, &key(kind, number), &value(number)).unwrap();
                        } else if round % 2 == 0 {
                            writer.put(table, &key(kind, number), &value(number)).unwrap();
                        } else {
                            writer.delete(table, &key(kind, number)).unwrap();
                        }
                    }
                }
                done.store(true, Ordering::SeqCst);
            });
            let mut sessions = [server.session(), server.far_session_by(Path::Auto)];
            let mut rows = Rows::new();
            let mut scans = 0;
            while !done.load(Ordering::SeqCst) || scans < 8 {
                scan_all(&mut sessions[scans % 2], &name, scans / 2 % 2 == 1, &mut rows);
                check(kind, &rows, Some((stay, scans / 2 % 2 == 1)));
                scans += 1;
            }
        });
    }
}

/// The same while the shard lays leaves out, which it does of tables that have some thousand: no scan meets a
/// leaf twice, or misses one that moves meanwhile.
#[test]
fn scans_lose_no_key_while_leaves_are_laid_out() {
    let _watchdog = watchdog("ordered scans beside a layout");
    let run = RunDir::new();
    let server = server(&run);
    let client = server.client();
    for (number, kind) in ORDERED.into_iter().enumerate() {
        let mut writer = server.session();
        let name = format!("laid out {number}");
        let table = writer.create_table_of(kind, &name).unwrap();
        let stay = 3000u64;
        load(&mut writer, table, (0..stay).map(|number| number * 8));
        let laid_out = || {
            let shard = &client.statistics().unwrap().shards[0];
            let tables = shard.ordered.iter().filter(|of| of.table == u64::from(table.id().0));
            tables.map(|of| of.laid_out).sum::<u64>()
        };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(number as u64 + 1);
                while !done.load(Ordering::SeqCst) {
                    let others = (0..1000).map(|_| random.below(stay * 8)).filter(|number| number % 8 != 0);
                    let others: Vec<u64> = others.collect();
                    load(&mut writer, table, others.iter().copied());
                    for number in others.iter().step_by(3) {
                        writer.delete(table, &key(kind, *number)).unwrap();
                    }
                }
            });
            let mut sessions = [server.session(), server.far_session_by(Path::Auto)];
            let mut rows = Rows::new();
            let mut scans = 0;
            let (mut seen, mut beside) = (0, 0);
            until("leaves were laid out beside ten scans", || {
                scan_all(&mut sessions[scans % 2], &name, scans / 2 % 2 == 1, &mut rows);
                check(kind, &rows, Some((stay, scans / 2 % 2 == 1)));
                scans += 1;
                let before = std::mem::replace(&mut seen, laid_out());
                beside += u64::from(seen > before);
                beside >= 10 && seen > 1000
            });
            done.store(true, Ordering::SeqCst);
        });
    }
}

/// Scans a whole table.
fn scan_all(session: &mut Session, table: &str, backwards: bool, rows: &mut Rows) {
    let table = session.table(table).unwrap();
    let scan = if backwards { Scan::all().backwards() } else { Scan::all() };
    session.scan_into(table, &scan, rows).unwrap();
}

/// Checks the keys and values of a scan, and if it is told how many numbers stay and which way the scan went,
/// that those are there.
fn check(kind: TableKind, rows: &Rows, stays: Option<(u64, bool)>) {
    let mut found: Vec<u64> = (0..rows.len())
        .map(|row| {
            let key = rows.key(row);
            let number = match kind.has_numbers() {
                true => u64::from_be_bytes(key.try_into().unwrap()) / 1000,
                false => std::str::from_utf8(&key[4..]).unwrap().parse().unwrap(),
            };
            assert_eq!((self::key(kind, number), &value(number)[..]), (key.to_vec(), rows.value(row)));
            number
        })
        .collect();
    let Some((stay, backwards)) = stays else { return };
    if backwards {
        found.reverse();
    }
    assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{kind}: out of order, or twice");
    let stayed = found.iter().filter(|number| **number % 8 == 0).count() as u64;
    assert_eq!(stayed, stay, "{kind}: keys that were there all the time");
}
