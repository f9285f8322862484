//! `kelix load --check` against a PostgreSQL that wants to know who it is: passwords, client certificates,
//! encryption. What the program finds in its environment and in its user's directory is made for each run.

mod harness;

use std::os::unix::fs::PermissionsExt;

use harness::{Done, Place};
use kelix_postgres::{Postgres, own_file};
use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, KeyPair};

/// Who gets in how.
const RULES: &str = "\
local all all trust
hostssl all cara localhost scram-sha-256 clientcert=verify-full
hostssl all dora localhost cert
hostssl all eve localhost scram-sha-256
hostnossl all bob localhost scram-sha-256
host all ada localhost scram-sha-256
";

const ROLES: &str = "\
set password_encryption = 'scram-sha-256';
alter role ada password 'ada''s';
create role bob login password 'bob''s';
create role cara login password 'cara''s';
create role dora login;
create role eve login password 'eve''s';";

/// Its one row is there if the connection is encrypted, or is not.
const MAP: &str = "dataset = \"d\"\n[[table]]\nname = \"t\"\nkey = \"{ssl}\"\nquery = \"select ssl from pg_stat_ssl where pid = pg_backend_pid() and ssl = ENCRYPTED\"\n";

/// Issues certificates.
struct Authority {
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority { certificate: params.self_signed(&key).expect("a certificate"), key }
    }

    /// A certificate and its key.
    fn issue(&self, user: &str, host: Option<&str>) -> [String; 2] {
        let hosts = host.map(str::to_string).into_iter().collect::<Vec<_>>();
        let mut params = CertificateParams::new(hosts).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, user);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.certificate, &self.key).expect("a certificate");
        [certificate.pem(), key.serialize_pem()]
    }
}

/// A server, and a directory that is the program's home.
struct Test {
    postgres: Postgres,
    place: Place,
}

impl Test {
    fn new(authority: &Authority) -> Test {
        let settings = [
            "listen_addresses=localhost",
            "ssl=on",
            "ssl_cert_file=server.pem",
            "ssl_key_file=server.key",
            "ssl_ca_file=ca.pem",
        ];
        let postgres = Postgres::start_with(&settings, |data| {
            let [certificate, key] = authority.issue("server", Some("localhost"));
            own_file(data, "server.pem", &certificate).expect("written");
            own_file(data, "server.key", &key).expect("written");
            own_file(data, "ca.pem", &authority.certificate.pem()).expect("written");
            own_file(data, "pg_hba.conf", RULES).expect("written");
        })
        .expect("a server");
        postgres.run(ROLES).expect("done");
        let place = Place::new();
        place.file("encrypted.toml", MAP.replace("ENCRYPTED", "true").as_bytes());
        place.file("open.toml", MAP.replace("ENCRYPTED", "false").as_bytes());
        Test { postgres, place }
    }

    /// A file of the user's, with who may read it.
    fn file(&self, name: &str, text: &str, mode: u32) -> String {
        let path = self.place.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("our file");
        path.to_str().expect("a name").to_string()
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.place.path().join(name)).expect("our file");
    }

    fn check(
        &self,
        map: &str,
        user: &str,
        parameters: &str,
        variables: &[(&str, &str)],
        more: &[&str],
    ) -> Done {
        let home = self.place.path().to_str().expect("a name");
        let address = self.postgres.tcp_address(user, "localhost", parameters);
        let map = format!("{home}/{map}");
        let args = [&["load", "--from", &address, "--map", &map, "--check"], more].concat();
        self.place.kelix_knowing(&[&[("HOME", home)], variables].concat(), &args)
    }

    /// Whether the row is there of a user who gets in.
    #[track_caller]
    fn gets_in(&self, user: &str, parameters: &str, variables: &[(&str, &str)], more: &[&str]) {
        let done = self.check("encrypted.toml", user, parameters, variables, more);
        assert!(done.ok().starts_with("checked 1 row in"), "{done:?}");
    }

    /// The same without encryption.
    #[track_caller]
    fn gets_in_openly(&self, user: &str, parameters: &str, variables: &[(&str, &str)]) {
        let done = self.check("open.toml", user, parameters, variables, &[]);
        assert!(done.ok().starts_with("checked 1 row in"), "{done:?}");
    }

    #[track_caller]
    fn is_refused(&self, user: &str, parameters: &str, variables: &[(&str, &str)], words: &[&str]) {
        let done = self.check("encrypted.toml", user, parameters, variables, &[]);
        done.failed(5, words);
        assert!(!done.err.contains("'s"), "a password is told: {done:?}");
    }
}

#[test]
fn passwords_come_from_the_first_place_that_has_one() {
    let test = Test::new(&Authority::new());
    let good = test.file("good", "eve's\n", 0o600);
    let bad = test.file("bad", "guess\n", 0o600);
    let failed = ["password authentication failed for user \"eve\""];
    let none = ["give the password with --password-file, PGPASSWORD or ~/.pgpass"];
    test.is_refused("eve", "", &[], &none);

    // The user's own file is the last place.
    let line = |user: &str, password: &str| {
        format!("# passwords\nlocalhost:{}:*:{user}:{password}\n", test.postgres.port())
    };
    test.file(".pgpass", &line("bob", "bob's"), 0o600);
    test.is_refused("eve", "", &[], &none);
    test.file(".pgpass", &line("eve", "eve's"), 0o600);
    test.gets_in("eve", "", &[], &[]);
    test.file(".pgpass", &line("eve", "eve's"), 0o644);
    test.is_refused("eve", "", &[], &["was not looked at, because others can read it: chmod 600"]);
    // One that is named stands for it.
    let named = test.file("named", &line("eve", "eve's"), 0o600);
    test.gets_in("eve", "", &[("PGPASSFILE", &named)], &[]);
    test.file("named", &line("eve", "guess"), 0o600);
    test.file(".pgpass", &line("eve", "eve's"), 0o600);
    test.is_refused("eve", "", &[("PGPASSFILE", &named)], &failed);
    test.is_refused("eve", "", &[("PGPASSFILE", "/nonexistent")], &none);
    // A word in the environment comes before any file of words, the URL's before that, and what is said
    // before all.
    test.is_refused("eve", "", &[("PGPASSWORD", "guess")], &failed);
    test.file(".pgpass", &line("eve", "guess"), 0o600);
    test.gets_in("eve", "", &[("PGPASSWORD", "eve's")], &[]);
    test.gets_in("eve:eve%27s", "", &[("PGPASSWORD", "guess")], &[]);
    test.is_refused("eve:guess", "", &[("PGPASSWORD", "eve's")], &failed);
    test.gets_in("eve:guess", "", &[("PGPASSWORD", "guess")], &["--password-file", &good]);
    let done = test.check(
        "encrypted.toml",
        "eve:eve%27s",
        "",
        &[("PGPASSWORD", "eve's")],
        &["--password-file", &bad],
    );
    done.failed(5, &failed);
    // An empty variable is none.
    test.file(".pgpass", &line("eve", "eve's"), 0o600);
    test.gets_in("eve", "", &[("PGPASSWORD", "")], &[]);
}

#[test]
fn passwords_are_bound_to_encrypted_connections() {
    let test = Test::new(&Authority::new());
    let eve = [("PGPASSWORD", "eve's")];
    for binding in ["require", "prefer", "disable"] {
        test.gets_in("eve", &format!("sslmode=require&channel_binding={binding}"), &eve, &[]);
    }
    let open = "sslmode=disable&channel_binding=require";
    test.is_refused("bob", open, &[("PGPASSWORD", "bob's")], &["channel binding"]);
}

#[test]
fn encryption_that_is_allowed_is_tried_last() {
    let test = Test::new(&Authority::new());
    // The server takes one of them with encryption only, one without it only, and one either way.
    let [ada, bob, eve] = ["ada's", "bob's", "eve's"].map(|password| [("PGPASSWORD", password)]);
    test.gets_in("eve", "sslmode=allow", &eve, &[]);
    test.gets_in_openly("bob", "sslmode=allow", &bob);
    test.gets_in_openly("ada", "sslmode=allow", &ada);
    test.gets_in("ada", "sslmode=prefer", &ada, &[]);
    test.gets_in("ada", "", &[ada[0], ("PGSSLMODE", "require")], &[]);
    test.gets_in_openly("ada", "", &[ada[0], ("PGSSLMODE", "allow")]);
    let wrong = [("PGPASSWORD", "guess")];
    let both = ["no encryption; with TLS: password authentication failed for user \"eve\""];
    test.is_refused("eve", "sslmode=allow", &wrong, &both);
    test.is_refused(
        "bob",
        "sslmode=allow",
        &wrong,
        &["failed for user \"bob\"; with TLS: no pg_hba.conf entry"],
    );
    test.is_refused("ada", "sslmode=allow", &wrong, &["password authentication failed for user \"ada\"\n"]);
}

#[test]
fn client_certificates() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let test = Test::new(&authority);
    let [cara, cara_key] = authority.issue("cara", None);
    let [dora, dora_key] = authority.issue("dora", None);
    let [false_cara, false_key] = stranger.issue("cara", None);
    let password = ("PGPASSWORD", "cara's");
    test.is_refused("cara", "", &[password], &["connection requires a valid client certificate"]);
    test.is_refused("dora", "", &[], &["connection requires a valid client certificate"]);

    let [cara_file, key_file] =
        [("cara.crt", &cara), ("cara.key", &cara_key)].map(|(name, text)| test.file(name, text, 0o600));
    let in_url = format!("sslmode=require&sslcert={cara_file}&sslkey={key_file}");
    test.gets_in("cara", &in_url, &[password], &[]);
    // It stands beside the password, not for it.
    test.is_refused("cara", &in_url, &[("PGPASSWORD", "guess")], &["password authentication failed"]);
    let variables = [password, ("PGSSLCERT", &cara_file), ("PGSSLKEY", &key_file)];
    test.gets_in("cara", "", &variables, &[]);
    test.gets_in(
        "cara",
        "sslmode=verify-full",
        &variables,
        &["--ca", &test.file("ca.pem", &authority.certificate.pem(), 0o644)],
    );
    // The certificate is somebody's.
    test.is_refused("dora", "", &variables, &["certificate authentication failed for user \"dora\""]);

    // What is said comes before what is in the user's directory.
    test.file(".postgresql/postgresql.crt", &dora, 0o644);
    test.is_refused(
        "dora",
        "",
        &[],
        &["postgresql.crt needs its key; name it with sslkey in the URL or PGSSLKEY"],
    );
    test.file(".postgresql/postgresql.key", &dora_key, 0o600);
    test.gets_in("dora", "", &[], &[]);
    test.is_refused("cara", "", &[password], &["authentication failed for user \"cara\""]);
    test.gets_in("cara", "", &variables, &[]);
    test.gets_in(
        "cara",
        &in_url,
        &[password, ("PGSSLCERT", "/nonexistent"), ("PGSSLKEY", "/nonexistent")],
        &[],
    );
    // Where nothing is encrypted nobody asks for it.
    test.file(".postgresql/postgresql.key", "", 0o644);
    test.gets_in_openly("bob", "sslmode=disable", &[("PGPASSWORD", "bob's")]);

    // Keys and certificates that are no good.
    test.is_refused("dora", "", &[], &["postgresql.key can be used by others, too: chmod 600"]);
    test.remove(".postgresql/postgresql.key");
    test.file(".postgresql/postgresql.key", "nothing", 0o600);
    test.is_refused("dora", "", &[], &["postgresql.key has no key in PEM, or one that wants a password"]);
    test.file(".postgresql/postgresql.key", &cara_key, 0o600);
    test.is_refused("dora", "", &[], &["postgresql.key cannot be used"]);
    test.is_refused("cara", "", &[password, ("PGSSLCERT", "/nonexistent")], &["cannot read /nonexistent"]);
    test.file("cara.crt", &false_cara, 0o644);
    test.file("cara.key", &false_key, 0o600);
    test.is_refused(
        "cara",
        &in_url,
        &[password],
        &["cannot connect to the database \"postgres\" at localhost"],
    );
}
