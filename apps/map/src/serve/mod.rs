//! The page: a server of HTTP on loopback, whose threads have a session of Kelix each.

mod answers;
mod feed;

use std::cell::RefCell;
use std::net::SocketAddr;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use kelix::Client;
use kelix_apps::{Failure, text};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::Sender;

use crate::congestion::Live;
use crate::load::About;
use crate::matching::Matcher;
use crate::search::Search;
use crate::ways::Links;

pub use feed::{Feed, Traffic};

/// Threads that answer.
const THREADS: usize = 2;

/// What the page is served from.
#[derive(Clone)]
pub struct App {
    /// For the sessions of threads.
    pub client: Client,
    /// The map as a whole.
    pub about: About,
    /// What is written while points come.
    pub live: Live,
    /// To all pages that are open.
    pub news: Sender<String>,
}

/// What a thread answers with.
struct Worker {
    links: Links,
    matcher: Matcher,
    search: Search,
}

thread_local! {
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

type Refusal = (StatusCode, String);

fn failed(error: impl Into<String>) -> Refusal {
    (StatusCode::INTERNAL_SERVER_ERROR, error.into())
}

impl App {
    /// Answers with this thread's session. It is opened anew after an error.
    fn with<T>(&self, answer: impl FnOnce(&mut Worker) -> Result<T, Refusal>) -> Result<T, Refusal> {
        WORKER.with_borrow_mut(|kept| {
            let mut worker = match kept.take() {
                Some(worker) => worker,
                None => {
                    let session = self.client.session().map_err(|error| failed(text(error)))?;
                    let (links, about) = Links::open(session).map_err(failed)?;
                    Worker { links, matcher: Matcher::new(about.grid), search: Search::new() }
                }
            };
            let answered = answer(&mut worker)?;
            *kept = Some(worker);
            Ok(answered)
        })
    }
}

/// Files of the page.
const FILES: [(&str, &str, &str); 5] = [
    ("/", "text/html; charset=utf-8", include_str!("../../page/index.html")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("../../page/page.js")),
    ("/page.css", "text/css; charset=utf-8", include_str!("../../page/page.css")),
    ("/leaflet.js", "text/javascript; charset=utf-8", include_str!("../../page/leaflet/leaflet.js")),
    ("/leaflet.css", "text/css; charset=utf-8", include_str!("../../page/leaflet/leaflet.css")),
];

fn router(app: App) -> Router {
    let mut router = Router::new();
    for (path, kind, body) in FILES {
        router = router.route(path, get(move || async move { ([(header::CONTENT_TYPE, kind)], body) }));
    }
    router
        .route("/about", get(answers::about))
        .route("/streets", get(answers::streets))
        .route("/match", get(answers::matched))
        .route("/route", get(answers::route))
        .route("/minutes", get(answers::minutes))
        .route("/minute", get(answers::minute))
        .route("/live", get(answers::live))
        .with_state(app)
}

/// Serves the page until SIGINT or SIGTERM. `ready` is told where.
pub fn serve(
    app: App,
    listen: SocketAddr,
    ready: impl FnOnce(SocketAddr) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(THREADS).enable_all().build().map_err(text)?;
    let ended = runtime.block_on(async {
        let listener =
            TcpListener::bind(listen).await.map_err(|error| format!("cannot listen at {listen}: {error}"))?;
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt()).map_err(text)?, signal(SignalKind::terminate()).map_err(text)?);
        ready(listener.local_addr().map_err(text)?)?;
        tokio::select! {
            served = axum::serve(listener, router(app)) => served.map_err(text)?,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    });
    // Pages that are open would keep it waiting.
    runtime.shutdown_background();
    ended
}
