//! What `kelix serve --metrics` answers over HTTP: Prometheus at `/metrics`, and a page at `/` that shows the server at work, from
//! `/stat.json`.
//!
//! It only reads, and takes only GET and HEAD. The page is one file with its style and script in it, made of
//! `crates/cli/page`. It may load nothing and ask nobody but this server: its policy admits what bears the number that is
//! drawn for each answer, and nothing else. Other sites cannot read the answers, since no header lets them; not even one that has its name
//! stand for the loopback interface, because there only names of that are answered ([`is_local`]).

use std::collections::HashMap;
use std::io::Cursor;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelix::{Client, Credentials};
use kelix_server::Statistics;
use serde_json::json;
use tiny_http::{Header, Method, Request, Response, Server};

use crate::Failure;
use crate::kept::Lent;
use crate::metrics::exposition;
use crate::names::Names;

const PAGE: &str = include_str!("../page/index.html");
const STYLE: &str = include_str!("../page/page.css");
const SCRIPT: [&str; 3] =
    [include_str!("../page/page.js"), include_str!("../page/sections.js"), include_str!("../page/live.js")];

const TEXT: &str = "text/plain; charset=utf-8";

type Answer = Response<Cursor<Vec<u8>>>;

fn header(name: &str, value: &str) -> Header {
    Header::from_bytes(name, value).expect("a header")
}

/// An answer, which nobody may keep, or take for something else than it is.
fn answer(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Answer {
    Response::from_data(body)
        .with_status_code(status)
        .with_header(header("Content-Type", kind))
        .with_header(header("Cache-Control", "no-store"))
        .with_header(header("X-Content-Type-Options", "nosniff"))
}

/// The page, whose style and script bear a number.
fn page(number: u128) -> Answer {
    let number = format!("{number:032x}");
    let text = PAGE.replace("{{nonce}}", &number);
    let text = text.replace("{{style}}", STYLE).replace("{{script}}", &SCRIPT.concat());
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{number}'; style-src 'nonce-{number}'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    answer(200, "text/html; charset=utf-8", text)
        .with_header(header("Content-Security-Policy", &policy))
        .with_header(header("Referrer-Policy", "no-referrer"))
}

/// A number that nobody can guess.
fn draw() -> Option<u128> {
    let mut bytes = [0; 16];
    let drawn = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    (drawn == Ok(bytes.len())).then_some(u128::from_ne_bytes(bytes))
}

/// Whether a request's host is a number, or the loopback interface's name, with or without a port: not a name that somebody else has
/// stand for it.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let number = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || number.parse::<IpAddr>().is_ok()
}

/// The namespace that the rest of an address names.
fn wanted(query: &str) -> Option<&str> {
    query.split('&').find_map(|pair| pair.strip_prefix("namespace=")).filter(|name| !name.is_empty())
}

struct Answers {
    statistics: Statistics,
    /// Where this process reads the names of ordered tables, as a client of its own.
    directory: PathBuf,
    names: HashMap<String, Names>,
    bound: SocketAddr,
}

/// A session in a namespace of a run directory.
fn session(directory: &Path, namespace: &str) -> Result<Lent, Failure> {
    let credentials = Credentials { namespace: namespace.to_string(), ..Credentials::default() };
    Ok(Lent::new(Client::connect_with(directory, credentials)?.session()?, None))
}

impl Answers {
    fn to(&mut self, request: &Request) -> Answer {
        if !matches!(request.method(), Method::Get | Method::Head) {
            return answer(405, TEXT, "only GET and HEAD\n").with_header(header("Allow", "GET, HEAD"));
        }
        let (path, query) = request.url().split_once('?').unwrap_or((request.url(), ""));
        match path {
            "/metrics" => {
                let kind = "text/plain; version=0.0.4; charset=utf-8";
                answer(200, kind, exposition(&self.statistics.json()))
            }
            "/" | "/stat.json" if !self.is_for_us(request) => answer(
                403,
                TEXT,
                "this server listens on the loopback interface: ask for localhost or 127.0.0.1\n",
            ),
            "/" => match draw() {
                Some(number) => page(number),
                None => answer(503, TEXT, "no random numbers: try again\n"),
            },
            "/stat.json" => self.stat(wanted(query)),
            _ => answer(404, TEXT, "see / and /metrics\n"),
        }
    }

    fn is_for_us(&self, request: &Request) -> bool {
        let mut hosts = request.headers().iter().filter(|header| header.field.equiv("Host"));
        !self.bound.ip().is_loopback() || hosts.all(|host| is_local(host.value.as_str()))
    }

    /// What `kelix stat --json` shows of a namespace, and the names of all.
    fn stat(&mut self, wanted: Option<&str>) -> Answer {
        let namespaces: Vec<&str> = self.statistics.namespaces().collect();
        let name = wanted.unwrap_or(namespaces[0]);
        let Some(mut statistics) = self.statistics.json_of(name) else {
            let words = json!({ "error": "no such namespace", "namespaces": namespaces });
            return answer(404, "application/json", words.to_string());
        };
        statistics["namespaces"] = json!(namespaces);
        let names = self.names.entry(name.to_string()).or_default();
        names.add_to(&mut statistics, || session(&self.directory, name));
        answer(200, "application/json", statistics.to_string())
    }
}

/// Answers at an address, until the process ends. Returns the address.
pub(crate) fn serve(
    listener: TcpListener,
    statistics: Statistics,
    directory: &Path,
) -> Result<SocketAddr, Failure> {
    let listening = |source: std::io::Error| Failure::io("serve", "cannot listen for metrics", &source);
    let bound = listener.local_addr().map_err(listening)?;
    let server = Server::from_listener(listener, None)
        .map_err(|error| listening(std::io::Error::other(error.to_string())))?;
    let mut answers =
        Answers { statistics, directory: directory.to_path_buf(), names: HashMap::new(), bound };
    let serves = move || {
        loop {
            let Ok(request) = server.recv() else {
                // Out of descriptors, say: there may be some later.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let answer = answers.to(&request);
            // Whoever asked may have gone.
            let _ = request.respond(answer);
        }
    };
    let thread = std::thread::Builder::new().name("kelix-metrics".into()).spawn(serves);
    thread.map_err(|error| Failure::io("serve", "cannot start a thread for metrics", &error))?;
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_and_localhost_are_local() {
        for host in
            ["localhost", "LOCALHOST:9117", "127.0.0.1", "127.0.0.1:9117", "[::1]:9117", "10.0.0.1:80"]
        {
            assert!(is_local(host), "{host}");
        }
        for host in
            ["", "example.org", "example.org:9117", "localhost.example.org", "127.0.0.1.example.org:80"]
        {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn the_page_loads_nothing_and_makes_no_html_of_what_it_is_told() {
        let script = SCRIPT.concat();
        for wrong in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "</script"] {
            assert!(!script.contains(wrong), "{wrong}");
        }
        let whole = PAGE.replace("{{style}}", STYLE).replace("{{script}}", &script);
        for wrong in ["http:", "https:", "//cdn", "@import", "url(", " style=\"", " onclick", "src="] {
            assert!(!whole.contains(wrong), "{wrong}");
        }
        assert_eq!(PAGE.matches("nonce=\"{{nonce}}\"").count(), 2);
    }

    #[test]
    fn a_namespace_is_named_behind_the_path() {
        assert_eq!(wanted("namespace=people-2"), Some("people-2"));
        assert_eq!(wanted("a=b&namespace=x"), Some("x"));
        assert_eq!((wanted(""), wanted("namespace="), wanted("other=x")), (None, None, None));
    }
}
