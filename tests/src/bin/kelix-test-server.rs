//! A server for the tests, which is told what to do by lines and can be killed.
//!
//! `kelix-test-server DIRECTORY SHARDS MEMORY_BYTES [OPTION...]` prints `serving TERM` or `refused WHY`. It
//! also listens over TCP, at any free port of the loopback interface, and over verbs where the tests are
//! about them. The line `wal` has it print `wal JSON`, what it tells of its log. The line `stop`, and the end
//! of its input, stop it in good order; it then prints `ended stopped`, `ended not-kept` or `ended
//! superseded`. Options:
//!
//! ```text
//! take-over          supersede the server of the directory
//! waits              say when all is prepared, and serve when told so by a line
//! listen=ADDRESS     over TCP at this address
//! wal=DIRECTORY      write a log there
//! durable=commit     answer writes once they are on the disk
//! until=SECONDS      serve what there was so long after 1970
//! snapshots=DIRECTORY
//! keep=COUNT         snapshots that are kept (2)
//! namespace=NAME     one more, of as many shards and as much memory
//! token=WORD         clients over TCP must know this word; a mirror's primary knows the mirror by it
//! mirror-of=ADDRESS  a mirror of the server there, which it follows over the fabric that is tested
//! max-lag=MS         which may not be read when it has not heard from that server for so long
//! retry=MS           for how long it waits for that server to begin with
//! ```

use std::io::BufRead;
use std::time::{Duration, SystemTime};

use kelix::FabricChoice;
use kelix_server::{
    Durability, Ended, FeedFabric, MirrorConfig, NamespaceConfig, Rights, Server, ServerConfig,
    SnapshotConfig, Token, WalConfig,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, shards, memory, rest @ ..] = &arguments[..] else { panic!("see the source") };
    let mut config = ServerConfig {
        directory: directory.into(),
        shards: shards.parse().expect("a number of shards"),
        memory_bytes: memory.parse().expect("a number of bytes"),
        pin: false,
        listen: Some((std::net::Ipv4Addr::LOCALHOST, 0).into()),
        rdma: kelix_tests::rdma(),
        ..ServerConfig::default()
    };
    let waits = rest.iter().any(|option| option == "waits");
    rest.iter().filter(|option| *option != "waits").for_each(|option| set(&mut config, option));
    kelix_server::prepare_process();
    let started = Server::prepare(&config).and_then(|prepared| {
        if waits {
            println!("prepared");
            std::io::stdin().read_line(&mut String::new()).expect("a line");
        }
        prepared.serve()
    });
    let server = match started {
        Ok(server) => server,
        Err(error) => {
            println!("refused {error}");
            std::process::exit(1);
        }
    };
    let (stopper, statistics) = (server.stopper(), server.statistics());
    let told = move || {
        let lines = std::io::stdin().lock().lines().map_while(Result::ok);
        for _ in lines.take_while(|line| line == "wal") {
            println!("wal {}", statistics.json()[0]["wal"]);
        }
        stopper.stop();
    };
    if let Err(error) = std::thread::Builder::new().spawn(told) {
        println!("refused {error}");
        server.stop();
        std::process::exit(1);
    }
    println!("serving {}", server.term());
    let ended = server.wait();
    server.stop();
    let word = match ended {
        Ended::Stopped => "stopped",
        Ended::NotKept => "not-kept",
        Ended::Superseded => "superseded",
    };
    println!("ended {word}");
}

fn set(config: &mut ServerConfig, option: &str) {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    let directory = || SnapshotConfig { directory: value.into(), every: None, keep: 2, fresh: false };
    match name {
        "take-over" => config.take_over = true,
        "listen" => config.listen = Some(value.parse().expect("an address")),
        "wal" => {
            config.wal = Some(WalConfig { durability: Durability::Lazy, until: None });
            config.snapshots = Some(directory());
        }
        "durable" if value == "commit" => {
            config.wal.as_mut().expect("a log").durability = Durability::Commit;
        }
        "until" => {
            let since = Duration::from_secs(value.parse().expect("a number of seconds"));
            config.wal.as_mut().expect("a log").until = Some(SystemTime::UNIX_EPOCH + since);
        }
        "snapshots" => config.snapshots = Some(directory()),
        "keep" => {
            let snapshots = config.snapshots.as_mut().expect("a directory of snapshots");
            snapshots.keep = value.parse().expect("a number of snapshots");
        }
        "namespace" => config.namespaces.push(NamespaceConfig {
            name: value.into(),
            shards: config.shards,
            memory_bytes: config.memory_bytes,
            cache: false,
            rights: Rights::default(),
        }),
        "token" => match &mut config.mirror {
            Some(mirror) => mirror.token = Some(value.into()),
            None => config.tokens.push(Token { name: String::new(), word: value.into() }),
        },
        "mirror-of" => {
            (config.listen, config.rdma) = (None, Vec::new());
            config.mirror = Some(MirrorConfig {
                primary: value.into(),
                token: None,
                tls: None,
                fabric: Some(if kelix_tests::far() == FabricChoice::Verbs {
                    FeedFabric::Verbs
                } else {
                    FeedFabric::Tcp
                }),
                rdma_address: None,
                namespaces: vec!["default".into()],
                copy_rate: 0,
                max_lag: None,
                name: "test".into(),
                memory_bytes: None,
                retry_for: Duration::from_secs(20),
                replica: None,
            });
        }
        "retry" => {
            let time = Duration::from_millis(value.parse().expect("milliseconds"));
            config.mirror.as_mut().expect("a mirror").retry_for = time;
        }
        "max-lag" => {
            let lag = Duration::from_millis(value.parse().expect("milliseconds"));
            config.mirror.as_mut().expect("a mirror").max_lag = Some(lag);
        }
        _ => panic!("{option}: see the source"),
    }
}
