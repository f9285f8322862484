//! Loads from a real PostgreSQL: values of all kinds, one snapshot, suggested maps, passwords, TLS.

mod support;

use kelix_load::{Map, OnDangling, Options, Origin, Progress, Report, Watch, load, suggest};
use kelix_postgres::{Postgres, own_file};
use support::{Keeper, lines, origin, parsed};

#[track_caller]
fn loaded(address: &str, map: &Map) -> (Keeper, Report) {
    let mut keeper = Keeper::default();
    let report = load(&origin(address), map, Options::default(), Some(&mut keeper), &mut ());
    (keeper, report.unwrap_or_else(|problem| panic!("{problem}")))
}

fn one_table(lines: &str) -> Map {
    parsed(&format!("dataset = \"d\"\n[[table]]\nname = \"t\"\nkey = \"{{id}}\"\n{lines}\n"))
}

#[test]
fn values_of_all_kinds() {
    let postgres = Postgres::start().expect("a server");
    postgres.run(
        "create table things (id bigint primary key, text text, bytes bytea, number numeric, truth boolean,
            moment timestamptz, list int[], json jsonb, nothing text);
        insert into things values
            (1, E'tab\\there\\nline \\\\ back\\\\N \\b\\f\\x0b\\r Zo\u{eb}', '\\x00ff5c0a09', 1.50, true, '2001-02-03 04:05:06+00', '{1,null,2}', '{\"a\": \"b\\\\n\"}', null),
            (2, '', '\\x', 0, false, null, '{}', 'null', null),
            (3, '\\N', null, 'NaN', null, null, null, null, null);",
    ).expect("done");
    let columns = "\"text\", \"bytes\", \"number\", \"truth\", \"moment\", \"list\", \"json\", \"nothing\"";
    let map =
        one_table(&format!("query = \"select * from things -- all of them\"\nattributes = [{columns}]"));
    let (keeper, _) = loaded(&postgres.address(), &map);
    let one = keeper.item("t", "1");
    assert_eq!(one.text("text"), Some("tab\there\nline \\ back\\N \x08\x0c\x0b\r Zo\u{eb}"));
    assert_eq!(one.attributes["bytes"], b"\x00\xff\\\n\t");
    assert_eq!(
        (one.text("number"), one.text("truth"), one.text("list")),
        (Some("1.50"), Some("t"), Some("{1,NULL,2}"))
    );
    assert_eq!(one.text("json"), Some("{\"a\": \"b\\\\n\"}"));
    assert_eq!(one.attributes.len(), 7);
    let two = keeper.item("t", "2");
    assert_eq!((two.text("text"), two.text("bytes"), two.text("json")), (Some(""), Some(""), Some("null")));
    assert_eq!(keeper.item("t", "3").text("text"), Some("\\N"));
    assert_eq!(keeper.item("t", "3").attributes.len(), 2);
}

const COMPANY: &str = "
    create schema hr;
    create table departments (code text primary key, title text);
    create table people (
        id bigint primary key, name text not null, boss_id bigint references people (id),
        department_code text references departments, photo bytea);
    create table hr.badges (country text, number int, owner_id bigint not null references people, primary key (country, number));
    create table hr.uses (id serial primary key, land text, badge int, door text unique not null,
        foreign key (badge, land) references hr.badges (number, country), by_door text references hr.uses (door));
    create table follows (user_id bigint references people, follower_id bigint references people,
        since int, primary key (user_id, follower_id, since));
    create table no_key (line text);
    insert into departments select 'd' || n, 'title ' || n from generate_series(0, 9) n;
    insert into people select n, 'name ' || n, nullif(n / 3, n), case when n % 4 > 0 then 'd' || n % 10 end, decode(lpad(to_hex(n), 8, '0'), 'hex')
        from generate_series(0, 4999) n;
    insert into hr.badges select 'c' || n % 7, n, n from generate_series(0, 999) n;
    insert into hr.uses (land, badge, door) select 'c' || n % 7, n, 'door ' || n from generate_series(0, 99) n;
    insert into follows select n % 50, (n * 7919) % 5000, n from generate_series(0, 19999) n;
    create view everybody as select * from people;";

#[test]
fn a_suggested_map_is_loaded_as_it_is() {
    let postgres = Postgres::start().expect("a server");
    postgres.run(COMPANY).expect("done");
    let map = suggest(&origin(&postgres.address())).unwrap();
    assert!(map.contains("# no_key has no primary key") && !map.contains("everybody"), "{map}");
    assert!(map.contains("# (by_door) names rows of hr.uses by other columns than its key"), "{map}");
    // Where equal values have one text, tables are asked as they are.
    assert!(!map.contains(" join \\\""), "{map}");
    let (keeper, report) = loaded(&postgres.address(), &parsed(&map));
    let counts = |name: &str| report.tables.iter().find(|(own, _)| own == name).map(|(_, items)| *items);
    for (name, items) in [("people", 5000), ("departments", 10), ("hr.badges", 1000), ("hr.uses", 100)] {
        assert_eq!(counts(name), Some(items), "{report:?}");
    }
    // Each join of the database is a chain of links.
    let joined = postgres
        .rows(
            "select p.id, b.name, d.title from people p left join people b on b.id = p.boss_id
         left join departments d on d.code = p.department_code",
        )
        .expect("rows");
    assert_eq!(joined.len(), 5000);
    for row in &joined {
        let [Some(id), boss, title] = &row[..] else { panic!("{row:?}") };
        let person = keeper.item("people", id);
        let over = |link: &str, name: &str| {
            let key =
                person.links(link).first().map(|target| target.split_once('/').unwrap().1.to_string())?;
            let table = if link == "boss" { "people" } else { "departments" };
            keeper.item(table, key).text(name).map(str::to_string)
        };
        assert_eq!((&over("boss", "name"), &over("department", "title")), (boss, title), "{id}");
    }
    assert_eq!(keeper.item("people", "4660").attributes["photo"], 4660u32.to_be_bytes());
    assert_eq!(keeper.item("hr.uses", "11").links("hr.badges"), ["hr.badges/c3/10"]);
    assert_eq!(keeper.item("hr.badges", "c3/10").links("owner"), ["people/10"]);
    // And so are lists.
    for (list, owner, other) in [("follower", "user_id", "follower_id"), ("user", "follower_id", "user_id")] {
        let rows = postgres
            .rows(&format!(
                "select {owner}, {other} from follows order by {owner}, user_id, follower_id, since"
            ))
            .expect("rows");
        let mut expected: std::collections::BTreeMap<String, Vec<String>> = std::collections::BTreeMap::new();
        for row in rows {
            let [Some(owner), Some(other)] = &row[..] else { panic!("{row:?}") };
            expected.entry(owner.clone()).or_default().push(format!("people/{other}"));
        }
        for id in 0..5000 {
            let mut found = Vec::new();
            let mut next = keeper.item("people", id.to_string()).links(list);
            while let [chunk] = &next[..] {
                let (table, key) = chunk.split_once('/').unwrap();
                let chunk = keeper.item(table, key);
                found.extend(chunk.links("item"));
                next = chunk.links("next");
            }
            assert_eq!(
                Some(&found).filter(|found| !found.is_empty()),
                expected.get(&id.to_string()),
                "{list} {id}"
            );
        }
    }
}

/// Changes the database as soon as the first row was read.
struct Meddler<'p> {
    postgres: &'p Postgres,
    done: bool,
}

impl Watch for Meddler<'_> {
    fn at(&mut self, _: &Progress<'_>) {
        if !self.done {
            self.postgres
                .run("update a set b_id = 2; insert into b values (2); delete from b where id = 1")
                .expect("done");
            self.done = true;
        }
    }
}

#[test]
fn all_tables_are_of_one_moment() {
    let postgres = Postgres::start().expect("a server");
    postgres.run("create table a (id int, b_id int); create table b (id int); insert into a values (1, 1); insert into b values (1)").expect("done");
    let map = parsed(
        "dataset = \"d\"\n[[table]]\nname = \"a\"\nquery = \"select * from a\"\nkey = \"{id}\"\n[[table.link]]\nname = \"b\"\n\
         to = \"b\"\nkey = \"{b_id}\"\n[[table]]\nname = \"b\"\nquery = \"select * from b\"\nkey = \"{id}\"\n",
    );
    let mut keeper = Keeper::default();
    let mut meddler = Meddler { postgres: &postgres, done: false };
    load(&origin(&postgres.address()), &map, Options::default(), Some(&mut keeper), &mut meddler).unwrap();
    assert!(meddler.done);
    assert_eq!(
        (keeper.item("a", "1").links("b"), keeper.keys("b")),
        (vec!["b/1".to_string()], vec!["1".to_string()])
    );
}

#[test]
fn what_is_wrong_is_said() {
    let postgres = Postgres::start().expect("a server");
    postgres.run("create table people (id int, name text); insert into people values (1, 'Ada'), (null, 'Bob'), (1, 'Eve')").expect("done");
    let said = |map: &str| {
        let problem = load(&origin(&postgres.address()), &one_table(map), Options::default(), None, &mut ());
        lines(&problem.unwrap_err())
    };
    assert_eq!(said(""), ["the map, table t: it does not say where its rows are; say query"]);
    assert_eq!(
        said("query = \"select id from nobody\""),
        ["the map, table t: PostgreSQL refuses its query: relation \"nobody\" does not exist"]
    );
    assert_eq!(
        said("query = \"select id from people where id = $1\""),
        ["the map, table t: its query has parameters ($1), for which there are no values"]
    );
    assert_eq!(said("query = \"delete from people\""), ["the map, table t: its query gives no rows"]);
    assert_eq!(
        said("query = \"select name from people\"\nattributes = [\"nam\"]"),
        [
            "t, column id: the map wants it for key, and there is no such column; there are name",
            "t, column nam: the map wants it for attributes, and there is no such column; perhaps name is meant",
        ]
    );
    assert_eq!(
        said("query = \"select 1 / (id - 1) as id from people\""),
        ["the query of t failed: division by zero"]
    );
    assert_eq!(
        said("query = \"delete from people returning id\""),
        ["the query of t failed: cannot execute DELETE in a read-only transaction"]
    );
    assert_eq!(
        said("query = \"select id, name from people\""),
        [
            "t, row 2, column id: it is null, and a key needs it; leave such rows out",
            "t, row 3, column id: the key t/\"1\" is there already, from row 1; keys have to differ",
        ]
    );
    let nobody = postgres.address().replace("ada@", "bob@");
    let problem =
        load(&origin(&nobody), &one_table("query = \"select 1\""), Options::default(), None, &mut ());
    let problem = problem.unwrap_err().to_string();
    assert!(
        problem.starts_with("cannot connect to the database \"postgres\" at /")
            && problem.contains("role \"bob\" does not exist"),
        "{problem}"
    );
}

/// Certificates: an authority's, the server's for `localhost`, and a stranger's.
struct Certificates {
    authority: String,
    server: (String, String),
    stranger: String,
}

fn certificates() -> Certificates {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    let key = || KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (authority_key, stranger_key, server_key) = (key(), key(), key());
    let authority = params.clone().self_signed(&authority_key).expect("a certificate");
    let stranger = params.self_signed(&stranger_key).expect("a certificate");
    let params = CertificateParams::new(vec!["localhost".to_string()]).expect("parameters");
    let server = params.signed_by(&server_key, &authority, &authority_key).expect("a certificate");
    let server = (server.pem(), server_key.serialize_pem());
    Certificates { authority: authority.pem(), server, stranger: stranger.pem() }
}

/// What libpq takes in an address and is taken, or changes nothing here.
const LIKE_LIBPQ: &[&str] = &[
    "application_name=a%20name",
    "channel_binding=prefer",
    "client_encoding=LATIN1",
    "connect_timeout=0",
    "connect_timeout=10",
    "gssdelegation=0",
    "gssencmode=prefer",
    "gsslib=gssapi",
    "keepalives=1&keepalives_idle=5&keepalives_interval=5&keepalives_count=3&tcp_user_timeout=10000",
    "krbsrvname=p",
    "load_balance_hosts=random",
    "min_protocol_version=3.0&max_protocol_version=latest",
    "options=-c%20work_mem%3D8MB",
    "passfile=/nowhere",
    "replication=false",
    "ssl_max_protocol_version=TLSv1.3",
    "ssl_min_protocol_version=TLSv1.2",
    "sslcertmode=allow",
    "sslcertmode=disable",
    "sslcompression=0",
    "sslnegotiation=postgres",
    "sslpassword=x",
    "sslsni=0",
    "ssl=true",
    "target_session_attrs=any",
    "target_session_attrs=prefer-standby",
    "target_session_attrs=read-write",
];

/// What libpq takes and would be something else without, and what nobody knows, with what is advised.
const REFUSED: &[(&str, &str)] = &[
    ("gssencmode=require", "leave it out"),
    ("min_protocol_version=3.2", "leave it out"),
    ("nonsense=1", "leave it out"),
    ("replication=database", "leave it out"),
    ("require_auth=scram-sha-256", "leave it out"),
    ("requirepeer=postgres", "leave it out"),
    ("scram_client_key=x", "leave it out"),
    ("service=shop", "write its host, port, database and user into the address"),
    ("servicefile=/x", "write its host, port, database and user into the address"),
    ("ssl_max_protocol_version=TLSv1.2", "leave it out"),
    ("ssl_min_protocol_version=TLSv1.3", "leave it out"),
    ("sslcertmode=require", "leave it out"),
    ("sslcrl=/x", "leave it out"),
    ("sslcrldir=/x", "leave it out"),
    ("sslrootcert=system", "name a file of certificates"),
    ("target_session_attrs=primary", "say read-write"),
    ("target_session_attrs=standby", "say read-only"),
];

#[test]
fn passwords_and_tls() {
    let certificates = certificates();
    let settings =
        ["listen_addresses=localhost", "ssl=on", "ssl_cert_file=server.pem", "ssl_key_file=server.key"];
    let postgres = Postgres::start_with(&settings, |data| {
        own_file(data, "server.pem", &certificates.server.0).expect("written");
        own_file(data, "server.key", &certificates.server.1).expect("written");
        let rules =
            "local all all trust\nhostssl all eve localhost scram-sha-256\nhost all bob localhost md5\n";
        own_file(data, "pg_hba.conf", rules).expect("written");
    })
    .expect("a server");
    postgres.run("set password_encryption = 'scram-sha-256'; create role eve login password 'a b%'; create role bob login password 'bob'").expect("done");
    postgres.run("grant pg_read_all_data to eve, bob; create table people (id int primary key); insert into people values (7)").expect("done");
    let files = support::Files::new(&[
        ("ca.pem", &certificates.authority),
        ("own.pem", &certificates.server.0),
        ("stranger.pem", &certificates.stranger),
        ("password", "a b%\n"),
        ("wrong", "guess\n"),
    ]);
    let file = |name: &str| files.path().join(name);
    let attempt = |user: &str, host: &str, parameters: &str, password: Option<&str>, ca: Option<&str>| {
        let address = postgres.tcp_address(user, host, parameters);
        let origin = Origin { address, password_file: password.map(file), ca: ca.map(file) };
        let map = one_table("query = \"select id from people\"");
        let report =
            load(&origin, &map, Options::default(), None, &mut ()).map_err(|problem| problem.to_string())?;
        Ok::<u64, String>(report.rows)
    };
    let eve =
        |parameters: &str, ca: Option<&str>| attempt("eve", "localhost", parameters, Some("password"), ca);
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        assert_eq!(eve(&format!("sslmode={mode}"), Some("ca.pem")), Ok(1), "{mode}");
    }
    assert_eq!(eve("sslmode=require", None), Ok(1));
    assert_eq!(eve("", None), Ok(1));
    assert_eq!(eve("sslmode=verify-full", Some("own.pem")), Ok(1));
    assert_eq!(eve(&format!("sslmode=verify-full&sslrootcert={}", file("ca.pem").display()), None), Ok(1));
    // Without encryption the server has no rule for her.
    assert!(eve("sslmode=disable", None).unwrap_err().contains("no pg_hba.conf entry"));
    for mode in ["require", "verify-ca", "verify-full"] {
        let refused = eve(&format!("sslmode={mode}"), Some("stranger.pem")).unwrap_err();
        assert!(refused.contains("invalid peer certificate") && refused.contains("--ca"), "{refused}");
    }
    // The certificate is for localhost, not for its number.
    let by_number =
        |mode: &str, ca| attempt("eve", "127.0.0.1", &format!("sslmode={mode}"), Some("password"), Some(ca));
    assert_eq!(by_number("verify-ca", "ca.pem"), Ok(1));
    for ca in ["ca.pem", "own.pem"] {
        let refused = by_number("verify-full", ca).unwrap_err();
        assert!(refused.contains("not valid for name") || refused.contains("NotValidForName"), "{refused}");
    }
    // Passwords: in the URL, in a file; wrong; none.
    assert_eq!(attempt("eve:a%20b%25", "localhost", "sslmode=require", None, None), Ok(1));
    assert_eq!(attempt("bob:bob", "localhost", "sslmode=disable", None, None), Ok(1));
    let refused = attempt("eve", "localhost", "", Some("wrong"), None).unwrap_err();
    assert!(refused.contains("password authentication failed") && !refused.contains("guess"), "{refused}");
    let refused = attempt("eve", "localhost", "sslmode=require&passfile=/x", None, None).unwrap_err();
    assert!(refused.contains("password missing"), "{refused}");
    // What libpq takes and has no meaning here; what would be weaker without; what nobody knows.
    let more = "sslmode=require&gssencmode=disable&sslsni=1&client_encoding=UTF8&fallback_application_name=x";
    assert_eq!(attempt("eve", "localhost", more, Some("password"), None), Ok(1));
    for parameter in LIKE_LIBPQ {
        let parameters = format!("sslmode=require&{parameter}");
        assert_eq!(attempt("eve", "localhost", &parameters, Some("password"), None), Ok(1), "{parameter}");
    }
    for (parameter, advice) in REFUSED {
        let parameters = format!("sslmode=require&{parameter}");
        let refused = attempt("eve", "localhost", &parameters, Some("password"), None).unwrap_err();
        let name = parameter.split('=').next().expect("a name");
        assert!(
            refused.contains(&format!("the address says {name}")) && refused.contains(advice),
            "{refused}"
        );
    }
    // A number in place of the host is no socket, on which nothing is encrypted.
    let address = |mode: &str| {
        let port = postgres.port();
        format!("postgres://eve:a%20b%25@/postgres?hostaddr=127.0.0.1&port={port}&sslmode={mode}")
    };
    let by_number = |mode: &str| {
        let map = one_table("query = \"select id from people\"");
        load(&origin(&address(mode)), &map, Options::default(), None, &mut ())
            .map_err(|problem| problem.to_string())
    };
    assert_eq!(by_number("require").map(|report| report.rows), Ok(1));
    assert!(by_number("disable").unwrap_err().contains("no pg_hba.conf entry"));
    assert!(eve("sslmode=maybe", None).unwrap_err().contains("there are disable, allow, prefer"));
    assert!(eve("sslmode=verify-full", Some("password")).unwrap_err().contains("has no certificates"));
    let nowhere = attempt("eve", "localhost", "", Some("nothing"), None).unwrap_err();
    assert!(nowhere.contains("cannot read"), "{nowhere}");
}

/// The hash that a password is bound by is that of the signature of the server's certificate.
#[test]
fn passwords_are_bound_by_the_certificate() {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate =
            CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
        let settings =
            ["listen_addresses=localhost", "ssl=on", "ssl_cert_file=server.pem", "ssl_key_file=server.key"];
        let postgres = Postgres::start_with(&settings, |data| {
            own_file(data, "server.pem", &certificate.pem()).expect("written");
            own_file(data, "server.key", &key.serialize_pem()).expect("written");
            own_file(data, "pg_hba.conf", "local all all trust\nhostssl all eve localhost scram-sha-256\n")
                .expect("written");
        })
        .expect("a server");
        postgres
            .run("set password_encryption = 'scram-sha-256'; create role eve login password 'eve'")
            .expect("done");
        let address = postgres.tcp_address("eve:eve", "localhost", "channel_binding=require");
        loaded(&address, &one_table("query = \"select 7 as id\""));
    }
}

/// Keys that the database holds equal, though their texts differ: by type, by length, by collation, in keys
/// of several columns, in own keys, in lists. Each foreign key here is valid, so each is a link.
const EQUAL: &str = "
    create schema apart;
    create extension citext schema apart;
    create collation german (provider = icu, locale = 'de-u-ks-level1', deterministic = false);
    create domain apart.handle as apart.citext;
    create table cities (code char(5) primary key, name text);
    create table people (id int primary key, city char(8) references cities, born varchar(9) not null references cities);
    create table users (name apart.citext primary key, boss apart.citext references users, handle apart.handle unique not null);
    create table posts (id int primary key, author apart.citext references users);
    create table profiles (owner apart.citext primary key references users, line text);
    create table likes (who apart.citext references users, post int references posts, at int, primary key (who, post, at));
    create table prices (amount numeric, currency text collate german, primary key (amount, currency));
    create table items (id int primary key, price numeric(9, 3), currency text, foreign key (price, currency) references prices);
    create table counts (number int, note text, foreign key (number) references whole (number));
    insert into cities values ('HEL', 'Helsinki');
    insert into people values (1, 'HEL', 'HEL'), (2, null, 'HEL');
    insert into users values ('Ada', null, 'A'), ('Bob', 'aDA', 'b');
    insert into posts values (1, 'ada'), (2, 'BOB');
    insert into profiles values ('ADA', 'a line');
    insert into likes values ('bob', 1, 7), ('ADA', 1, 8);
    insert into prices values (1.0, 'EUR');
    insert into items values (1, 1, 'eur'), (2, 1.000, '\u{e9}UR'), (3, null, 'eur');
    insert into counts values (2, 'x');";

#[test]
fn keys_that_the_database_holds_equal_match() {
    let postgres = Postgres::start().expect("a server");
    let whole = "create table whole (number numeric primary key); insert into whole values (2.00);";
    postgres.run(&format!("{whole}{EQUAL}")).expect("done");
    let map = suggest(&origin(&postgres.address())).unwrap();
    let (keeper, report) = loaded(&postgres.address(), &parsed(&map));
    assert_eq!((report.links_left_out, report.items_left_out), (0, 0));
    let links = |table: &str, key: &str, link: &str| keeper.item(table, key).links(link);
    assert_eq!(links("people", "1", "city"), ["cities/HEL  "], "{map}");
    assert_eq!(links("people", "2", "born"), ["cities/HEL  "]);
    assert!(links("people", "2", "city").is_empty());
    assert_eq!(links("users", "Bob", "boss"), ["users/Ada"]);
    assert_eq!(
        (links("posts", "1", "author"), links("posts", "2", "author")),
        (vec!["users/Ada".to_string()], vec!["users/Bob".to_string()])
    );
    // The own key stays as it is written.
    assert_eq!(links("profiles", "ADA", "owner"), ["users/Ada"]);
    assert_eq!(
        (links("items", "1", "prices"), links("items", "2", "prices")),
        (vec!["prices/1.0/EUR".to_string()], vec!["prices/1.0/EUR".to_string()])
    );
    assert!(links("items", "3", "prices").is_empty());
    assert_eq!(links("users.posts", "Bob/0", "item"), ["posts/1"]);
    assert_eq!(links("posts.users", "1/0", "item"), ["users/Ada", "users/Bob"]);
    assert!(map.contains("# counts has no primary key"), "{map}");
    // A row that is not there is told, by the text that names it.
    postgres.run("alter table posts disable trigger all; insert into posts values (3, 'Eve')").expect("done");
    let problem =
        load(&origin(&postgres.address()), &parsed(&map), Options::default(), None, &mut ()).unwrap_err();
    assert!(
        lines(&problem)[0].starts_with(
            "posts, row 3, column author: the link author leads to users/\"Eve\", which is not there"
        ),
        "{problem}"
    );
}

#[test]
fn heirs_parts_and_indexes_of_tables() {
    let postgres = Postgres::start().expect("a server");
    postgres
        .run(
            "create table parents (id int primary key, name text); create table heirs (primary key (id)) inherits (parents);
             insert into parents values (1, 'a'); insert into heirs values (1, 'b');
             create table parts (id int primary key) partition by list (id);
             create table part partition of parts for values in (1); insert into parts values (1);
             create table indexed (code text not null, hint text, note text not null);
             create unique index on indexed (hint); create unique index on indexed (note) where note <> ''; create unique index on indexed (code) include (note);
             insert into indexed values ('a', null, '');",
        )
        .expect("done");
    let map = suggest(&origin(&postgres.address())).unwrap();
    let (keeper, _) = loaded(&postgres.address(), &parsed(&map));
    assert_eq!(keeper.item("parents", "1").text("name"), Some("a"), "{map}");
    assert_eq!(keeper.item("heirs", "1").text("name"), Some("b"));
    assert_eq!(keeper.keys("parts"), ["1"]);
    // A key may be an index and no constraint.
    assert_eq!(keeper.keys("indexed"), ["a"], "{map}");
}

#[test]
fn what_database_and_role_say_changes_no_value() {
    let postgres = Postgres::start().expect("a server");
    postgres
        .run(
            "create table f (id timestamptz primary key, raw bytea, x float8, d date, span interval);
             create role eve login superuser; alter role ada set statement_timeout = 0;
             insert into f values ('2001-02-03 04:05:06+00', '\\x00ff417a5c', 0.1::float8 + 0.2::float8, '2001-02-03', '1 day 2 hours');",
        )
        .expect("done");
    // Slower than the time-outs below.
    let map = one_table(
        "query = \"select *, pg_sleep(0.01) from f\"\nattributes = [\"raw\", \"x\", \"d\", \"span\"]",
    );
    let address = postgres.address().replace("ada@", "eve@");
    let (first, _) = loaded(&address, &map);
    let item = first.item("t", "2001-02-03 04:05:06+00");
    assert_eq!(item.attributes["raw"], b"\x00\xffAz\\");
    assert_eq!(
        (item.text("x"), item.text("d"), item.text("span")),
        (Some("0.30000000000000004"), Some("2001-02-03"), Some("1 day 02:00:00"))
    );
    for whose in ["database postgres", "role eve"] {
        for set in [
            "bytea_output = 'escape'",
            "extra_float_digits = 0",
            "datestyle = 'SQL, DMY'",
            "intervalstyle = 'iso_8601'",
            "timezone = 'America/New_York'",
            "client_encoding = 'LATIN1'",
            "statement_timeout = 1",
            "lock_timeout = 1",
            "idle_in_transaction_session_timeout = 1",
            "default_transaction_isolation = 'serializable'",
        ] {
            postgres.run(&format!("alter {whose} set {set}")).expect("done");
            let (now, _) = loaded(&address, &map);
            assert_eq!(now.items, first.items, "{whose}: {set}");
            postgres.run(&format!("alter {whose} reset all")).expect("done");
        }
    }
}

#[test]
fn rows_that_a_policy_hides_are_told_of() {
    let postgres = Postgres::start().expect("a server");
    postgres
        .run(
            "create table f (id int primary key); insert into f values (1), (2); create role bob login; grant select on f to bob;
             alter table f enable row level security; create policy few on f using (id = 1);",
        )
        .expect("done");
    let map = one_table("query = \"select * from f\"");
    let address = postgres.address().replace("ada@", "bob@");
    let refused = load(&origin(&address), &map, Options::default(), None, &mut ()).unwrap_err().to_string();
    assert!(
        refused.contains("row-level security policy for table \"f\"") && refused.contains("BYPASSRLS"),
        "{refused}"
    );
    // Whoever wants some of them says so.
    let (keeper, _) = loaded(&format!("{address}?options=-c%20row_security%3Don"), &map);
    assert_eq!(keeper.keys("t"), ["1"]);
}

/// A map that takes such columns as they stand has its links told, by the column and what makes other texts
/// equal; whatever is to become of links that lead nowhere.
#[test]
fn links_that_lead_nowhere_by_their_texts_alone_are_not_left_out() {
    let postgres = Postgres::start().expect("a server");
    postgres
        .run(
            "create collation german (provider = icu, locale = 'de-u-ks-level1', deterministic = false);
             create table names (name text collate german primary key); create table uses (id int primary key, name varchar(9) references names, part char(3));
             insert into names values ('Ada'); insert into uses values (1, 'ada', 'x'), (2, 'Ada', 'y');",
        )
        .expect("done");
    let map = |column: &str| {
        parsed(&format!(
            "dataset = \"d\"\n[[table]]\nname = \"uses\"\nquery = \"select id, {column} from uses\"\nkey = \"{{id}}\"\n[[table.link]]\nname = \"name\"\n\
             to = \"names\"\nkey = \"{{name}}\"\n[[table]]\nname = \"names\"\nquery = \"select name from names\"\nkey = \"{{name}}\"\n"
        ))
    };
    let attempt = |column: &str, on_dangling| {
        let options = Options { on_dangling, ..Options::default() };
        load(&origin(&postgres.address()), &map(column), options, None, &mut ())
            .map_err(|problem| problem.to_string())
    };
    for on_dangling in [OnDangling::Error, OnDangling::Null, OnDangling::Drop] {
        let refused = attempt("name", on_dangling).unwrap_err();
        assert_eq!(
            refused,
            "uses, row 1, column name: the link name leads to names/\"ada\", which is not there; name is of the type character varying(9), name of names of \
             the type text collate german, and the database may hold values equal whose texts differ: have the query give the text of the row that is \
             meant, as `kelix map suggest` writes it, or cast name"
        );
        assert!(
            attempt("part as name", on_dangling).unwrap_err().contains("name is of the type character(3)")
        );
    }
    // Who says what is meant has the links that lead nowhere left out.
    assert_eq!(attempt("name::text", OnDangling::Null).map(|report| report.links_left_out), Ok(1));
    assert_eq!(
        attempt("initcap(name) as name", OnDangling::Error).map(|report| report.links_left_out),
        Ok(0)
    );
    let suggested = suggest(&origin(&postgres.address())).unwrap();
    postgres
        .run("alter table uses disable trigger all; insert into uses values (3, 'Eve', 'z')")
        .expect("done");
    let options = Options { on_dangling: OnDangling::Null, ..Options::default() };
    let report = load(&origin(&postgres.address()), &parsed(&suggested), options, None, &mut ()).unwrap();
    assert_eq!(report.links_left_out, 1);
}
