//! The program as a process, with a map and points of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

/// The program.
pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kelix-map"))
}

/// What it does with these arguments.
pub fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().expect("the program starts")
}

/// A folder that goes when it is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("kelix-map-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that serves the page.
pub struct Serving {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub address: String,
}

impl Serving {
    pub fn start(arguments: &[&str]) -> Serving {
        Serving::of(program().args(arguments))
    }

    /// Starts a program, and gives what it tells on standard error, too.
    pub fn start_told(arguments: &[&str]) -> (Serving, ChildStderr) {
        let mut serving = Serving::of(program().args(arguments).stderr(Stdio::piped()));
        let told = serving.child.stderr.take().unwrap();
        (serving, told)
    }

    fn of(command: &mut Command) -> Serving {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.find_map(|line| Some(line.ok()?.strip_prefix("http://")?.to_string()));
        let address = url.expect("it says where").trim_end_matches('/').to_string();
        Serving { child, address }
    }

    /// Asks it, and returns the status and the body.
    pub fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_string())
    }

    /// What it answers in JSON, where that is sent in one piece.
    pub fn json(&self, path: &str) -> serde_json::Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Ends it as a person would; whether it ended well.
    pub fn end(mut self) -> bool {
        self.signal("-TERM");
        self.child.wait().unwrap().success()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two streets that cross, as an Overpass server tells of them: Long Street goes east for 1 km, Short Street
/// north.
pub fn crossing() -> String {
    let node =
        |id: u32, lat: f64, lon: f64| format!(r#"{{"type":"node","id":{id},"lat":{lat},"lon":{lon}}}"#);
    let mut elements: Vec<String> = (0..11).map(|n| node(n, 10.0, 100.0 + f64::from(n) * 0.001)).collect();
    elements.extend([node(20, 9.999, 100.005), node(21, 10.002, 100.005)]);
    let long: Vec<String> = (0..11).map(|id| id.to_string()).collect();
    elements.push(format!(
        r#"{{"type":"way","id":1,"nodes":[{}],"tags":{{"highway":"primary","name":"Long Street","maxspeed":"60"}}}}"#,
        long.join(",")
    ));
    elements.push(r#"{"type":"way","id":2,"nodes":[20,5,21],"tags":{"highway":"residential","name":"Short Street","oneway":"yes"}}"#.into());
    elements.push(
        r#"{"type":"way","id":3,"nodes":[0,21],"tags":{"highway":"footway","name":"Foot Path"}}"#.into(),
    );
    elements.push(r#"{"type":"relation","id":4,"members":[]}"#.into());
    format!(r#"{{"version":0.6,"elements":[{}]}}"#, elements.join(","))
}

/// A vehicle that goes along Long Street at 36 km/h, a point each 5 seconds.
pub fn points() -> String {
    let mut text = String::from("id,vehicle_id,timestamp,longitude,latitude\n");
    for number in 0..20 {
        let (minute, second) = (number * 5 / 60, number * 5 % 60);
        let lon = 100.0001 + f64::from(number) * 50.0 / 109_500.0;
        text += &format!("{number},car,2026-06-19 08:{minute:02}:{second:02},{lon},10.00003\n");
    }
    text
}
