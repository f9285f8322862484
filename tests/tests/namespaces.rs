//! Namespaces: each has data of its own, and gives it only to those who may have it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use kelix::{
    Address, Client, Credentials, Effect, Error, ErrorKind, FabricChoice, NewItem, Path, Session,
    SessionOptions, Table,
};
use kelix_server::{NamespaceConfig, Rights, Server, ServerConfig, Token, Who};
use kelix_tests::process::patient;
use kelix_tests::{RunDir, client_with, far, rdma, session_over, statistics, tcp_address, watchdog};
use kelix_wire::SPOKEN;
use kelix_wire::control::{Frame, Purpose};

fn token(name: &str) -> Token {
    Token { name: name.into(), word: format!("word of {name}") }
}

fn namespace(name: &str, readers: &[&str], writers: &[&str]) -> NamespaceConfig {
    let known = |names: &[&str]| names.iter().map(|name| Who::Token(name.to_string())).collect();
    let rights = Rights { readers: known(readers), writers: known(writers) };
    NamespaceConfig { name: name.into(), shards: 2, memory_bytes: 64 << 20, cache: false, rights }
}

/// A server with the namespaces `people`, of which one token reads and another writes, and `secret`.
fn serve(run: &RunDir) -> Server {
    let config = ServerConfig {
        directory: run.path().into(),
        memory_bytes: 64 << 20,
        pin: false,
        listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
        rdma: rdma(),
        tokens: ["looker", "loader", "guest"].map(token).into(),
        namespaces: vec![
            namespace("people", &["looker"], &["loader"]),
            namespace("secret", &[], &["loader"]),
        ],
        ..ServerConfig::default()
    };
    kelix_tests::start(&config)
}

fn client(run: &RunDir, who: &str, namespace: &str) -> Result<Client, Error> {
    let token = Some(token(who).word);
    let credentials = Credentials::default().namespace(namespace).token(token);
    client_with(Address::Tcp(tcp_address(run.path())), credentials)
}

fn session(run: &RunDir, who: &str, namespace: &str) -> Session {
    session_over(far(), &client(run, who, namespace).unwrap(), patient())
}

type Writing = fn(&mut Session, Table) -> Result<(), Error>;

const WRITES: [(&str, Writing); 8] = [
    ("put", |session, table| session.put(table, b"k", b"w").map(drop)),
    ("a large put", |session, table| session.put(table, b"k", &[1; 100_000]).map(drop)),
    ("delete", |session, table| session.delete(table, b"k").map(drop)),
    ("compare_and_set", |session, table| session.compare_and_set(table, b"new", None, b"w").map(drop)),
    ("put_item", |session, table| session.put_item(table, b"k", &NewItem::new().bytes("a", b"w")).map(drop)),
    ("create_table", |session, _| session.create_table("new").map(drop)),
    ("multi_put", |session, table| session.multi_put(table, &[(b"k", b"w")])?.pop().expect("one").map(drop)),
    ("submit_put", |session, table| {
        session.submit_put(table, b"k", b"w")?;
        let mut completions = Vec::new();
        while session.outstanding() > 0 {
            session.poll(&mut completions)?;
        }
        completions.pop().expect("one").outcome.map(drop)
    }),
];

#[test]
fn who_may_only_read_cannot_write() {
    let _watchdog = watchdog("readers of a namespace");
    let run = RunDir::new();
    let server = serve(&run);
    let mut loader = session(&run, "loader", "people");
    let written = loader.create_table("t").unwrap();
    loader.put(written, b"k", b"v").unwrap();
    let mut looker = session(&run, "looker", "people");
    let table = looker.table("t").unwrap();
    for (what, write) in WRITES {
        let error = write(&mut looker, table).expect_err(what);
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Denied, Effect::No), "{what}: {error}");
    }
    for path in [Path::Pointer, Path::Index, Path::Message] {
        looker.set_path(path);
        assert_eq!(looker.get(table, b"k").unwrap().unwrap().value(), b"v");
        assert!(looker.get(table, b"new").unwrap().is_none());
    }
    // A reader whose session may ask again is no writer either.
    let options = SessionOptions::default().retry_for(std::time::Duration::from_secs(5));
    let mut again = session_over(far(), &client(&run, "looker", "people").unwrap(), options);
    assert_eq!(again.put(table, b"k", b"w").unwrap_err().kind(), ErrorKind::Denied);
    server.stop();
}

#[test]
fn who_may_not_read_gets_nothing() {
    let _watchdog = watchdog("strangers to a namespace");
    let run = RunDir::new();
    let server = serve(&run);
    for (who, wanted) in [("guest", "people"), ("looker", "secret"), ("loader", "nowhere")] {
        let error = client(&run, who, wanted).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{who}, {wanted}: {error}");
    }
    // The same words for what is not there and what is not for everybody.
    let words = |wanted| client(&run, "guest", wanted).unwrap_err().to_string().replace(wanted, "X");
    assert_eq!(words("secret"), words("nowhere"));
    // Whoever asks all the same is not answered, whatever it asks for.
    let mut stream = TcpStream::connect(server.tcp_address().unwrap()).unwrap();
    let head = |count: u64, name: u64, small: u64, kind: u64| {
        (count << 40 | name << 16 | small << 8 | kind).to_le_bytes()
    };
    let mut said = Vec::new();
    let hello = Frame::Hello {
        versions: SPOKEN,
        features: 0,
        purpose: Purpose::Session,
        caller: None,
        namespace: "secret".into(),
    };
    for frame in [Frame::Token { token: token("guest").word.into_bytes() }, hello] {
        let (kind, bytes) = frame.encode();
        said.extend(head(bytes.len() as u64, kind.into(), 0, 6));
        said.extend(&bytes);
        said.resize(said.len().next_multiple_of(8), 0);
    }
    // A READ of 8 words from place 64, in each of the server's five shards.
    for shard in 0..5u64 {
        said.extend(head(8, 0, shard, 1));
        said.extend(64u64.to_le_bytes());
    }
    stream.write_all(&said).unwrap();
    let mut heard = Vec::new();
    // It may be reset with what it has not read, and the refusal with it.
    let _ = stream.read_to_end(&mut heard);
    let refused = heard.first() == Some(&6) && heard.len() < 200;
    assert!(heard.is_empty() || refused, "{} bytes: {:?}", heard.len(), String::from_utf8_lossy(&heard));
    server.stop();
}

#[test]
fn namespaces_do_not_see_each_other() {
    let _watchdog = watchdog("two namespaces");
    let run = RunDir::new();
    let server = serve(&run);
    let mut sessions = ["", "people", "secret"].map(|namespace| session(&run, "loader", namespace));
    let tables = sessions.each_mut().map(|session| session.create_table("t").unwrap());
    for (number, (session, table)) in sessions.iter_mut().zip(tables).enumerate() {
        for key in 0..100u64 {
            session.put(table, &key.to_le_bytes(), &[number as u8; 40]).unwrap();
        }
    }
    for (number, (session, table)) in sessions.iter_mut().zip(tables).enumerate() {
        for path in [Path::Pointer, Path::Index, Path::Message] {
            session.set_path(path);
            for key in 0..100u64 {
                let item = session.get(table, &key.to_le_bytes()).unwrap().expect("a key that is there");
                assert_eq!(item.value(), [number as u8; 40]);
            }
        }
    }
    // A table is of its namespace.
    let error = sessions[0].get(tables[1], b"k").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
    // Statistics tell of one of them: what is in it, and who.
    for (namespace, shards) in [("default", 1), ("people", 2), ("secret", 2)] {
        let told = client(&run, "loader", namespace).unwrap().statistics().unwrap();
        assert_eq!(told.namespace, namespace);
        assert_eq!((told.shards.len(), told.clients.len()), (shards, 1));
    }
    // The user that the server runs as may do everything, in shared memory too.
    let credentials = Credentials::default().namespace("secret");
    let own = Client::connect_with(run.path(), credentials).unwrap();
    let options = patient().fabric(FabricChoice::Shm);
    let mut own = own.session_with(options).unwrap();
    let table = own.table("t").unwrap();
    own.put(table, b"k", b"own").unwrap();
    assert_eq!(sessions[2].get(tables[2], b"k").unwrap().unwrap().value(), b"own");
    assert_eq!(statistics(&Client::connect(run.path()).unwrap())["namespace"], "default");
    server.stop();
}
