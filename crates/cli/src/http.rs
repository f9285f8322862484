//! What `kelix serve --metrics` answers over HTTP: Prometheus at `/metrics`, and a page at `/` that shows the
//! server at work, from `/stat.json`.
//!
//! Anybody may reach the address, so everything has bounds: the head of a request (8 KiB, 5 s), an answer (30
//! s), connections at a time (32), and there are no bodies: a request with one is refused, and nothing of
//! that is read or has memory. Each connection is for one request. Where all places are taken the oldest
//! connection makes room for a new one: who asks at once is answered at once, however many others say
//! nothing.
//!
//! It only reads, and takes only GET and HEAD. The page is one file with its style and script in it, made of
//! `crates/cli/page`. It may load nothing and ask nobody but this server: its policy admits what bears the
//! number that is drawn for each answer, and nothing else. Other sites cannot read the answers, since no
//! header lets them; not even one that has its name stand for the loopback interface, because there only
//! names of that are answered ([`is_local`]).

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::future::ready;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName,
    HeaderValue, REFERRER_POLICY, TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kelix::{Client, Credentials};
use kelix_server::Statistics;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::{Handle, Runtime};
use tokio::task::{LocalSet, spawn_local, yield_now};
use tracing::warn;

use crate::Failure;
use crate::kept::Lent;
use crate::metrics::exposition;
use crate::names::Names;

const PAGE: &str = include_str!("../page/index.html");
const STYLE: &str = include_str!("../page/page.css");
const SCRIPT: [&str; 3] =
    [include_str!("../page/page.js"), include_str!("../page/sections.js"), include_str!("../page/live.js")];

const TEXT: &str = "text/plain; charset=utf-8";

/// Bytes of a request's head at most.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long a request's head may take to arrive, and how long a connection may last: whoever reads slowly is
/// not waited for.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(30);
/// Connections that are answered at a time.
const CONNECTIONS_MAX: usize = 32;
/// Between two tries to take a connection where the system has no descriptor for one.
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

type Answer = Response<Full<Bytes>>;

fn with(mut answer: Answer, name: HeaderName, value: &str) -> Answer {
    answer.headers_mut().insert(name, HeaderValue::from_str(value).expect("plain letters"));
    answer
}

/// An answer, which nobody may keep, or take for something else than it is.
fn answer(status: StatusCode, kind: &str, body: impl Into<Vec<u8>>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body.into())));
    *answer.status_mut() = status;
    let answer = with(answer, CONTENT_TYPE, kind);
    with(with(answer, CACHE_CONTROL, "no-store"), X_CONTENT_TYPE_OPTIONS, "nosniff")
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
    let page = answer(StatusCode::OK, "text/html; charset=utf-8", text);
    with(with(page, CONTENT_SECURITY_POLICY, &policy), REFERRER_POLICY, "no-referrer")
}

/// A number that nobody can guess.
fn draw() -> Option<u128> {
    let mut bytes = [0; 16];
    let drawn = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    (drawn == Ok(bytes.len())).then_some(u128::from_ne_bytes(bytes))
}

/// Whether a request's host is a number, or the loopback interface's name, with or without a port: not a name
/// that somebody else has stand for it.
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

/// The answers to requests.
pub(crate) struct Answers {
    statistics: Statistics,
    /// Where this process reads the names of ordered tables, as a client of its own.
    directory: PathBuf,
    names: HashMap<String, Names>,
    bound: SocketAddr,
}

/// A session in a namespace of a run directory.
fn session(directory: &Path, namespace: &str) -> Result<Lent, Failure> {
    let credentials = Credentials::default().namespace(namespace);
    Ok(Lent::new(Client::connect_with(directory, credentials)?.session()?, None))
}

impl Answers {
    /// What a server tells that is reached at `bound`, and whose run directory this is.
    pub fn new(statistics: Statistics, directory: PathBuf, bound: SocketAddr) -> Answers {
        Answers { statistics, directory, names: HashMap::new(), bound }
    }

    fn to(&mut self, request: &Request<Incoming>) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let refused = answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
            return with(refused, ALLOW, "GET, HEAD");
        }
        let length = request.headers().get(CONTENT_LENGTH);
        if request.headers().contains_key(TRANSFER_ENCODING) || length.is_some_and(|length| length != "0") {
            return answer(StatusCode::PAYLOAD_TOO_LARGE, TEXT, "a request has no body here\n");
        }
        match request.uri().path() {
            "/metrics" => {
                let kind = "text/plain; version=0.0.4; charset=utf-8";
                answer(StatusCode::OK, kind, exposition(&self.statistics.json()))
            }
            "/" | "/stat.json" if !self.is_for_us(request) => answer(
                StatusCode::FORBIDDEN,
                TEXT,
                "this server listens on the loopback interface: ask for localhost or 127.0.0.1\n",
            ),
            "/" => match draw() {
                Some(number) => page(number),
                None => answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, "no random numbers: try again\n"),
            },
            "/stat.json" => self.stat(wanted(request.uri().query().unwrap_or(""))),
            _ => answer(StatusCode::NOT_FOUND, TEXT, "see / and /metrics\n"),
        }
    }

    fn is_for_us(&self, request: &Request<Incoming>) -> bool {
        let mut hosts = request.headers().get_all(HOST).iter();
        !self.bound.ip().is_loopback() || hosts.all(|host| host.to_str().is_ok_and(is_local))
    }

    /// What `kelix stat --json` shows of a namespace, and the names of all.
    fn stat(&mut self, wanted: Option<&str>) -> Answer {
        let namespaces = self.statistics.namespaces();
        let name = wanted.unwrap_or(&namespaces[0]);
        let Some(mut statistics) = self.statistics.json_of(name) else {
            let words = json!({ "error": "no such namespace", "namespaces": namespaces });
            return answer(StatusCode::NOT_FOUND, "application/json", words.to_string());
        };
        statistics["namespaces"] = json!(namespaces);
        let names = self.names.entry(name.to_string()).or_default();
        names.add_to(&mut statistics, || session(&self.directory, name));
        answer(StatusCode::OK, "application/json", statistics.to_string())
    }
}

/// A thread that is ready to answer over HTTP, and has neither address nor server yet.
pub(crate) struct Ready {
    tell: Sender<(TcpListener, Statistics)>,
    runtime: Handle,
}

impl Ready {
    /// Makes what the system may refuse. Where the names of tables are read: as a client of the server of a
    /// run directory.
    pub fn new(directory: &Path) -> Result<Ready, Failure> {
        let cannot =
            |source: std::io::Error| Failure::io("serve", "cannot start a thread for metrics", &source);
        kelix_fabric::descriptors::check_for_runtime().map_err(cannot)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let (tell, told) = channel();
        let handle = runtime.handle().clone();
        let directory = directory.to_path_buf();
        let serves = move || serve(&runtime, directory, &told);
        std::thread::Builder::new().name("kelix-metrics".into()).spawn(serves).map_err(cannot)?;
        Ok(Ready { tell, runtime: handle })
    }

    /// Answers from now on, until the process ends. Returns the address.
    pub fn serve(
        self,
        listener: std::net::TcpListener,
        statistics: Statistics,
    ) -> Result<SocketAddr, Failure> {
        let cannot = |source: std::io::Error| Failure::io("serve", "cannot listen for metrics", &source);
        listener.set_nonblocking(true).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let _runtime = self.runtime.enter();
        let listener = TcpListener::from_std(listener).map_err(cannot)?;
        // The thread waits for a listener and nothing else, so it is there to take one.
        let _ = self.tell.send((listener, statistics));
        Ok(address)
    }
}

fn serve(runtime: &Runtime, directory: PathBuf, told: &Receiver<(TcpListener, Statistics)>) {
    let Ok((listener, statistics)) = told.recv() else { return };
    let bound = listener.local_addr().expect("a bound socket");
    let answers = Answers::new(statistics, directory, bound);
    LocalSet::new().block_on(runtime, accept(listener, Rc::new(RefCell::new(answers))));
}

/// Takes connections, for ever.
async fn accept(listener: TcpListener, answers: Rc<RefCell<Answers>>) {
    // The oldest first.
    let mut open = VecDeque::with_capacity(CONNECTIONS_MAX);
    let mut said = false;
    loop {
        let accepted = listener.accept().await;
        open.retain(|connection: &tokio::task::JoinHandle<()>| !connection.is_finished());
        if open.len() == CONNECTIONS_MAX || accepted.is_err() {
            // Of those who have asked already the answer is on its way, so an old connection is one that says
            // or reads nothing.
            open.pop_front().inspect(|oldest| oldest.abort());
            yield_now().await;
        }
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, say: there will be some later.
                if !std::mem::replace(&mut said, true) {
                    warn!(%error, "no connection for metrics can be taken now: they wait");
                }
                tokio::time::sleep(BETWEEN_TRIES).await;
                continue;
            }
        };
        said = false;
        open.push_back(spawn_local(converse(stream, answers.clone())));
    }
}

/// Answers what comes over a connection, and ends it.
pub(crate) async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, answers: Rc<RefCell<Answers>>) {
    let service = service_fn(|request| ready(Ok::<_, Infallible>(answers.borrow_mut().to(&request))));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX);
    http.keep_alive(false).max_buf_size(HEAD_BYTES_MAX).title_case_headers(true);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    // The client may have gone, or read nothing.
    let _ = tokio::time::timeout(CONNECTION_TIME_MAX, connection).await;
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
