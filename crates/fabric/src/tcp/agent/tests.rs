//! Tests of the agent: what it hands over, how much it holds, and what it gives up.

use std::io::{Read, Write};

use super::*;
use crate::tcp::frame::Head;
use crate::tcp::{FEED_WORDS_MAX, Greeting};

const LIMITS: AgentLimits = AgentLimits {
    connections: 1,
    greeting: Duration::from_secs(60),
    write_words: 100,
    index: IndexReader::NONE,
};

/// An agent without shards, and a client that has sent so many set-up frames at once.
fn asked(frames: usize) -> (Agent, ConnectionId, TcpStream) {
    let mut agent = Agent::new(Vec::new(), Span::private(64).word(0), 0, LIMITS).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let id = agent.add(listener.accept().unwrap().0).unwrap();
    agent.establish(id);
    let frame = Head::new(Kind::Control, 0, 7, 0).word().to_le_bytes();
    client.write_all(&frame.repeat(frames)).unwrap();
    (agent, id, client)
}

/// All questions that had arrived were handed over before the first was answered: eight bytes each, and a
/// client that read nothing made the agent hold an answer for each.
#[test]
fn whoever_asks_much_is_answered_one_question_at_a_time() {
    const QUESTIONS: usize = 4000;
    const ANSWER: [u8; 16 << 10] = [7; 16 << 10];
    let (mut agent, id, mut client) = asked(QUESTIONS);
    let (mut events, mut answered, mut received) = (Vec::new(), 0, 0);
    let began = Instant::now();
    client.set_nonblocking(true).unwrap();
    let mut room = vec![0; 1 << 20];
    while received < QUESTIONS * (8 + ANSWER.len()) {
        agent.turn(&mut events);
        assert!(events.len() <= 1, "{} questions at once", events.len());
        for event in events.drain(..) {
            assert!(matches!(event, Event::Control(of, 7, _) if of == id), "{event:?}");
            agent.send(id, 8, &ANSWER);
            answered += 1;
        }
        let unsent = agent.find(id).unwrap().stream.unsent();
        assert!(unsent <= UNSENT_BYTES_MAX + ANSWER.len() + 8, "{unsent} bytes wait");
        // Reads only once the agent waits for it.
        if unsent > UNSENT_BYTES_MAX || answered == QUESTIONS {
            received += client.read(&mut room).unwrap_or(0);
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{received} bytes arrived");
    }
    assert_eq!(answered, QUESTIONS);
}

/// A mirror has the connection to itself, with what it has sent already, and the agent nothing of it.
#[test]
fn a_connection_that_carries_a_feed_is_another_threads() {
    let (mut agent, id, client) = asked(0);
    let patience = Duration::from_secs(60);
    let mut mirror = Greeting::new(client, None, FEED_WORDS_MAX, patience).unwrap();
    mirror.tell(20, b"attach");
    let mut mirror = mirror.into_feed_link();
    // The first question comes with what is only answered by the feed.
    mirror.push(6, 0, &[1, 2, 3]);
    mirror.flush();
    let (mut events, began) = (Vec::new(), Instant::now());
    while events.is_empty() {
        agent.turn(&mut events);
        assert!(began.elapsed() < patience, "nothing comes");
    }
    assert!(matches!(&events[..], [Event::Control(of, 20, _)] if *of == id), "{events:?}");
    let mut feed = agent.release(id).unwrap();
    assert!(agent.release(id).is_none() && !agent.has_connections());
    let asked = feed.receive().map(|frame| (frame.part, frame.shard, frame.words.to_vec()));
    assert_eq!(asked, Some((6, 0, vec![1, 2, 3])));
    for shard in 0..40u64 {
        let words: Vec<u64> = (shard..shard + FEED_WORDS_MAX as u64).collect();
        feed.push(2, shard as u8, &words);
    }
    let sent = std::thread::spawn(move || {
        while feed.unsent() > 0 {
            feed.flush();
            feed.wait(Duration::from_millis(100));
        }
        feed.push(5, 0, &[7]);
        feed.refuse("it ends", |waited| waited > patience);
    });
    let mut shard = 0;
    while shard < 40 {
        let Some(frame) = mirror.receive() else {
            mirror.wait(Duration::from_secs(1));
            continue;
        };
        assert_eq!((frame.part, u64::from(frame.shard), frame.words[0]), (2, shard, shard));
        assert_eq!((frame.words.len(), frame.words[8191]), (FEED_WORDS_MAX, shard + 8191));
        shard += 1;
    }
    while mirror.over().is_none() {
        match mirror.receive() {
            Some(frame) => assert_eq!((frame.part, frame.words), (5, &[7][..])),
            None => mirror.wait(Duration::from_secs(1)),
        }
    }
    assert_eq!(mirror.over(), Some("it ends"));
    assert_eq!(mirror.receive(), None);
    sent.join().unwrap();
}

/// Of a feed only frames of a feed come.
#[test]
fn a_feed_ends_with_what_is_none_of_it() {
    let (mut agent, id, mut client) = asked(0);
    client.write_all(&Head::new(Kind::Write, 0, 0, 1).word().to_le_bytes()).unwrap();
    client.write_all(&[0; 8]).unwrap();
    let mut feed = agent.release(id).unwrap();
    let began = Instant::now();
    while feed.over().is_none() {
        assert_eq!(feed.receive(), None);
        assert!(began.elapsed() < Duration::from_secs(60), "it goes on");
    }
    assert_eq!(feed.over(), Some("a frame that makes no sense here"));
}

#[test]
fn whoever_was_refused_is_not_listened_to() {
    let (mut agent, id, _client) = asked(100);
    let (mut events, mut questions) = (Vec::new(), 0);
    let began = Instant::now();
    loop {
        agent.turn(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Control(..) => {
                    questions += 1;
                    agent.refuse(id, "no", "no");
                }
                Event::Ready => unreachable!("nothing is watched"),
                Event::Over(_, why) => return assert_eq!((questions, why), (1, "no")),
            }
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it is not over");
    }
}

/// Where the agent is beside its client it sleeps behind each turn. Whoever calls it has something for its
/// caller to look at, an order or the word that says stop, so then it must not.
#[test]
fn an_agent_that_was_called_does_not_rest() {
    let (mut agent, _, mut client) = asked(1);
    let mut events = Vec::new();
    let began = Instant::now();
    let frame = Head::new(Kind::Control, 0, 7, 0).word().to_le_bytes();
    while !agent.rests {
        let asks = agent.turn(&mut events);
        if asks {
            client.write_all(&frame).unwrap();
        }
        // The agent comes to where this thread is, which the system may move.
        assert!(began.elapsed() < Duration::from_secs(60), "it never rests");
    }
    agent.bell().wake();
    assert!(agent.turn(&mut events) && !agent.rests);
}
