//! The page: a server of HTTP on loopback. What is read in a few scans and visits, tasks read with sessions
//! that they share. What goes through many cells or nodes, one after the other, is computation, and threads
//! that may be blocked do it, each with a session of its own: matching, routes, the streets of a part of the
//! map.

mod answers;
mod feed;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::routing::get;
use axum::{Json, Router};
use kelix::Client;
use kelix::aio::AsyncSession;
use kelix_apps::{Failure, Sessions, text};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::Sender;

use crate::congestion::Live;
use crate::load::About;
use crate::matching::Matcher;
use crate::search::Search;
use crate::ways::Links;

pub use feed::{Feed, Traffic};

/// Threads that answer, each with a session for its tasks; and as many that search.
const THREADS: usize = 2;
/// How long a thread that searches is kept with its session while nobody asks.
const KEPT: Duration = Duration::from_secs(3600);

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

/// What handlers answer from.
#[derive(Clone)]
struct Site {
    app: App,
    /// What tasks read with.
    sessions: Arc<Sessions<()>>,
}

/// What a thread searches with.
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

impl Site {
    /// Answers with the session of this thread's tasks. It is opened anew after an error.
    async fn read<T, F>(&self, answer: impl FnOnce(AsyncSession) -> F) -> Result<Json<T>, Refusal>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let shared = self.sessions.get().await.map_err(failed)?;
        let answered = answer(shared.session.clone()).await;
        if answered.is_err() {
            self.sessions.forget(&shared);
        }
        Ok(Json(answered.map_err(failed)?))
    }

    /// Answers from a thread that may be blocked.
    async fn search<T: Send + 'static>(
        &self,
        answer: impl FnOnce(&App, &mut Worker) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let app = self.app.clone();
        let searched = tokio::task::spawn_blocking(move || app.with(|worker| answer(&app, worker))).await;
        searched.map_err(|error| failed(text(error)))?
    }
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

fn router(site: Site) -> Router {
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
        .with_state(site)
}

/// Serves the page until SIGINT or SIGTERM. `ready` is told where.
pub fn serve(
    app: App,
    listen: SocketAddr,
    ready: impl FnOnce(SocketAddr) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(THREADS).max_blocking_threads(THREADS).thread_keep_alive(KEPT);
    let runtime = builder.enable_all().build().map_err(text)?;
    let open = |client: &Client| Ok((client.session()?, ()));
    let sessions = Arc::new(Sessions::new(&app.client, THREADS, open));
    let site = Site { app, sessions };
    let ended = runtime.block_on(async {
        let listener =
            TcpListener::bind(listen).await.map_err(|error| format!("cannot listen at {listen}: {error}"))?;
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt()).map_err(text)?, signal(SignalKind::terminate()).map_err(text)?);
        ready(listener.local_addr().map_err(text)?)?;
        tokio::select! {
            served = axum::serve(listener, router(site)) => served.map_err(text)?,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    });
    // Pages that are open would keep it waiting.
    runtime.shutdown_background();
    ended
}
