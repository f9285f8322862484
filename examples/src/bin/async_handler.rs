//! Notes over HTTP: handlers of an asynchronous server that share one session and wait for nothing else. A
//! get in shared memory is there when the handler asks; while a put is under way its thread answers other
//! requests.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use kelix::aio::AsyncSession;
use kelix::{Error, ErrorKind, Table};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpListener;

/// What tokio does for the session: it waits until a descriptor is readable, or for a time.
async fn readable(descriptor: Option<Arc<OwnedFd>>, time: Duration) {
    let registered = descriptor.map(|descriptor| {
        // SAFETY: an `Arc<OwnedFd>` is an open descriptor, always the same one, for as long as the
        // registration has it.
        unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }
    });
    match registered {
        Some(Ok(descriptor)) => drop(tokio::time::timeout(time, descriptor.readable()).await),
        _ => tokio::time::sleep(time).await,
    }
}

type Notes = State<(AsyncSession, Table)>;
type Answer<T> = Result<T, (StatusCode, String)>;

fn failed(error: Error) -> (StatusCode, String) {
    let status = match error.kind() {
        ErrorKind::InvalidArgument => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, format!("{error}\n"))
}

async fn read(State((session, notes)): Notes, Path(key): Path<String>) -> Answer<Vec<u8>> {
    let note = session.get(notes, key.as_bytes()).await.map_err(failed)?;
    note.map(|note| note.value().to_vec()).ok_or((StatusCode::NOT_FOUND, format!("there is no {key}\n")))
}

async fn write(State((session, notes)): Notes, Path(key): Path<String>, note: Bytes) -> Answer<String> {
    let version = session.put(notes, key.as_bytes(), &note).await.map_err(failed)?;
    Ok(format!("version {version}\n"))
}

async fn remove(State((session, notes)): Notes, Path(key): Path<String>) -> Answer<StatusCode> {
    let was_there = session.delete(notes, key.as_bytes()).await.map_err(failed)?;
    Ok(if was_there { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut session = kelix_examples::connect()?.session()?;
    let notes = session.create_table("notes")?;
    let (session, driver) = AsyncSession::new(session);
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        tokio::spawn(driver.run(readable));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("http://{}/KEY: GET, PUT or DELETE", listener.local_addr()?);
        let routes = Router::new().route("/{key}", get(read).put(write).delete(remove));
        Ok(axum::serve(listener, routes.with_state((session, notes))).await?)
    })
}
