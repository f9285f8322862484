//! Rows a second beside a plain `COPY` through the same connection, by turns. A figure for people, so not run
//! with the tests:
//!
//! ```text
//! KELIX_LOAD_FROM=postgres://... cargo test --release -p kelix-load rate -- --ignored --nocapture
//! ```
//!
//! It reads `kelix_rate (id bigint, name text, dept_id int, boss_id bigint, hired date)`, which has to be
//! there.

use std::time::{Duration, Instant};

use futures_util::StreamExt;

use super::Database;
use crate::batch::Batch;
use crate::map::{Map, Relation};
use crate::problem::Problem;
use crate::read;
use crate::source::{Origin, Sink, Source};

const QUERY: &str = "select id, name, dept_id, boss_id, hired from kelix_rate";
const TURNS: usize = 7;

/// Counts rows.
#[derive(Default)]
struct Count(u64);

impl Sink for Count {
    fn begin(&mut self, _: &[String], _: &str) -> bool {
        true
    }

    fn take(&mut self, batch: &Batch) -> Result<bool, Problem> {
        self.0 += batch.rows() as u64;
        Ok(true)
    }
}

/// Takes what comes and looks at none of it.
fn plain(database: &Database) -> u64 {
    let mut stream = database.copy(QUERY).expect("a copy");
    database.runtime.block_on(async {
        let mut rows = 0;
        while let Some(data) = stream.next().await {
            rows += u64::from(!data.expect("a row").is_empty());
        }
        rows
    })
}

fn timed(work: impl FnOnce() -> u64) -> (u64, Duration) {
    let began = Instant::now();
    let rows = work();
    (rows, began.elapsed())
}

#[test]
#[ignore = "a measurement, which needs a database of its own: KELIX_LOAD_FROM"]
fn rate() {
    let address = std::env::var("KELIX_LOAD_FROM").expect("KELIX_LOAD_FROM=postgres://...");
    let mut database = Database::connect(&Origin { address, ..Origin::default() }).expect("a database");
    database.begin().expect("a snapshot");
    let map = format!(
        "dataset = \"d\"\n[[table]]\nname = \"t\"\nquery = \"{QUERY}\"\nkey = \"person:{{id}}\"\nattributes = [\"name\", \"hired\"]\n\
         [[table.link]]\nname = \"boss\"\nto = \"t\"\nkey = \"person:{{boss_id}}\"\n"
    );
    let map = Map::parse("rate", &map).expect("a map");
    let relation = Relation::Query(QUERY.into());
    let mut ratios = [Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        let (rows, copy) = timed(|| plain(&database));
        let (counted, batches) = timed(|| {
            let mut count = Count::default();
            database.rows(&relation, "t", &[], &mut count).expect("rows");
            count.0
        });
        let (read, items) = timed(|| read::read(&map, &mut database, &mut ()).expect("rows").rows);
        assert_eq!((rows, rows), (counted, read));
        let rate = |time: Duration| rows as f64 / time.as_secs_f64() / 1e6;
        println!(
            "copy {:.2} M rows/s, batches {:.2}, items in spools {:.2}",
            rate(copy),
            rate(batches),
            rate(items)
        );
        ratios[0].push(copy.as_secs_f64() / batches.as_secs_f64());
        ratios[1].push(copy.as_secs_f64() / items.as_secs_f64());
    }
    for (what, ratios) in ["batches", "items in spools"].into_iter().zip(&mut ratios) {
        ratios.sort_by(f64::total_cmp);
        println!("{what}: {:.2} of a plain copy (median of {TURNS})", ratios[TURNS / 2]);
    }
}
