//! `kelix shell`: scripts, lines at a terminal, and servers that go.

mod harness;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use harness::{Done, Place};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

fn script(place: &Place, args: &[&str], lines: &str) -> Done {
    place.kelix_reading(&[&["shell"], args].concat()).give(lines.as_bytes())
}

#[test]
fn a_script_prints_what_its_commands_print() {
    let (place, _server) = Place::served();
    let done = script(
        &place,
        &[],
        "# colours\n\n  table create colours\nkelix put colours 'light red' \"#ff0000\"   # by name\n\
         get colours 'light red'\nput a k --attr n=v --link to=colours/hex:6c\nget a k\ntable list\nhelp get\n\
         get colours 'light red' --json\nexit\nget colours nothing\n",
    );
    let lines: Vec<&str> = done.ok().lines().collect();
    let version = lines[0].parse::<u64>();
    assert!(version.is_ok_and(|version| version > 0), "{done:?}");
    assert_eq!(lines[1], "#ff0000");
    assert_eq!(lines[3..7], ["n: v", "to -> colours/l", "colours", "a"]);
    assert!(lines.iter().any(|line| line.contains("Examples:")), "{done:?}");
    let item: Value = serde_json::from_str(lines.last().expect("a line")).expect("JSON");
    assert_eq!(item["value"], "#ff0000");
    // The session is the same: what the first get learnt need not be read again.
    assert_eq!(
        place.kelix(&["shell", "-c", "get colours 'light red'", "-c", "get a k"]).ok().lines().count(),
        3
    );
}

#[test]
fn the_first_failure_ends_a_script() {
    let (place, _server) = Place::served();
    place.kelix(&["put", "t", "k", "v"]).ok();
    let lines = "get t k\nget t absent\nput t k --nonsense\nget t k\n";
    let done = script(&place, &[], lines);
    done.failed(1, &["kelix: line 2: t/absent: not there"]);
    assert_eq!(done.text(), "v\n");
    let done = script(&place, &["--keep-going"], lines);
    done.failed(1, &["line 2: t/absent", "line 3:", "--nonsense"]);
    assert_eq!(done.text(), "v\nv\n");
    let done = script(&place, &["--keep-going"], "nonsense\nget t absent\n");
    done.failed(2, &["line 1", "nonsense", "line 2"]);
    for (line, words) in [
        ("put t 'k", "a quote is not closed"),
        ("put t k -", "the shell's commands"),
        ("./get t k", "\"./get\" is no command"),
        ("serve", "serve"),
        ("use nowhere", "nowhere"),
    ] {
        let done = script(&place, &[], line);
        assert_ne!(done.code, 0, "{line}");
        assert!(done.err.contains(words), "{line}: {done:?}");
    }
    let error = script(&place, &["--json"], "get t absent\n").error(1);
    assert_eq!(error["context"], "line 1: t/absent: not there");
    place.kelix(&["shell", "-c", "get t absent", "-c", "get t k"]).failed(1, &["kelix: t/absent"]);
    let place = Place::new();
    script(&place, &[], "get t k\n").failed(3, &["line 1: no server"]);
    script(&place, &[], "help\nexit\n").ok();
}

/// What the shell tells the terminal when it begins to read a line.
const READY: &str = "\u{1b}[?2004h";

/// A shell at a terminal.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    shown: String,
}

impl Terminal {
    fn start(place: &Place, args: &[&str]) -> Terminal {
        let keyboard =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&keyboard).and_then(|()| unlockpt(&keyboard)).expect("it is ours");
        tcsetwinsize(&keyboard, Winsize { ws_row: 50, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 })
            .expect("a size");
        let name = ptsname(&keyboard, Vec::new()).expect("its name").into_string().expect("text");
        let other = || File::options().read(true).write(true).open(&name).expect("its other side");
        let child = Command::new(env!("CARGO_BIN_EXE_kelix"))
            .env_clear()
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
            .env("XDG_STATE_HOME", place.path().join("state"))
            .arg("--dir")
            .arg(place.path())
            .args(args)
            .stdin(Stdio::from(other()))
            .stdout(Stdio::from(other()))
            .stderr(Stdio::from(other()))
            .spawn()
            .expect("the program starts");
        let keyboard = File::from(keyboard);
        let mut reading = keyboard.try_clone().expect("a descriptor");
        let (tell, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reading.read(&mut bytes) {
                if tell.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal { child, keyboard, screen, shown: String::new() }
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("it reads");
    }

    /// Waits until a line can be typed, and types.
    #[track_caller]
    fn enters(&mut self, keys: &str) {
        self.shows(READY);
        self.types(keys);
    }

    /// Waits until the screen shows something, and forgets all up to it.
    #[track_caller]
    fn shows(&mut self, words: &str) {
        let began = Instant::now();
        loop {
            if let Some(at) = self.shown.find(words) {
                self.shown.drain(..at + words.len());
                return;
            }
            match self.screen.recv_timeout(Duration::from_millis(100)) {
                Ok(bytes) => self.shown += &String::from_utf8_lossy(&bytes),
                Err(_) => assert!(began.elapsed().as_secs() < 60, "\"{words}\" is not in {:?}", self.shown),
            }
        }
    }

    /// Waits for its end: the exit code.
    fn end(mut self) -> Option<i32> {
        self.child.wait().expect("our child").code()
    }
}

#[test]
fn commands_tables_and_links_are_completed() {
    let (place, _server) = Place::served();
    place.kelix(&["put", "colours", "red", "#ff0000"]).ok();
    place.kelix(&["put", "my people", "ada", "--link", "likes=colours/red"]).ok();
    let mut terminal = Terminal::start(&place, &["shell"]);
    terminal.shows("2 tables");
    terminal.enters("ge\tcol\tred\r");
    terminal.shows("#ff0000");
    terminal.enters("get --js\tcolours red\r");
    terminal.shows("\"value\": \"#ff0000\"");
    terminal.enters("chase 'my people' ada l\t\r");
    terminal.shows("likes -> (1 remote read");
    terminal.enters("put my\tx --link to=co\tred\r");
    terminal.enters("chase 'my people' x t\t --json\r");
    terminal.shows("\"via\": \"to\"");
    terminal.enters("get colours red --path mes\t --json\r");
    terminal.shows("\"messages\": 1");
    terminal.enters("scan ");
    terminal.shows("scan TABLE");
    terminal.types("\u{3}");
    terminal.enters("exit\r");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn what_was_typed_is_remembered() {
    let (place, _server) = Place::served();
    let mut terminal = Terminal::start(&place, &["shell"]);
    terminal.enters("put colours red first\r");
    terminal.enters(" put secrets key word\r");
    terminal.enters("\u{4}");
    assert_eq!(terminal.end(), Some(0));
    let file = place.path().join("state/kelix/history");
    let text = std::fs::read_to_string(&file).expect("a history");
    assert!(text.contains("put colours red first") && !text.contains("secrets"), "{text}");
    assert_eq!(file.metadata().expect("a file").permissions().mode() & 0o777, 0o600);

    let mut terminal = Terminal::start(&place, &["shell"]);
    terminal.enters("\u{1b}[A --if-absent\r");
    terminal.shows("colours/red: there already");
    terminal.enters("exit\r");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn a_lost_server_is_told_and_connected_to_again() {
    let (place, server) = Place::served();
    place.kelix(&["put", "t", "k", "old"]).ok();
    let mut terminal = Terminal::start(&place, &["shell"]);
    terminal.shows("1 table;");
    terminal.enters("get t k\r");
    terminal.shows("old");
    drop(server);
    terminal.enters("get t k\r");
    terminal.shows("no server");
    terminal.shows("the next command connects again");
    let _second = place.serve(&[]);
    place.kelix(&["put", "t", "k", "new"]).ok();
    terminal.enters("get t k\r");
    terminal.shows("new");
    // The session is there, and superseded.
    let _successor = place.serve(&["--take-over"]);
    place.kelix(&["put", "t", "k", "newest"]).ok();
    terminal.enters("get t k\r");
    terminal.shows("taken over");
    terminal.enters("get t k\r");
    terminal.shows("newest");
    terminal.enters("exit\r");
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(Terminal::start(&Place::new(), &["shell"]).end(), Some(3));
}

#[test]
fn a_namespace_is_entered() {
    let place = Place::new();
    let file = place.file("namespaces.toml", b"[people]\nmemory = \"64M\"\nwriters = [\"anybody\"]\n");
    let _server = place.serve(&["--namespaces", file.to_str().expect("text")]);
    let done =
        script(&place, &[], "put t k here\nuse people\nput t k there\nget t k\nuse default\nget t k\n");
    let lines: Vec<&str> = done.ok().lines().collect();
    assert_eq!((lines[2], lines[3]), ("there", "here"));
    assert_eq!(place.kelix(&["--namespace", "people", "get", "t", "k"]).ok(), "there\n");
}
