//! Connecting as libpq does: the URL first, then the environment, then what is usual.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

use super::identity::Identity;
use super::passwords::{self, Account};
use super::tls::{Connector, Trust};
use super::{Origin, said};
use crate::problem::Problem;

/// Where Debian's servers listen.
const USUAL_DIRECTORY: &str = "/var/run/postgresql";
const USUAL_PORT: u16 = 5432;
/// How long connecting may take, unless the URL says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the URL says of TLS, which libpq and the driver have different words for.
#[derive(Default)]
struct Parameters {
    mode: Option<String>,
    ca: Option<PathBuf>,
    certificates: Option<PathBuf>,
    key: Option<PathBuf>,
    passwords: Option<PathBuf>,
    /// No certificate is shown, whatever there is.
    nameless: bool,
    /// An option that asks for what is not done here, and what to do.
    refused: Option<(String, &'static str)>,
}

/// What is said where something would be weaker, or another, without an option.
const LEAVE_OUT: &str = "leave it out, if the database may be reached without";

/// Options that the driver knows as libpq does.
const KNOWN: [&str; 18] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "options",
    "password",
    "port",
    "sslnegotiation",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// Takes the parameters out of a URL that the driver does not know or knows otherwise.
fn split(address: &str) -> (String, Parameters) {
    let mut parameters = Parameters::default();
    let Some((base, query)) = address.split_once('?') else { return (address.to_string(), parameters) };
    let (mut rest, mut fallback) = (Vec::new(), None);
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match (name, &plain(value)[..]) {
            ("sslmode", mode) => parameters.mode = Some(mode.to_string()),
            // As it is written for Java, which libpq takes, too.
            ("ssl", "true") => parameters.mode = Some("require".into()),
            ("sslrootcert", "system") => {
                let advice = "name a file of certificates, as /etc/ssl/certs/ca-certificates.crt";
                parameters.refused = Some(("sslrootcert=system".into(), advice));
            }
            ("sslrootcert", path) => parameters.ca = Some(path.into()),
            ("sslcert", path) => parameters.certificates = Some(path.into()),
            ("sslkey", path) => parameters.key = Some(path.into()),
            ("passfile", path) => parameters.passwords = Some(path.into()),
            ("sslcertmode", "disable") => parameters.nameless = true,
            // What is so anyway, or has no meaning without Kerberos, compression and keys that want a
            // password, which are refused.
            (
                "client_encoding" | "sslsni" | "krbsrvname" | "gsslib" | "gssdelegation" | "sslcompression"
                | "sslpassword" | "max_protocol_version",
                _,
            )
            | ("gssencmode", "disable" | "prefer")
            | ("sslcertmode", "allow")
            | ("replication", "false" | "off" | "no" | "0")
            | ("min_protocol_version", "3.0")
            | ("ssl_min_protocol_version", "TLSv1" | "TLSv1.1" | "TLSv1.2")
            | ("ssl_max_protocol_version", "TLSv1.3")
            // Any server will do, if it is the only one.
            | ("target_session_attrs", "prefer-standby") => {}
            ("fallback_application_name", _) => fallback = Some(value),
            ("keepalives_count", _) => rest.push(format!("keepalives_retries={value}")),
            ("service" | "servicefile", _) => {
                let advice = "write its host, port, database and user into the address";
                parameters.refused = Some((name.into(), advice));
            }
            ("target_session_attrs", "primary") => {
                parameters.refused = Some(("target_session_attrs=primary".into(), "say read-write"));
            }
            ("target_session_attrs", "standby") => {
                parameters.refused = Some(("target_session_attrs=standby".into(), "say read-only"));
            }
            _ if KNOWN.contains(&name) => rest.push(parameter.to_string()),
            _ => parameters.refused = Some((plain(name), LEAVE_OUT)),
        }
    }
    let named = rest.iter().any(|parameter| parameter.starts_with("application_name="));
    rest.extend(fallback.filter(|_| !named).map(|name| format!("application_name={name}")));
    let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
    (format!("{base}{query}"), parameters)
}

/// A text of a URL without `%20` and the like.
fn plain(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let code = behind.get(..2).filter(|_| *first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A file where libpq has it.
fn usual(name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME")?).join(".postgresql").join(name))
}

/// Who we are, if we are somebody.
fn identity(parameters: &Parameters) -> Result<Option<Identity>, Problem> {
    if parameters.nameless {
        return Ok(None);
    }
    let certificates = parameters.certificates.clone().or_else(|| set("PGSSLCERT").map(PathBuf::from));
    let certificates = certificates.or_else(|| usual("postgresql.crt").filter(|path| path.is_file()));
    let Some(certificates) = certificates else { return Ok(None) };
    let key = parameters.key.clone().or_else(|| set("PGSSLKEY").map(PathBuf::from));
    let key = key.or_else(|| usual("postgresql.key").filter(|path| path.is_file()));
    match key {
        Some(key) => Ok(Some(Identity { certificates, key })),
        None => Err(Problem::Source(format!(
            "the certificate {} needs its key; name it with sslkey in the URL or PGSSLKEY",
            certificates.display()
        ))),
    }
}

/// How it is tried to connect, one way after the other, and who is trusted.
fn tls(from: &Origin, parameters: Parameters) -> Result<(Vec<SslMode>, Trust), Problem> {
    let ca = from.ca.clone().or(parameters.ca).or_else(|| set("PGSSLROOTCERT").map(PathBuf::from));
    let mode = parameters.mode.or_else(|| set("PGSSLMODE")).unwrap_or_else(|| "prefer".into());
    let ca = ca.or_else(|| usual("root.crt").filter(|path| path.is_file()));
    // A file of certificates that is there is used, as by libpq.
    let issuer = |ca: &Option<PathBuf>| ca.clone().map_or(Trust::Anybody, Trust::Issuer);
    let need = |ca: Option<PathBuf>| {
        ca.ok_or_else(|| {
            Problem::Source(format!("sslmode={mode} needs certificates to trust; name a file with --ca"))
        })
    };
    match &mode[..] {
        "disable" => Ok((vec![SslMode::Disable], Trust::Anybody)),
        "allow" => Ok((vec![SslMode::Disable, SslMode::Require], issuer(&ca))),
        "prefer" => Ok((vec![SslMode::Prefer], issuer(&ca))),
        "require" => Ok((vec![SslMode::Require], issuer(&ca))),
        "verify-ca" => Ok((vec![SslMode::Require], Trust::Issuer(need(ca)?))),
        "verify-full" => Ok((vec![SslMode::Require], Trust::IssuerAndHost(need(ca)?))),
        other => Err(Problem::Source(format!(
            "no sslmode is called {other}; there are disable, allow, prefer, require, verify-ca and verify-full"
        ))),
    }
}

/// Adds what the URL leaves to the environment.
fn complete(config: &mut Config) -> Result<(), Problem> {
    if config.get_hosts().is_empty() {
        for number in config.get_hostaddrs().to_vec() {
            config.host(number.to_string());
        }
    }
    if config.get_hosts().is_empty() {
        config.host(set("PGHOST").unwrap_or_else(|| USUAL_DIRECTORY.into()));
    }
    if let (true, Some(port)) = (config.get_ports().is_empty(), set("PGPORT")) {
        let port = port.parse().map_err(|_| Problem::Source(format!("PGPORT is no port: {port}")))?;
        config.port(port);
    }
    if config.get_user().is_none() {
        let user = set("PGUSER").or_else(|| set("USER")).or_else(|| set("LOGNAME"));
        user.map(|user| config.user(user));
    }
    if let (None, Some(database)) = (config.get_dbname(), set("PGDATABASE")) {
        config.dbname(database);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(PATIENCE);
    }
    if config.get_application_name().is_none() {
        config.application_name("kelix load");
    }
    Ok(())
}

fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    }
}

/// Finds the password; and what is to be said if there is none.
fn password(config: &mut Config, from: &Origin, said: Option<&Path>) -> Result<Option<String>, Problem> {
    if let Some(path) = &from.password_file {
        config.password(passwords::from_file(path)?);
    }
    if config.get_password().is_some() {
        return Ok(None);
    }
    if let Some(password) = set("PGPASSWORD") {
        config.password(password);
        return Ok(None);
    }
    let said = said.map(Path::to_path_buf);
    let Some(path) = said.or_else(passwords::usual_file) else { return Ok(None) };
    let host = config.get_hosts().first().map(host_name).unwrap_or_default();
    // libpq calls the usual directory of sockets so.
    let host = if host == USUAL_DIRECTORY { "localhost".to_string() } else { host };
    let user = config.get_user().unwrap_or_default().to_string();
    let account = Account {
        host: &host,
        port: config.get_ports().first().copied().unwrap_or(USUAL_PORT),
        database: config.get_dbname().unwrap_or(&user),
        user: &user,
    };
    match passwords::from_usual_file(&path, &account) {
        Ok(Some(password)) => {
            config.password(password);
            Ok(None)
        }
        Ok(None) => Ok(None),
        Err(why) => Ok(Some(why)),
    }
}

/// Where it leads, without the password.
fn place(config: &Config) -> String {
    let hosts: Vec<String> = config.get_hosts().iter().map(host_name).collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or("");
    format!("the database \"{database}\" at {}", hosts.join(", "))
}

/// What to do about a failure.
fn advice(text: &str, config: &Config) -> &'static str {
    match () {
        () if text.contains("password") && config.get_password().is_none() => {
            "; give the password with --password-file, PGPASSWORD or ~/.pgpass"
        }
        () if text.contains("not valid for name") || text.contains("NotValidForName") => {
            "; its certificate is for another host, which sslmode=verify-full minds"
        }
        () if text.contains("invalid peer certificate") => "; name the certificate's issuer with --ca",
        () if text.contains("connecting to server") => "; is it running, and is that its address?",
        () => "",
    }
}

/// Drives a connection to its end.
pub(super) type Driver = JoinHandle<Result<(), tokio_postgres::Error>>;

/// Connects; the connection is driven whenever the runtime waits for something.
pub(super) fn open(from: &Origin, runtime: &Runtime) -> Result<(Client, Driver), Problem> {
    let (address, parameters) = split(&from.address);
    if let Some((option, advice)) = &parameters.refused {
        return Err(Problem::Source(format!("the address says {option}, which is not done here; {advice}")));
    }
    let mut config: Config = address.parse().map_err(|error: tokio_postgres::Error| {
        Problem::Source(format!(
            "this is no address of a database: {}; write postgres://USER@HOST/DATABASE",
            said(&error)
        ))
    })?;
    complete(&mut config)?;
    let why = password(&mut config, from, parameters.passwords.as_deref())?
        .map_or(String::new(), |why| format!(" ({why})"));
    // Nothing is encrypted on Unix sockets, whatever the mode.
    let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    let (modes, connector) = match local {
        true => (vec![SslMode::Disable], None),
        false => {
            let identity = identity(&parameters)?;
            let (modes, trust) = tls(from, parameters)?;
            let encrypts = modes != [SslMode::Disable];
            (modes, encrypts.then(|| Connector::new(&trust, identity.as_ref())).transpose()?)
        }
    };
    let mut refused = Vec::new();
    for mode in modes {
        config.ssl_mode(mode);
        match connect(&config, connector.as_ref(), runtime) {
            Ok(connected) => return Ok(connected),
            // What the server refuses one way it may take the other way.
            Err(error) => {
                let goes_on = error.as_db_error().is_some();
                refused.push(said(&error));
                if !goes_on {
                    break;
                }
            }
        }
    }
    refused.dedup();
    let text = refused.join("; with TLS: ");
    let advice = advice(&text, &config);
    Err(Problem::Source(format!("cannot connect to {}: {text}{advice}{why}", place(&config))))
}

/// Time-outs that a database or a role may have, which would end the session before it could set its own.
const PATIENT: &str = "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0";

/// Connects in one way: with patience from the start, or, where what stands between (a pooler, say) takes no
/// options, without.
fn connect(
    config: &Config,
    connector: Option<&Connector>,
    runtime: &Runtime,
) -> Result<(Client, Driver), tokio_postgres::Error> {
    let options = format!("{} {PATIENT}", config.get_options().unwrap_or_default());
    let patient = config.clone().options(options.trim_start()).clone();
    match connect_with(&patient, connector, runtime) {
        Err(error) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) => {
            connect_with(config, connector, runtime)
        }
        done => done,
    }
}

fn connect_with(
    config: &Config,
    connector: Option<&Connector>,
    runtime: &Runtime,
) -> Result<(Client, Driver), tokio_postgres::Error> {
    runtime.block_on(async {
        match connector.filter(|_| config.get_ssl_mode() != SslMode::Disable) {
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                Ok((client, runtime.spawn(connection)))
            }
            Some(connector) => {
                let (client, connection) = config.connect(connector.clone()).await?;
                Ok((client, runtime.spawn(connection)))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_told_nothing_of_how_tls_is_meant() {
        let (address, parameters) = split(
            "postgres://ada@db/shop?connect_timeout=3&sslmode=verify-full&sslrootcert=/a%20b/ca.pem&sslcert=c&sslkey=k",
        );
        assert_eq!(address, "postgres://ada@db/shop?connect_timeout=3");
        assert_eq!(parameters.mode.as_deref(), Some("verify-full"));
        assert_eq!(parameters.ca, Some(PathBuf::from("/a b/ca.pem")));
        let identity = Identity { certificates: "c".into(), key: "k".into() };
        assert_eq!(super::identity(&parameters).unwrap(), Some(identity));
        assert_eq!(split("postgres://db?sslmode=disable").0, "postgres://db");
    }

    #[test]
    fn modes_say_who_is_trusted() {
        let from = Origin { ca: Some("ca.pem".into()), ..Origin::default() };
        let mode = |mode: &str| tls(&from, Parameters { mode: Some(mode.into()), ..Parameters::default() });
        let issuer = Trust::Issuer("ca.pem".into());
        assert_eq!(mode("disable").unwrap(), (vec![SslMode::Disable], Trust::Anybody));
        assert_eq!(mode("allow").unwrap(), (vec![SslMode::Disable, SslMode::Require], issuer.clone()));
        assert_eq!(mode("require").unwrap(), (vec![SslMode::Require], issuer.clone()));
        assert_eq!(mode("verify-ca").unwrap(), (vec![SslMode::Require], issuer));
        assert_eq!(
            mode("verify-full").unwrap(),
            (vec![SslMode::Require], Trust::IssuerAndHost("ca.pem".into()))
        );
        assert!(mode("maybe").unwrap_err().to_string().contains("there are disable, allow, prefer"));
    }

    #[test]
    fn passwords_are_in_no_message() {
        let config: Config = "postgres://ada:secret@db.example/shop".parse().unwrap();
        assert_eq!(place(&config), "the database \"shop\" at db.example");
    }
}
