//! `kelix bench` runs `kelix-bench`, which stands beside it. What that does is tested in `bench/tests`.

mod harness;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use harness::Place;

/// Runs a copy of the program in a directory: exit code, output and errors.
fn bench(directory: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(directory.join("kelix"));
    let ran = command.args(args).env("KELIX_CONFIG", "/dev/null").output().expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

#[test]
fn what_was_typed_goes_to_the_program_beside_it_and_its_exit_status_comes_back() {
    let place = Place::new();
    let directory = place.path();
    std::fs::copy(env!("CARGO_BIN_EXE_kelix"), directory.join("kelix")).expect("a copy");

    let (code, _, told) = bench(directory, &["bench", "spine"]);
    let wanted =
        format!("there is no {}; `make build` builds all of it", directory.join("kelix-bench").display());
    assert!(code == Some(5) && told.contains(&wanted), "{code:?} {told}");
    for help in [&["bench", "--help"][..], &["help", "bench"]] {
        let (code, said, _) = bench(directory, help);
        assert!(code == Some(0) && said.contains("kelix-bench") && said.contains("--records"), "{said}");
    }

    let script = place.file("kelix-bench", b"#!/bin/sh\nprintf '[%s]' \"$@\"\necho told >&2\nexit 7\n");
    std::fs::set_permissions(script, Permissions::from_mode(0o755)).expect("a program");
    for (typed, wanted) in [
        (&["bench", "spine"][..], "[spine]"),
        (&["--json", "bench", "peers", "--records", "10M"], "[--json][peers][--records][10M]"),
        (
            &["bench", "--keys", "trace", "a file", "--threads=2", "peers"],
            "[peers][--keys][trace][a file][--threads][2]",
        ),
        (
            &["bench", "report", "--only", "links", "--only", "spine"],
            "[report][--only][links][--only][spine]",
        ),
        (&["bench", "--project", "nic.toml"], "[--project][nic.toml]"),
    ] {
        assert_eq!(bench(directory, typed), (Some(7), wanted.into(), "told\n".into()));
    }
    // What no benchmark takes does not come so far.
    assert_eq!(bench(directory, &["bench", "nothing"]).0, Some(2));
}
