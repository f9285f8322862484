//! A whole server and a client over TCP that says anything, in any pieces: its connection ends, the server
//! goes on, and who has not been let in is told nothing but that.

#![no_main]

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use kelix::{Address, Client, Credentials, Path, Session, SessionOptions, Table};
use kelix_fuzz::Input;
use kelix_fuzz::tcp::{End, control, head};
use kelix_server::{Server, ServerConfig, Token};
use kelix_types::TableId;
use kelix_wire::control::{Caller, Frame, Purpose};
use kelix_wire::{
    FrameBuffer, MAILBOX_BYTES, Op, RequestHead, SPOKEN, Versions, encode_request, mailbox_word,
};
use libfuzzer_sys::fuzz_target;

const TOKEN: &str = "a token";
const PATIENCE: Duration = Duration::from_secs(5);
/// Inputs between two looks whether the server still serves.
const INPUTS_A_LOOK: u64 = 64;

struct World {
    server: Server,
    session: Session,
    table: Table,
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| {
    let directory = std::env::temp_dir().join(format!("kelix-fuzz-{}", std::process::id()));
    let config = ServerConfig {
        directory: directory.clone(),
        shards: 2,
        memory_bytes: 32 << 20,
        pin: false,
        listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
        tokens: vec![Token { name: String::new(), word: TOKEN.into() }],
        ..ServerConfig::default()
    };
    let server = Server::start(&config).expect("a server");
    // Nobody looks for it there.
    std::fs::remove_dir_all(directory).expect("its directory");
    let address = Address::Tcp(server.tcp_address().expect("a port").to_string());
    let credentials = Credentials::default().token(TOKEN.to_string());
    let client = Client::connect_with(address, credentials).expect("a server that serves");
    let options = SessionOptions::default().path(Path::Pointer).timeout(PATIENCE);
    let mut session = client.session_with(options).expect("a session");
    let table = session.create_table("t").expect("a table");
    session.put(table, b"key", b"value").expect("room");
    Mutex::new(World { server, session, table })
});

fn frame(frame: &Frame) -> Vec<u8> {
    let (kind, bytes) = frame.encode();
    control(kind, &bytes)
}

/// A request as it stands in the ring, in a WRITE.
fn request(input: &mut Input<'_>, sequence: &mut u32, at: &mut usize) -> Vec<u8> {
    let ops = [Op::Get, Op::Put, Op::Delete, Op::Ping, Op::LargeBegin, Op::Intern];
    let op = ops[usize::from(input.u8()) % ops.len()];
    let head_ = RequestHead::new(op, u32::from(input.u8()), TableId(1 + u16::from(input.u8() & 3)));
    let mut buffer = FrameBuffer::default();
    let length = usize::from(input.u8() & 15);
    encode_request(&mut buffer, head_, input.bytes(length), b"body");
    let payload = buffer.payload();
    let first = (mailbox_word::RING + *at) as u32;
    let mut bytes = head(4, input.u8() & 1, first, 1 + payload.len() as u32).to_le_bytes().to_vec();
    bytes.extend((u64::from(*sequence) << 32 | payload.len() as u64).to_le_bytes());
    payload.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    *sequence += 1;
    *at += 1 + payload.len();
    bytes
}

fuzz_target!(|data: &[u8]| {
    static INPUTS: AtomicU64 = AtomicU64::new(0);
    let mut world = WORLD.lock().expect("no panic before");
    let mut input = Input(data);
    let mut pieces = Vec::new();
    let (mut known, mut sequence, mut at) = (false, 1, 0);
    while !input.is_empty() {
        let what = input.u8();
        pieces.push(match what & 15 {
            0..3 => {
                known = true;
                frame(&Frame::Token { token: TOKEN.into() })
            }
            3 => frame(&Frame::Token { token: input.bytes(usize::from(what >> 4)).to_vec() }),
            4..7 => {
                let purpose = if what & 16 == 0 { Purpose::Session } else { Purpose::Statistics };
                let versions = if what >> 5 == 7 { Versions { oldest: 9, newest: 9 } } else { SPOKEN };
                // Some go on with a session of before, and some want what is nobody's.
                let caller = input.u8();
                let namespace = if caller & 128 == 0 { "" } else { "nobodys" }.to_string();
                let number = u64::from(caller & 3);
                let caller = (number > 0).then_some(Caller { number, again: caller & 4 != 0 });
                frame(&Frame::Hello {
                    versions,
                    features: u64::from(what >> 5 == 6),
                    purpose,
                    caller,
                    namespace,
                })
            }
            7 => frame(&Frame::AskStatistics).repeat(1 + usize::from(what >> 4) * 16),
            8 => {
                let place = u64::from(input.u32()) << 3;
                let shard = input.u8() & 3;
                let mut bytes = head(1, shard, 7, 1 + u32::from(input.u16() & 0x1fff)).to_le_bytes().to_vec();
                bytes.extend(place.to_le_bytes());
                bytes
            }
            9 => {
                let first = u32::from(input.u16()) % (MAILBOX_BYTES as u32 / 8 + 9);
                let mut bytes = head(4, input.u8() & 3, first, 1).to_le_bytes().to_vec();
                bytes.extend(input.u64().to_le_bytes());
                bytes
            }
            10..13 => request(&mut input, &mut sequence, &mut at),
            13 => {
                let length = usize::from(input.u8());
                control(u16::from(what >> 4), input.bytes(length))
            }
            _ => {
                // It may be anything, the token too.
                let length = usize::from(input.u8());
                let bytes = input.bytes(length).to_vec();
                known |= bytes.windows(TOKEN.len()).any(|word| word == TOKEN.as_bytes());
                bytes
            }
        });
    }
    known |= data.windows(TOKEN.len()).any(|word| word == TOKEN.as_bytes());

    let mut end = End::open(world.server.tcp_address().expect("a port"));
    let began = Instant::now();
    for piece in &pieces {
        let mut sent = 0;
        while sent < piece.len() && !end.over {
            sent += end.send(&piece[sent..]);
            end.receive();
            assert!(began.elapsed() < PATIENCE, "nothing is taken in any more");
        }
    }
    end.finish();
    while !end.over {
        end.receive();
        std::thread::yield_now();
        assert!(began.elapsed() < PATIENCE, "a connection that never ends");
    }
    if !known {
        let refused = control(9, b"").first().copied();
        let kind = end.received.get(2).copied();
        assert!(end.received.is_empty() || (end.received.first().copied() == refused && kind == Some(9)));
        assert!(end.received.len() < 256, "a stranger was told {} bytes", end.received.len());
    }
    if INPUTS.fetch_add(1, Ordering::Relaxed) % INPUTS_A_LOOK == 0 {
        let World { session, table, .. } = &mut *world;
        // What stands there is anybody's who has been let in.
        session.get(*table, b"key").expect("an answer");
        session.delete(*table, b"another").expect("an answer");
    }
});
