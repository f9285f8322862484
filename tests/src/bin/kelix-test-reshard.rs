//! Gives a store another number of shards, for tests that end it at a step of their choice.
//!
//! `kelix-test-reshard DIRECTORY SHARDS [NAMESPACE]` prints a line for each step, as `step Begun`, and goes
//! on when it reads one. In the end it prints `done KEYS` or `refused WHY`.

use kelix_server::{Reshard, reshard_log};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, shards, rest @ ..] = &arguments[..] else { panic!("see the source") };
    let wanted = Reshard {
        directory: directory.into(),
        namespace: rest.first().cloned().unwrap_or_default(),
        shards: shards.parse().expect("a number of shards"),
    };
    let done = reshard_log(&wanted, &mut |step| {
        println!("step {step:?}");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).expect("a line");
    });
    match done {
        Ok(done) => println!("done {}", done.keys),
        Err(error) => println!("refused {error}"),
    }
}
