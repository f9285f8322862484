//! The program `kelix-web`: a shop whose pages are made of fragments that links hold together.

#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use kelix_apps::{BenchArgs, Failure, Store, StoreArgs, say};
use kelix_web::{
    Catalogue, HttpServer, Shop, bench, generate, load, load_test, memory_for, product_page, read_amazon,
    set_in,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What is generated unless more is asked for: with the benchmark, and otherwise.
const MEASURED: (usize, usize) = (12_000, 200_000);
const SHOWN: (usize, usize) = (300, 5000);

/// Web pages made of fragments in Kelix: what a change touches is made anew, everything else is reused
///
/// Without a command it serves a shop with products and reviews over HTTP, and says where. The foot of each
/// page says which fragments were made anew for it. What it sells is generated, unless --data names files.
#[derive(Parser)]
#[command(name = "kelix-web", version, propagate_version = true, max_term_width = 110)]
#[command(after_long_help = "\
Examples:
  kelix-web
  kelix-web --data amazon --listen 127.0.0.1:8080
  kelix-web --store /run/user/1000/kelix
  kelix-web page G000007
  kelix-web load-test --connections 16
  kelix-web bench")]
struct Cli {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    set: SetArgs,
    /// Where to serve; port 0: one that is free
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    listen: SocketAddr,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What the shop sells. A store that has a shop already keeps what it has.
#[derive(clap::Args)]
struct SetArgs {
    /// A folder with meta_*.json.gz and *_5.json.gz, as of Amazon Review Data 2018
    #[arg(long, value_name = "DIR", global = true)]
    data: Option<PathBuf>,
    /// Products to generate [default: 300; for bench 12000]
    #[arg(long, value_name = "N", global = true, conflicts_with = "data", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    products: Option<u32>,
    /// Reviews to generate [default: 5000; for bench 200000]
    #[arg(long, value_name = "N", global = true, conflicts_with = "data", value_parser = clap::value_parser!(u32).range(0..=20_000_000))]
    reviews: Option<u32>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print the page of a product
    Page {
        /// The product
        id: String,
    },
    /// Ask the HTTP server for pages, and compare each with the same made without HTTP
    LoadTest {
        /// Connections that are kept
        #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
        connections: u16,
        /// For how long
        #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
    },
    /// Measure pages by links against pages by keys in Kelix and in memcached
    Bench(BenchArgs),
}

impl SetArgs {
    fn catalogue(&self, (products, reviews): (usize, usize)) -> Result<Catalogue, String> {
        let Some(folder) = &self.data else {
            let count = |asked: Option<u32>, usual| asked.map_or(usual, |asked| asked as usize);
            return Ok(generate(count(self.products, products), count(self.reviews, reviews)));
        };
        let (catalogue, left_out) = read_amazon(folder)?;
        left_out.iter().for_each(|what| kelix_apps::complain(what));
        Ok(catalogue)
    }

    fn is_asked_for(&self) -> bool {
        self.data.is_some() || self.products.is_some() || self.reviews.is_some()
    }
}

/// Opens the store, and puts the shop into it unless it has one.
fn open(cli: &Cli) -> Result<(Store, Shop), Failure> {
    let catalogue = cli.set.catalogue(SHOWN)?;
    let store = Store::open(&cli.store, "web", memory_for(&catalogue))?;
    let mut shop = Shop::open(&store.client)?;
    match set_in(&mut shop)? {
        Some(set) if cli.set.is_asked_for() => {
            return Err(Failure::usage(
                "open",
                format!("the store has a shop already: {set}; leave out --data, --products and --reviews"),
            ));
        }
        Some(_) => {}
        None => load(&mut shop, &catalogue)?,
    }
    Ok((store, shop))
}

fn run(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        None => serve(cli),
        Some(Command::Page { id }) => print_page(cli, id),
        Some(Command::LoadTest { connections, seconds }) => {
            let (store, mut shop) = open(cli)?;
            let http = HttpServer::start(&store.client, cli.listen)?;
            let products = shop.products(2000)?;
            let time = Duration::from_secs(*seconds);
            let test = load_test(&mut shop, http.address(), &products, usize::from(*connections), time)?;
            say(format_args!("{:.0} pages/s: {}", test.rate(), test.describe()))?;
            Ok(())
        }
        Some(Command::Bench(args)) => bench(&cli.set.catalogue(MEASURED)?, args),
    }
}

fn print_page(cli: &Cli, id: &str) -> Result<(), Failure> {
    use std::io::Write;
    let (_store, mut shop) = open(cli)?;
    let page = product_page(&mut shop, id)?
        .ok_or_else(|| Failure::not_there(format!("there is no product {id}")))?;
    Ok(std::io::stdout().write_all(&page)?)
}

fn serve(cli: &Cli) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| format!("no signals: {error}"))?;
    let (store, mut shop) = open(cli)?;
    let http = HttpServer::start(&store.client, cli.listen)?;
    let address = format!("http://{}", http.address());
    say(format_args!("{}\nin {}", set_in(&mut shop)?.unwrap_or_default(), store.place()))?;
    say(format_args!("serving {address}/"))?;
    if let Some((product, shown_on)) = shop.example()? {
        say(format_args!("Try:"))?;
        say(format_args!(
            "  {address}/product/{product}   change its price, and look at the foot of the page"
        ))?;
        say(format_args!(
            "  {address}/product/{shown_on}   it stands among what buyers bought too, and has changed there"
        ))?;
        say(format_args!("  curl -d price=9.99 {address}/product/{product}/price"))?;
    }
    say(format_args!("Ctrl-C ends it."))?;
    signals.forever().next();
    Ok(())
}

fn main() -> ExitCode {
    kelix_apps::end("kelix-web", run(&Cli::parse()))
}
