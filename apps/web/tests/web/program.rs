//! The program itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kelix-web");

/// A program that does not outlive a test that fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn it_serves_until_it_is_told_to_end() {
    let mut command = Command::new(PROGRAM);
    command.args(["--products", "20", "--reviews", "50"]).stdout(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    assert!(first.starts_with("20 products, 50 reviews, ") && first.contains("generated"), "{first}");
    let serving = lines.find(|line| line.starts_with("serving ")).unwrap();
    let server = serving.trim_start_matches("serving http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(server).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("20 products, 50 reviews, "), "{page}");
    let told = Command::new("kill").args(["-TERM", &running.0.id().to_string()]).status().unwrap();
    assert!(told.success() && running.0.wait().unwrap().success());
}

#[test]
fn it_prints_pages_and_says_what_is_wrong() {
    let run = |arguments: &[&str]| Command::new(PROGRAM).args(arguments).output().unwrap();
    let page = run(&["--products", "5", "--reviews", "9", "page", "G000003"]);
    assert!(page.status.success() && String::from_utf8_lossy(&page.stdout).contains("made anew"));
    let wrong = run(&["--products", "5", "page", "nothing"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&wrong.stderr), "kelix-web: there is no product nothing\n");
    assert_eq!(run(&["--data", "x", "--products", "5"]).status.code(), Some(2), "one or the other");
}

/// A small run, which compares all ways and counts as a check that the benchmark works.
#[test]
fn the_benchmark_runs() {
    let command = ["--products", "12", "--reviews", "100", "bench", "--json"];
    let output = Command::new(PROGRAM).args(command).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ids: Vec<&str> =
        report["rows"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    for id in
        ["page_memcached_mean", "page_multiget_mean", "page_message_mean", "page_index_mean", "page_stale"]
    {
        assert!(ids.contains(&id), "{ids:?}");
    }
    assert!(ids.contains(&"change_price") && ids.contains(&"http"), "{ids:?}");
}
