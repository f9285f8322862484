//! Why a server gives no session, in words: the client library says only that no host is available.
//!
//! The server is asked `srvr`, which ZooKeeper answers without a session, also while it has no majority.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long each step may take. Somebody waits for another server meanwhile.
const PATIENCE: Duration = Duration::from_millis(200);
/// How much of an answer is looked at.
const ANSWER_BYTES: usize = 256;

/// The beginning of what a server answers; less where it is slow.
async fn answer(socket: &mut TcpStream) -> Vec<u8> {
    let mut answer = vec![0; ANSWER_BYTES];
    let mut bytes = 0;
    let _ = timeout(PATIENCE, async {
        socket.write_all(b"srvr").await?;
        while bytes < answer.len() {
            match socket.read(&mut answer[bytes..]).await? {
                0 => break,
                more => bytes += more,
            }
        }
        std::io::Result::Ok(())
    })
    .await;
    answer.truncate(bytes);
    answer
}

fn judge(answer: &[u8]) -> &'static str {
    let begins = |words: &[&str]| words.iter().any(|word| answer.starts_with(word.as_bytes()));
    if answer.is_empty() {
        "takes connections, and does not answer"
    } else if begins(&["This ZooKeeper instance is not currently serving"]) {
        "is ZooKeeper, and has no majority"
    } else if begins(&["Zookeeper version", "srvr is not executed"]) {
        "is ZooKeeper, and gave no session in time"
    } else {
        "is no ZooKeeper server"
    }
}

/// What keeps a server from giving a session.
pub(super) async fn diagnose(server: &str) -> String {
    match timeout(PATIENCE, TcpStream::connect(server)).await {
        Err(_) => "takes no connection".into(),
        Ok(Err(error)) => error.to_string(),
        Ok(Ok(mut socket)) => judge(&answer(&mut socket).await).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        assert!(judge(b"").contains("does not answer"));
        assert!(judge(b"HTTP/1.1 400 Bad Request").contains("no ZooKeeper"));
        assert!(judge(b"Zookeeper version: 3.8.0--1").contains("no session"));
        assert!(
            judge(b"This ZooKeeper instance is not currently serving requests\n").contains("no majority")
        );
    }
}
