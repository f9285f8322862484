//! Rows that are counted: READs and bytes of gets, bytes of models, requests to the shard. A busy machine
//! does not change them.

use kelix::{Cost, FabricChoice, Path, TableKind};

use super::keys::{self, shuffle};
use super::tree::{Asked, Reader, Tree, text};
use super::{Size, figure};
use kelix_report::report::{Row, Sense};

/// Gets of a row in shared memory, and over TCP.
const GETS: usize = 200_000;
const GETS_TCP: usize = 20_000;

/// The rows about numbers.
pub(super) fn rows_of_numbers(size: &Size) -> Result<Vec<Row>, String> {
    let mut rows = leaf_reads(size)?;
    rows.push(any_reads(size)?);
    rows.extend(cache_bytes(size)?);
    rows.push(read_cpu(size)?);
    Ok(rows)
}

/// READs and bytes of a get of every set of numbers, and of those of a file.
fn leaf_reads(size: &Size) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for name in keys::NUMBERS {
        rows.extend(leaf_reads_of(name, &keys::numbers(name, size.records), size)?);
    }
    if let Some(real) = &size.real {
        rows.extend(leaf_reads_of("file", real, size)?);
    }
    Ok(rows)
}

fn leaf_reads_of(name: &str, numbers: &[u64], size: &Size) -> Result<Vec<Row>, String> {
    let tree = Tree::of_numbers(TableKind::Inline, numbers)?;
    let here = each_get(&mut tree.here(Path::Auto)?, numbers, size.few(GETS))?;
    let tcp = each_get(&mut tree.reader(FabricChoice::Tcp, Path::Index)?, numbers, size.few(GETS_TCP))?;
    let note = format!(
        "{} keys; {:.4} messages a get; by READs over TCP {:.3}, {:.0} bytes, {:.4} messages",
        numbers.len(),
        here.messages,
        tcp.reads,
        tcp.bytes,
        tcp.messages
    );
    let reads = format!("READs of leaves a get, {name} numbers");
    let bytes = format!("bytes READ a get, {name} numbers");
    Ok(vec![
        figure(format!("leaf_reads_{name}"), reads, here.reads, "READs", (Sense::AtMost, 1.05), &note),
        figure(format!("leaf_bytes_{name}"), bytes, here.bytes, "bytes", (Sense::AtMost, 330.0), ""),
    ])
}

/// What one get costs on average.
struct Each {
    reads: f64,
    bytes: f64,
    messages: f64,
}

impl Each {
    fn of(cost: Cost, gets: usize) -> Each {
        let each = |count: u64| count as f64 / gets as f64;
        Each { reads: each(cost.reads), bytes: each(cost.read_bytes), messages: each(cost.messages) }
    }
}

fn each_get(reader: &mut Reader, numbers: &[u64], gets: usize) -> Result<Each, String> {
    let asked = Asked::draw(numbers, 31, gets);
    // Models that a client copies are copied before anything is counted, and sub-models that come with
    // replies have come. Other numbers are asked for, since over TCP pointers to items are remembered.
    get_all(reader, &Asked::draw(numbers, 30, gets).numbers)?;
    let ((), cost) = reader.cost_of(|reader| get_all(reader, &asked.numbers))?;
    Ok(Each::of(cost, gets))
}

fn get_all(reader: &mut Reader, numbers: &[u64]) -> Result<(), String> {
    numbers.iter().try_for_each(|number| reader.get(*number).map(drop))
}

/// READs of a get of every set of strings, and how many of them need no message.
pub(super) fn rows_of_strings(size: &Size) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for name in keys::STRINGS {
        let strings = keys::strings(name, size.records);
        let mut tree = Tree::start(TableKind::Strings, size.records)?;
        tree.put_strings(&strings)?;
        let gets = size.few(GETS);
        let mut reader = tree.here(Path::Auto)?;
        let drawn = crate::store::Numbers(31).records(strings.len() as u64, gets);
        let get = |reader: &mut Reader| {
            drawn.iter().try_for_each(|index| reader.get_string(&strings[*index as usize]))
        };
        get(&mut reader)?;
        let each = Each::of(reader.cost_of(get)?.1, gets);
        let note = format!(
            "{} keys of {:.0} bytes; {:.0} bytes a get",
            strings.len(),
            strings.iter().map(Vec::len).sum::<usize>() as f64 / strings.len() as f64,
            each.bytes
        );
        let reads = format!("READs a get, {name}");
        let share = format!("gets without a message, {name}");
        rows.push(figure(
            format!("string_reads_{name}"),
            reads,
            each.reads,
            "READs",
            (Sense::AtMost, 2.3),
            &note,
        ));
        let (id, without) = (format!("string_learned_{name}"), 1.0 - each.messages);
        rows.push(figure(id, share, without, "of all gets", (Sense::AtLeast, 0.95), ""));
        let cache = Cache::of(&tree)?;
        let (id, name) =
            (format!("string_cache_{name}"), format!("bytes of models and tables a key, {name}"));
        let note = format!("{:.2} keys a leaf; {} sub-models", cache.a_leaf, cache.sub_models);
        rows.push(figure(id, name, cache.models + cache.tables, "bytes", (Sense::AtMost, 1.5), &note));
    }
    Ok(rows)
}

/// READs of a get whose value is an item.
fn any_reads(size: &Size) -> Result<Row, String> {
    let numbers = keys::numbers("noised", size.records);
    let tree = Tree::of_numbers(TableKind::Numbers, &numbers)?;
    let here = each_get(&mut tree.here(Path::Auto)?, &numbers, size.few(GETS))?;
    let tcp = each_get(&mut tree.reader(FabricChoice::Tcp, Path::Index)?, &numbers, size.few(GETS_TCP))?;
    let note = format!(
        "noised numbers, values of 32 bytes; {:.0} bytes, {:.4} messages a get; by READs over TCP {:.3}, {:.4} \
         messages",
        here.bytes, here.messages, tcp.reads, tcp.messages
    );
    let name = "READs a get, values in items";
    Ok(figure("any_reads", name, here.reads, "READs", (Sense::AtMost, 2.1), &note))
}

/// What models and translation tables take, fresh and after churn.
fn cache_bytes(size: &Size) -> Result<Vec<Row>, String> {
    let mut numbers = keys::numbers("noised", size.records);
    let mut tree = Tree::of_numbers(TableKind::Inline, &numbers)?;
    let fresh = Cache::of(&tree)?;
    let note = |cache: &Cache| {
        format!(
            "noised numbers; {} keys, {:.2} a leaf; {} sub-models",
            cache.keys, cache.a_leaf, cache.sub_models
        )
    };
    let mut rows = vec![
        figure(
            "cache_model",
            "bytes of models a key",
            fresh.models,
            "bytes",
            (Sense::AtMost, 0.07),
            &note(&fresh),
        ),
        figure(
            "cache_table",
            "bytes of models and translation tables a key",
            fresh.models + fresh.tables,
            "bytes",
            (Sense::AtMost, 0.8),
            &note(&fresh),
        ),
    ];
    shuffle(&mut numbers, 32);
    let (gone, _) = numbers.split_at(numbers.len() / 2);
    // The others stand between the same multiples of 16.
    let others: Vec<u64> = gone.iter().map(|number| number & !15 | (number + 7) & 15).collect();
    for (gone, others) in gone.chunks(256).zip(others.chunks(256)) {
        for number in gone {
            let was_there = tree.store.session.delete(tree.table, &number.to_be_bytes()).map_err(text)?;
            if !was_there {
                return Err(format!("{number} was put, and was absent when it was deleted"));
            }
        }
        tree.put(others)?;
    }
    tree.settle()?;
    let churned = Cache::of(&tree)?;
    if churned.keys != numbers.len() as u64 {
        return Err(format!("{} keys are left of {}", churned.keys, numbers.len()));
    }
    let name = "bytes of models and translation tables a key after churn";
    let bytes = churned.models + churned.tables;
    let note = format!("half of the keys replaced by others; {}", note(&churned));
    rows.push(figure("cache_churned", name, bytes, "bytes", (Sense::AtMost, 1.2), &note));
    Ok(rows)
}

/// What the server tells of a table's models.
struct Cache {
    keys: u64,
    a_leaf: f64,
    sub_models: u64,
    /// Bytes a key.
    models: f64,
    tables: f64,
}

impl Cache {
    fn of(tree: &Tree) -> Result<Cache, String> {
        let told = tree.statistics()?;
        let number = |name: &str| told[name].as_u64().ok_or(format!("statistics tell no {name}"));
        let keys = number("keys")?;
        let each = |bytes: u64| bytes as f64 / keys.max(1) as f64;
        Ok(Cache {
            keys,
            a_leaf: keys as f64 / number("leaves")?.max(1) as f64,
            sub_models: number("sub_models")?,
            models: each(number("model_bytes")?),
            tables: each(number("table_bytes")?),
        })
    }
}

/// Messages that the shard gets while it is only read.
fn read_cpu(size: &Size) -> Result<Row, String> {
    let numbers = keys::numbers("noised", size.records);
    let tree = Tree::of_numbers(TableKind::Inline, &numbers)?;
    let mut reader = tree.here(Path::Auto)?;
    let gets = size.few(5 * GETS);
    let asked = Asked::draw(&numbers, 33, gets);
    get_all(&mut reader, &asked.numbers)?;
    let told = || {
        let shard = tree.store.shard()?;
        let requests = shard["requests"].as_u64().ok_or("statistics tell no requests")?;
        Ok::<_, String>((requests, shard["cpu_s"].as_f64().unwrap_or(0.0)))
    };
    let before = told()?;
    get_all(&mut reader, &asked.numbers)?;
    let after = told()?;
    let cpu = (after.1 - before.1) * 1e3;
    let note = format!("{gets} gets in shared memory; {cpu:.1} ms of the shard's processor time meanwhile");
    let name = "requests to the shard during gets";
    let requests = (after.0 - before.0) as f64;
    Ok(figure("read_cpu", name, requests, "requests", (Sense::AtMost, 0.0), &note))
}
