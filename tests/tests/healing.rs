//! Sessions whose server has gone: they go over to the next one by themselves, and what they have of the old
//! one leads to nothing else than it did.

use std::time::Duration;

use kelix::{Client, Effect, Error, ErrorKind, FabricChoice, NewItem, Session, SessionOptions};
use kelix_tests::process::{ServerProcess, ServerProgram};
use kelix_tests::{RunDir, breaks, fabrics, session_over, until, watchdog};

fn serve(run: &RunDir) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards: 2, memory_bytes: 64 << 20, take_over: false }
        .serve()
}

/// Sessions with and without trying again, over each fabric. Where connections break nothing is of use
/// without that.
fn each(mut test: impl FnMut(FabricChoice, SessionOptions)) {
    let times = if breaks() { &[2000][..] } else { &[0, 200] };
    for fabric in fabrics() {
        for retry_for in times.iter().copied().map(Duration::from_millis) {
            test(fabric, SessionOptions::default().retry_for(retry_for));
        }
    }
}

/// Tries for as long as the error says that this may be of use.
#[track_caller]
fn persist<T>(mut operation: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut outcome = None;
    until("the operation ends", || {
        outcome = match operation() {
            Err(error) if error.retry() => None,
            result => Some(result),
        };
        outcome.is_some()
    });
    outcome.expect("it has ended")
}

fn opened(run: &RunDir, fabric: FabricChoice, options: &SessionOptions) -> Session {
    session_over(fabric, &Client::connect(run.path()).unwrap(), options.clone())
}

/// After a restart every session was dead, and its errors said to try again.
#[test]
fn a_session_goes_over_to_the_next_server_and_finds_its_table_by_name() {
    let _watchdog = watchdog("a restart");
    each(|fabric, options| {
        let run = RunDir::new();
        let mut first = serve(&run);
        let mut session = opened(&run, fabric, &options);
        let salaries = session.create_table("salaries").unwrap();
        session.put(salaries, b"alice", b"1000").unwrap();
        first.process.kill();
        let error = session.put(salaries, b"alice", b"2000").unwrap_err();
        assert!(error.retry() && error.effect() != Effect::Yes, "{fabric:?}: {error}");
        let second = serve(&run);
        // What has the number now that the table had.
        let mut other = second.session();
        let public = other.create_table("public").unwrap();
        assert_eq!(public.id(), salaries.id());
        other.put(public, b"alice", b"hello").unwrap();
        // The name is not there: this is for the program to decide.
        let error = persist(|| session.get(salaries, b"alice")).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSuchTable, "{fabric:?}: {error}");
        let error = persist(|| session.put(salaries, b"alice", b"2000")).unwrap_err();
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::NoSuchTable, Effect::No),
            "{fabric:?}: {error}"
        );
        let table = other.create_table("salaries").unwrap();
        other.put(table, b"alice", b"3000").unwrap();
        let item = persist(|| session.get(salaries, b"alice")).unwrap().expect("put");
        assert_eq!(item.value(), b"3000", "{fabric:?}");
        persist(|| session.put(salaries, b"bob", b"4000")).unwrap();
        assert_eq!(other.get(table, b"bob").unwrap().expect("put").value(), b"4000");
        assert!(other.get(public, b"bob").unwrap().is_none());
        assert!(!session.is_detached());
    });
}

/// Links name tables by number.
#[test]
fn items_of_a_server_that_has_gone_lead_nowhere() {
    let _watchdog = watchdog("items of before");
    each(|fabric, options| {
        let run = RunDir::new();
        let mut first = serve(&run);
        let mut session = opened(&run, fabric, &options);
        let (people, bosses) =
            (session.create_table("people").unwrap(), session.create_table("bosses").unwrap());
        session.put(bosses, b"grace", b"a boss").unwrap();
        session.put_item(people, b"ada", &NewItem::new().link("boss", bosses, b"grace")).unwrap();
        let ada = session.get(people, b"ada").unwrap().expect("put");
        let mut frontier = kelix::Frontier::new();
        frontier.add_links(&ada, "boss", |_| true);
        first.process.kill();
        let _ = session.put(people, b"k", b"v").unwrap_err();
        let second = serve(&run);
        let mut other = second.session();
        for name in ["other", "secret"] {
            let table = other.create_table(name).unwrap();
            other.put(table, b"grace", b"somebody else").unwrap();
        }
        let error = persist(|| session.follow(&ada, "boss")).map(drop).unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Superseded, false), "{fabric:?}: {error}");
        let error = persist(|| session.follow_into(&mut ada.clone(), "boss")).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Superseded, "{fabric:?}: {error}");
        let error = persist(|| session.follow_all(&ada, "boss")).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Superseded, "{fabric:?}: {error}");
        let visited = persist(|| session.visit(&frontier, |_, _| panic!("it leads nowhere")));
        assert_eq!(visited.unwrap_err().kind(), ErrorKind::Superseded, "{fabric:?}");
    });
}
