//! The shop over HTTP. Its handlers are tasks that share a few sessions: what they read in shared memory is
//! there when they ask, and while one waits for the store its thread answers other requests.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Form, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use kelix::Client;
use kelix::aio::AsyncSession;
use kelix_apps::{Failure, Sessions};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::catalogue::{is_id, price};
use crate::change::ReviewChange;
use crate::document::{error_page, index_page, review_page};
use crate::reviews::NewReview;
use crate::shop::{self, AsyncShop, is_place, words};
use crate::tables::{RATING, SUMMARY, TEXT, Tables};

/// Most bytes of what a form sends.
const FORM_BYTES_MAX: usize = 64 << 10;
/// Most characters of a name, of a review in a few words, and in more.
const NAME_MAX: usize = 60;
const SUMMARY_MAX: usize = 200;
const TEXT_MAX: usize = 5000;
/// Threads that answer, each with a session for its tasks.
const THREADS: usize = 2;
/// Nothing from elsewhere is used, and nothing runs: also what slipped through could do no harm.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; frame-ancestors 'none'";

/// The sessions that requests share.
type Shops = Arc<Sessions<Tables>>;
/// The shop as a request has it.
type SharedShop = AsyncShop<AsyncSession>;

/// A running server. Dropped, it ends.
pub struct HttpServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    runtime: Option<Runtime>,
}

impl HttpServer {
    /// Serves the shop in a store at an address, from threads on the cores of the calling one.
    pub fn start(client: &Client, listen: SocketAddr) -> Result<HttpServer, String> {
        let cannot = |error: std::io::Error| format!("cannot listen at {listen}: {error}");
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("kelix-http")
            .enable_io()
            .enable_time()
            .build()
            .map_err(cannot)?;
        let listener = runtime.block_on(TcpListener::bind(listen)).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let (stop, stopped) = oneshot::channel();
        let shops = Arc::new(Sessions::new(client, THREADS, shop::open));
        // A task of its own, so that also connections are accepted by these threads.
        runtime.spawn(async move {
            let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
            let serve = axum::serve(listener, routes(shops));
            let _ = serve.with_graceful_shutdown(async { drop(stopped.await) }).await;
        });
        Ok(HttpServer { address, stop: Some(stop), runtime: Some(runtime) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(runtime) = self.runtime.take() {
            // Connections that are kept alive would be waited for without end.
            runtime.shutdown_timeout(std::time::Duration::from_millis(200));
        }
    }
}

fn routes(shops: Shops) -> axum::Router {
    axum::Router::new()
        .route("/", get(index))
        .route("/product/{id}", get(product))
        .route("/product/{id}/price", post(change_price))
        .route("/product/{id}/review", post(add_review))
        .route("/review/{id}", get(review).post(change_review))
        .route("/user/{id}", post(rename))
        .fallback(|| async { nothing() })
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .with_state(shops)
}

/// What a request comes to, or what is wrong with it.
type Answer = Result<Response, Wrong>;

enum Wrong {
    /// What was asked for makes no sense.
    Request(String),
    /// It is not there.
    Nothing,
    /// The store does not answer.
    Store(String),
}

impl<E: Into<Failure>> From<E> for Wrong {
    fn from(error: E) -> Wrong {
        Wrong::Store(String::from(error.into()))
    }
}

/// Answers with the shop of this thread's tasks. If its store fails it is opened anew the next time.
async fn answer<F>(shops: &Shops, work: impl FnOnce(SharedShop) -> F) -> Response
where
    F: Future<Output = Answer>,
{
    let answer = match shops.get().await {
        Ok(shared) => {
            let answer = work(AsyncShop::new(shared.session.clone(), shared.context)).await;
            if matches!(answer, Err(Wrong::Store(_))) {
                shops.forget(&shared);
            }
            answer
        }
        Err(failure) => Err(failure.into()),
    };
    match answer {
        Ok(response) => response,
        Err(Wrong::Nothing) => nothing(),
        Err(Wrong::Request(what)) => page(StatusCode::BAD_REQUEST, error_page("That makes no sense", what)),
        Err(Wrong::Store(what)) => {
            page(StatusCode::SERVICE_UNAVAILABLE, error_page("The store does not answer", what))
        }
    }
}

fn page(status: StatusCode, html: impl Into<axum::body::Body>) -> Response {
    let headers = [(header::CONTENT_SECURITY_POLICY, POLICY), (header::CACHE_CONTROL, "no-store")];
    (status, headers, Html(html.into())).into_response()
}

fn nothing() -> Response {
    page(StatusCode::NOT_FOUND, error_page("Not here", "There is nothing at this address."))
}

fn see(address: String) -> Answer {
    Ok(Redirect::to(&address).into_response())
}

#[derive(Deserialize)]
struct Search {
    #[serde(default)]
    q: String,
    after: Option<String>,
}

async fn index(State(shops): State<Shops>, Query(search): Query<Search>) -> Response {
    let work = |mut shop: SharedShop| async move {
        let set = shop.set().await?.unwrap_or_default();
        let after = search.after.as_deref().filter(|after| is_place(after));
        Ok(page(StatusCode::OK, index_page(&mut shop, &search.q, after, &set).await?))
    };
    answer(&shops, work).await
}

async fn product(State(shops): State<Shops>, Path(id): Path<String>) -> Response {
    let work = |mut shop: SharedShop| async move {
        Ok(page(StatusCode::OK, shop.product_page(&id).await?.ok_or(Wrong::Nothing)?))
    };
    answer(&shops, work).await
}

async fn review(State(shops): State<Shops>, Path(id): Path<String>) -> Response {
    let work = |mut shop: SharedShop| async move {
        Ok(page(StatusCode::OK, review_page(&mut shop, &id).await?.ok_or(Wrong::Nothing)?))
    };
    answer(&shops, work).await
}

#[derive(Deserialize)]
struct PriceForm {
    price: String,
}

async fn change_price(
    State(shops): State<Shops>,
    Path(id): Path<String>,
    Form(form): Form<PriceForm>,
) -> Response {
    let work = |mut shop: SharedShop| async move {
        let price = price(&form.price).ok_or_else(|| {
            Wrong::Request(format!("{:?} is no price; one is like 12.50, below 10 million", form.price))
        })?;
        check_id(&id)?;
        shop.change_price(&id, &price).await?.ok_or(Wrong::Nothing)?;
        see(format!("/product/{id}"))
    };
    answer(&shops, work).await
}

/// What somebody thinks.
#[derive(Deserialize)]
struct OpinionForm {
    rating: u8,
    summary: String,
    text: String,
    /// Only of a new review.
    #[serde(default)]
    name: String,
}

async fn add_review(
    State(shops): State<Shops>,
    Path(id): Path<String>,
    Form(form): Form<OpinionForm>,
) -> Response {
    let work = |mut shop: SharedShop| async move {
        let (rating, summary, text) = opinion(&form)?;
        let name = said("name", &form.name, NAME_MAX)?;
        shop.add_review(&id, &NewReview { name, rating, summary, text }).await?.ok_or(Wrong::Nothing)?;
        see(format!("/product/{id}"))
    };
    answer(&shops, work).await
}

async fn change_review(
    State(shops): State<Shops>,
    Path(id): Path<String>,
    Form(form): Form<OpinionForm>,
) -> Response {
    let work = |mut shop: SharedShop| async move {
        let (rating, summary, text) = opinion(&form)?;
        let (review, _) = shop.review(&id).await?.ok_or(Wrong::Nothing)?;
        // A form sends all of a review; fragments that show only what has stayed are left alone.
        let change = ReviewChange {
            rating: Some(rating).filter(|rating| words(review.bytes(RATING)) != rating.to_string()),
            summary: Some(summary).filter(|summary| words(review.bytes(SUMMARY)) != **summary),
            text: Some(text).filter(|text| words(review.bytes(TEXT)) != **text),
        };
        shop.change_review(&id, &change).await?.ok_or(Wrong::Nothing)?;
        let product = review.links(crate::tables::PRODUCT).next().map(|link| words(Some(link.key)));
        see(format!("/product/{}#{id}", product.ok_or(Wrong::Nothing)?))
    };
    answer(&shops, work).await
}

#[derive(Deserialize)]
struct NameForm {
    name: String,
    /// Where the name is to be looked at then.
    product: String,
}

async fn rename(State(shops): State<Shops>, Path(id): Path<String>, Form(form): Form<NameForm>) -> Response {
    let work = |mut shop: SharedShop| async move {
        check_id(&id)?;
        check_id(&form.product)?;
        let name = said("name", &form.name, NAME_MAX)?;
        shop.change_name(&id, name).await?.ok_or(Wrong::Nothing)?;
        see(format!("/product/{}", form.product))
    };
    answer(&shops, work).await
}

fn check_id(id: &str) -> Result<(), Wrong> {
    if is_id(id) { Ok(()) } else { Err(Wrong::Nothing) }
}

fn opinion(form: &OpinionForm) -> Result<(u8, &str, &str), Wrong> {
    if !(1..=5).contains(&form.rating) {
        return Err(Wrong::Request(format!("{} stars; there are 1 to 5", form.rating)));
    }
    let text = form.text.trim();
    if text.chars().count() > TEXT_MAX {
        return Err(Wrong::Request(format!("the review is longer than {TEXT_MAX} characters")));
    }
    Ok((form.rating, said("review in a few words", &form.summary, SUMMARY_MAX)?, text))
}

/// Something that has to be said, in so many characters at most.
fn said<'f>(what: &str, text: &'f str, most: usize) -> Result<&'f str, Wrong> {
    let text = text.trim();
    match text.chars().count() {
        0 => Err(Wrong::Request(format!("the {what} is missing"))),
        count if count > most => Err(Wrong::Request(format!("the {what} is longer than {most} characters"))),
        _ => Ok(text),
    }
}
