//! `kelix plan`: how much memory and how many shards a server needs.

mod memory;

use std::io::Write;

use kelix_types::limits::{
    KEY_BYTES_MAX, NAMES_MAX, PLACE_BITS, SHARD_BYTES_MIN, SHARDS_MAX, VALUE_BYTES_MAX,
};
use kelix_wire::View;
use serde_json::json;

use crate::Failure;
use crate::context::{Context, plural};
use crate::table::KindArgs;
use crate::units::{parse_count, parse_size, show_size, within};
use memory::{Need, Shape};

/// Tell how much memory and how many shards a server needs
///
/// It says what so many items take: their slots, the index, and what rests until no reader can meet it while
/// items are replaced. The memory to give is that of the shard with the largest share, with a quarter to
/// spare, since slabs come back only with a whole segment; it is rounded up. Several tables are planned one
/// by one, and added up. Keys are taken to come in no order; an ordered table whose keys come in order needs
/// a third less for its leaves.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix plan --items 10000000 --key 16 --value 32
  kelix plan --items 2000000 --key 24 --value 1K --attributes 5 --puts-per-second 20000
  kelix plan --items 50000000 --ordered --keys u64 --values inline8
  kelix plan --items 1000000 --key 8 --value 100 --shards 2 --json | jq -r .command")]
pub(crate) struct PlanArgs {
    /// How many items there will be, as in 10000000, 10M or 1e7
    #[arg(long, value_name = "N", value_parser = parse_count)]
    items: u64,
    /// Bytes of a key, on average [default: 8 where keys are numbers]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, required_unless_present = "keys")]
    key: Option<u64>,
    /// Bytes of a value, on average; with --attributes of all of them together [default: 8 where values are
    /// numbers]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, required_unless_present = "values")]
    value: Option<u64>,
    /// The value is made of so many attributes
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse_count)]
    attributes: u64,
    #[command(flatten)]
    kind: KindArgs,
    /// Shards of the server [default: one for each 500,000 puts a second]
    #[arg(long, value_name = "N", value_parser = within::<u64>(1, SHARDS_MAX as u64))]
    shards: Option<u64>,
    /// How many items are replaced a second
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse_count)]
    puts_per_second: u64,
}

/// Puts of a second that one shard is asked to do: well below what it can.
const PUTS_A_SHARD: u64 = 500_000;

/// What is planned.
struct Plan {
    shape: Shape,
    shards: u64,
    /// Of all shards together.
    need: Need,
    resting: u64,
    /// Items of the shard that has most.
    most_items: u64,
    memory: u64,
}

fn shape(args: &PlanArgs) -> Result<Shape, Failure> {
    let kind = args.kind.kind("plan")?;
    let wrong = |context: &str| Err(Failure::usage("plan", context));
    if kind.has_numbers() && args.key.is_some_and(|key| key != 8) {
        return wrong("a key that is a number has 8 bytes: leave --key out");
    }
    if !kind.has_items() && (args.value.is_some_and(|value| value != 8) || args.attributes > 0) {
        return wrong(
            "a value that is a number has 8 bytes and no attributes: leave --value and --attributes out",
        );
    }
    let missing = |what: &str| Failure::usage("plan", format!("how many bytes has a {what}? Give --{what}"));
    let number = |given: Option<u64>, is: bool, what| given.or(is.then_some(8)).ok_or_else(|| missing(what));
    Ok(Shape {
        kind,
        items: args.items,
        key_bytes: number(args.key, kind.has_numbers(), "key")?,
        value_bytes: number(args.value, !kind.has_items(), "value")?,
        attributes: args.attributes,
    })
}

/// The part of the keys that each shard has. An ordered table stands on one shard.
fn shares(shape: &Shape, shards: u64) -> Vec<f64> {
    if shape.kind.is_ordered() {
        return (0..shards).map(|shard| if shard == 0 { 1.0 } else { 0.0 }).collect();
    }
    let view = View::of_shards(1, 0, shards as usize);
    let arcs = view.owners();
    let owned = |shard: u64| arcs.iter().filter(|owner| u64::from(**owner) == shard).count();
    (0..shards).map(|shard| owned(shard) as f64 / arcs.len() as f64).collect()
}

fn sum(one: Need, other: Need) -> Need {
    let parts = one.parts + other.parts;
    let filled = one.fill * one.parts as f64 + other.fill * other.parts as f64;
    Need {
        items: one.items + other.items,
        index: one.index + other.index,
        parts,
        fill: filled / parts.max(1) as f64,
        directory: one.directory + other.directory,
        models: one.models + other.models,
        other: one.other + other.other,
    }
}

/// A size with at most two digits, not smaller.
fn rounded(bytes: u64) -> u64 {
    let mib = bytes.div_ceil(1 << 20);
    let step = match mib {
        0..=64 => 4,
        65..=1024 => 32,
        1025..=16_384 => 512,
        _ => 4096,
    };
    mib.next_multiple_of(step) << 20
}

impl Plan {
    fn of(shape: Shape, shards: u64, puts_per_second: u64) -> Plan {
        let shares = shares(&shape, shards);
        let part = |number: u64, share: f64| (number as f64 * share).ceil() as u64;
        let needs = shares.iter().map(|share| shape.need(part(shape.items, *share)));
        let need = needs.fold(Need::default(), sum);
        let most = shares.iter().copied().fold(0.0, f64::max);
        let (most_items, most_puts) = (part(shape.items, most), part(puts_per_second, most));
        let shard = shape.need(most_items).used() + shape.resting(most_puts);
        let memory = rounded((shard + shard / 4).max(SHARD_BYTES_MIN) * shards);
        Plan { shape, shards, need, resting: shape.resting(puts_per_second), most_items, memory }
    }

    fn command(&self) -> String {
        let size = match self.memory >> 20 {
            mib if mib % 1024 == 0 => format!("{}G", mib / 1024),
            mib => format!("{mib}M"),
        };
        format!("kelix serve --memory {size} --shards {}", self.shards)
    }

    fn lines(&self) -> Vec<[String; 3]> {
        let Plan { shape, need, .. } = self;
        let slot = shape.slot().map_or("beside their keys".to_string(), |slot| {
            format!("each in a slot of {} bytes", slot.kind.slot_bytes() + slot.run_bytes)
        });
        let part = if shape.kind.is_ordered() { "leaf" } else { "subtable" };
        let parts = match (part, need.parts) {
            ("leaf", 2..) => format!("{} leaves", need.parts),
            (part, count) => plural(count, part),
        };
        let share = self.most_items as f64 / shape.items.max(1) as f64 * 100.0;
        let line = |name: &str, bytes: u64, what: String| [name.to_string(), show_size(bytes), what];
        vec![
            line("items", need.items, format!("{}, {slot}", plural(shape.items, "item"))),
            line("index", need.index, format!("{parts}, {:.0} % full", need.fill * 100.0)),
            line("directory", need.directory, String::new()),
            line("models", need.models, String::new()),
            line("other", need.other, "catalogue, slabs that are begun".into()),
            line("used", need.used(), "what kelix stat will show as used".into()),
            line("resting", self.resting, "what was replaced, until no reader can meet it".into()),
            line(
                "memory",
                self.memory,
                format!("to give: the largest shard has {share:.0} %, a quarter to spare"),
            ),
        ]
    }
}

/// Items that no server has, and puts that none does.
const COUNT_MAX: u64 = 1 << 40;
/// What a place can tell of a shard's memory.
const SHARD_BYTES_MAX: u64 = 1 << PLACE_BITS;

/// Refuses what no server takes, before anything is reckoned.
fn check(shape: &Shape, puts_per_second: u64) -> Result<(), Failure> {
    let refuse = |context: String| Err(Failure::usage("plan", context));
    let (items, key, value) = (shape.items, shape.key_bytes, shape.value_bytes);
    if key > KEY_BYTES_MAX as u64 {
        return refuse(format!(
            "--key {} is more than a key may have: {}",
            show_size(key),
            show_size(KEY_BYTES_MAX as u64)
        ));
    }
    if value > VALUE_BYTES_MAX {
        return refuse(format!(
            "--value {} is more than a value may have: {}",
            show_size(value),
            show_size(VALUE_BYTES_MAX)
        ));
    }
    if shape.attributes > NAMES_MAX as u64 {
        return refuse(format!(
            "--attributes {}: a table has at most {NAMES_MAX} names of attributes",
            shape.attributes
        ));
    }
    if items > COUNT_MAX || puts_per_second > COUNT_MAX {
        return refuse(format!(
            "a server has no more than {COUNT_MAX} items, and replaces no more in a second"
        ));
    }
    let least = u128::from(items) * u128::from(key + value);
    let most = u128::from(SHARD_BYTES_MAX) * SHARDS_MAX as u128;
    if least > most {
        return refuse(format!(
            "{items} items of {} are more than the memory of {SHARDS_MAX} shards of {}: spread them over several servers",
            show_size(key + value),
            show_size(SHARD_BYTES_MAX)
        ));
    }
    Ok(())
}

/// Refuses a plan that no server could follow.
fn check_shards(plan: &Plan) -> Result<(), Failure> {
    let advice = match plan.shape.kind.is_ordered() {
        true => "an ordered table stands on one shard: spread the items over several tables".to_string(),
        false => format!(
            "give more --shards, of which there may be {SHARDS_MAX}, or spread the items over several servers"
        ),
    };
    let refuse = |what: String| Err(Failure::usage("plan", format!("{what}; {advice}")));
    if !plan.shape.kind.is_ordered() && plan.most_items > memory::HASHED_ITEMS_MAX {
        let (most, max) = (plan.most_items, memory::HASHED_ITEMS_MAX);
        return refuse(format!("one shard would have {most} items, and its index has room for some {max}"));
    }
    let shard = plan.memory / plan.shards;
    if shard > SHARD_BYTES_MAX {
        let (shard, max) = (show_size(shard), show_size(SHARD_BYTES_MAX));
        return refuse(format!("a shard would have {shard} of memory, and can have {max}"));
    }
    Ok(())
}

pub(crate) fn run(context: &Context, args: &PlanArgs) -> Result<(), Failure> {
    let shape = shape(args)?;
    let usual = args.puts_per_second.div_ceil(PUTS_A_SHARD).clamp(1, SHARDS_MAX as u64);
    let usual = if shape.kind.is_ordered() { 1 } else { usual };
    let shards = args.shards.unwrap_or(usual);
    check(&shape, args.puts_per_second)?;
    let plan = Plan::of(shape, shards, args.puts_per_second);
    check_shards(&plan)?;
    if context.json {
        let Plan { shape, need, .. } = &plan;
        return context.print_json(&json!({
            "items": shape.items,
            "slot_bytes": shape.slot().map(|slot| slot.kind.slot_bytes() + slot.run_bytes),
            "items_bytes": need.items,
            "index_bytes": need.index,
            "index_parts": need.parts,
            "index_fill": need.fill,
            "directory_bytes": need.directory,
            "models_bytes": need.models,
            "other_bytes": need.other,
            "used_bytes": need.used(),
            "resting_bytes": plan.resting,
            "shards": plan.shards,
            "memory_bytes": plan.memory,
            "command": plan.command(),
        }));
    }
    let lines = plan.lines();
    let width = lines.iter().map(|[_, size, _]| size.len()).max().unwrap_or(0);
    let mut out = std::io::stdout().lock();
    for [name, size, what] in lines.iter().filter(|[_, size, _]| size != "0 bytes") {
        writeln!(out, "{}", format!("{name:9}  {size:>width$}  {what}").trim_end())?;
    }
    if shape.kind.is_ordered() && plan.shards > 1 {
        writeln!(out, "An ordered table stands on one shard: the other shards' memory is for other tables.")?;
    }
    Ok(writeln!(out, "\n{}", plan.command())?)
}
