//! Ways to keys of ordered tables: numbers with 8-byte values, as in XStore's evaluation, unless they are
//! items.

use kelix::{Path, Rows, TableId, TableKind};
use kelix_image::inline_item;
use kelix_wire::{FrameBuffer, Op, ReplyHead, RequestHead, Status, encode_reply, encode_request};

use super::model::Work;
use super::paths::{BUSY_BATCH, Tapped, Timed, Way, scan_from, text, with_times};
use super::processor::{self, Times, on_one_core};
use super::verbs;
use crate::baselines::TreeServer;
use crate::ordered::keys::{numbers, shuffle};
use crate::ordered::tree::{Asked, LOAD_ORDER, Tree, check, key_of, value_of};

/// Operations that are counted.
const COUNTED: usize = 2000;
/// Operations of a round in which processor times are taken, and those that take longer.
const TIMED: usize = 20 * BUSY_BATCH;
const TIMED_SCANS: usize = 1000;
/// Keys that operations are about while they are timed, so that their memory is at hand.
const HOT: usize = 1000;
/// Bytes of an inner node of the tree with cached inner nodes: as many as our leaf has, and those of a tree
/// as deep as XStore's.
const NODE_BYTES: usize = 320;
const NODE_BYTES_DEEP: usize = 256;
/// Levels of inner nodes that Cell READs: of 100 million keys, nodes for 16 keys two thirds full are seven
/// levels, of which it has copied the upper four (XStore, evaluation: 14.5 M/s with four levels, and 14 M/s
/// for Cell).
const LEVELS_READ: usize = 3;

/// Measures.
pub(super) fn measure(records: u64) -> Result<Vec<Way>, String> {
    let numbers = numbers("noised", records);
    let asked = Asked::draw(&numbers, 83, COUNTED).numbers;
    let mut ways = inline(&numbers, &asked)?;
    let tree = on_one_core(|| Tree::of_numbers(TableKind::Numbers, &numbers))?;
    // Pointers to items are remembered, so others are asked for before anything is counted.
    let others = Asked::draw(&numbers, 82, COUNTED).numbers;
    let work = get(&tree, Path::Auto, [&others, &asked])?;
    let work = with_times(work, &looking(&tree, &asked)?);
    ways.push(Way::one("ordered_item", "ordered, get an item of 32 bytes by models", work));
    Ok(ways)
}

fn inline(numbers: &[u64], asked: &[u64]) -> Result<Vec<Way>, String> {
    let tree = on_one_core(|| Tree::of_numbers(TableKind::Inline, numbers))?;
    let learned = with_times(get(&tree, Path::Auto, [asked, asked])?, &looking(&tree, asked)?);
    let message = without_model(get(&tree, Path::Message, [asked, asked])?);
    let message = with_times(message, &asking(&tree, numbers)?);
    let told = tree.statistics()?;
    let bytes = |name: &str| told[name].as_u64().ok_or(format!("statistics tell no {name}"));
    let models = (bytes("model_bytes")? + bytes("table_bytes")?) as usize;
    let mut order = numbers.to_vec();
    shuffle(&mut order, LOAD_ORDER);
    let beside = TreeServer::start(&order, |number| value_of(number, 0), NODE_BYTES)?;
    let equal = through_copies(&beside, models, asked)?;
    let deep = TreeServer::start(&order, |number| value_of(number, 0), NODE_BYTES_DEEP)?;
    let upper = through_copies(&deep, deep.bytes_above(LEVELS_READ), asked)?;
    let scan = scans(&tree, asked)?;
    Ok(vec![
        Way::one("ordered_get", "ordered, get 8 bytes by models", learned),
        Way::one("ordered_message", "ordered, get 8 bytes by message", message),
        Way::one("ordered_inner", "the same, inner nodes of as many bytes copied", equal),
        Way::one("ordered_inner_upper", "the same, upper levels of inner nodes copied", upper),
        Way::one("ordered_scan", "ordered, scan 100 rows of 8 bytes", scan),
    ])
}

/// Gets one by one, of some numbers before anything is counted and of some that are.
fn get(tree: &Tree, path: Path, asked: [&[u64]; 2]) -> Result<Work, String> {
    let mut turns = asked.into_iter().cycle();
    Tapped::open(&tree.store, "ordered", path)?.count(|Tapped { session, table, .. }| {
        let asked = turns.next().expect("a cycle does not end");
        let mut value = [0; 32];
        for number in asked {
            let found = session.get_into(*table, &key_of(*number), &mut value).map_err(text)?;
            check(*number, found.map(|(bytes, _)| &value[..bytes]))?;
        }
        Ok(asked.len())
    })
}

/// A get by message with the bytes that it has in shared memory. Elsewhere a session asks for the key's
/// sub-model as well, which is no part of a tree that is asked for everything.
fn without_model(work: Work) -> Work {
    let (table, mut request, mut reply) = (TableId(0), FrameBuffer::default(), FrameBuffer::default());
    encode_request(&mut request, RequestHead::new(Op::Get, 0, table), &key_of(0), &[]);
    encode_reply(&mut reply, ReplyHead { id: 0, status: Status::Ok, version: 0, location: 0 });
    let item = inline_item(table, key_of(0), 0);
    Work {
        write_in_bytes: verbs::frame_bytes(request.payload().len()),
        write_out_bytes: verbs::frame_bytes(reply.payload().len() + item.len()),
        ..work
    }
}

/// Times of a get without a message.
fn looking(tree: &Tree, asked: &[u64]) -> Result<Times, String> {
    let mut reader = tree.here(Path::Auto)?;
    processor::of(|| {
        for number in asked.iter().take(HOT).cycle().take(TIMED) {
            reader.get(*number)?;
        }
        Ok(TIMED as u64)
    })
}

/// Times of a get by message.
fn asking(tree: &Tree, numbers: &[u64]) -> Result<Times, String> {
    let keys: Vec<[u8; 8]> = Asked::draw(numbers, 84, TIMED).numbers.into_iter().map(key_of).collect();
    Timed::open(&tree.store, "ordered", Path::Message)?.time(|timed| timed.get_in_batches(&keys))
}

/// Gets by a client of a tree that READs it by itself, with so many bytes of copies, one by one: each READ
/// follows from the one before.
fn through_copies(server: &TreeServer, cache_bytes: usize, asked: &[u64]) -> Result<Work, String> {
    let (mut client, mut here) = (server.remote(cache_bytes)?, server.here(cache_bytes)?);
    let mut values = Vec::new();
    // What it has room for it copies once.
    client.get_many(asked, &mut values)?;
    let before = client.cost;
    for number in asked {
        client.get_many(&[*number], &mut values)?;
        check(*number, values.first().map(|value| value.to_le_bytes()).as_ref().map(|value| &value[..]))?;
    }
    let each = |now: u64, before: u64| (now - before) as f64 / asked.len() as f64;
    let reads = each(client.cost.reads, before.reads);
    let read_bytes = each(client.cost.read_bytes, before.read_bytes);
    let times = processor::of(|| {
        for number in asked.iter().take(HOT).cycle().take(TIMED) {
            here.get_many(&[*number], &mut values)?;
        }
        Ok(TIMED as u64)
    })?;
    Ok(with_times(Work { reads, read_bytes, read_rounds: reads, ..Work::default() }, &times))
}

fn scans(tree: &Tree, asked: &[u64]) -> Result<Work, String> {
    // A few thousand rows more or less say the same.
    let asked = &asked[..asked.len() / 10];
    let mut rows = Rows::new();
    let mut tapped = Tapped::open(&tree.store, "ordered", Path::Auto)?;
    let work = tapped.count(|Tapped { session, table, .. }| {
        for number in asked {
            session.scan_into(*table, &scan_from(&key_of(*number)), &mut rows).map_err(text)?;
        }
        Ok(asked.len())
    })?;
    let mut timed = Timed::open(&tree.store, "ordered", Path::Auto)?;
    let times = timed.time(|Timed { session, table, .. }| {
        for number in asked.iter().cycle().take(TIMED_SCANS) {
            session.scan_into(*table, &scan_from(&key_of(*number)), &mut rows).map_err(text)?;
        }
        Ok(TIMED_SCANS as u64)
    })?;
    Ok(with_times(work, &times))
}
