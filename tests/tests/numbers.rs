//! Numbers of dropped tables are given again, and nobody who knew a table finds another one in its place.

use kelix::{ErrorKind, FabricChoice, NewItem, Session, SessionOptions, Table};
use kelix_tests::process::{ServerProcess, ServerProgram};
use kelix_tests::{RunDir, session_over, until, watchdog};

/// Of a kind (`kelix_types::limits::TABLES_MAX`).
const TABLES: usize = 16_383;

fn serve(run: &RunDir) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards: 2, memory_bytes: 256 << 20, take_over: false }
        .serve()
}

/// Makes a table and puts into it what nobody else may find, and drops it.
fn make_and_drop(session: &mut Session, round: usize) -> Table {
    let mut made = None;
    until("there is a number", || match session.create_table("scratch") {
        Ok(table) => made.replace(table).is_none(),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            false
        }
    });
    let table = made.expect("made");
    if round % 50 == 0 {
        session.put(table, b"key", b"another table's").unwrap();
        let mut item = NewItem::new();
        item = item.bytes("attribute of another", b"1");
        session.put_item(table, b"item", &item).unwrap();
    }
    assert!(session.drop_table("scratch").unwrap());
    table
}

/// Asks for a key of a table that has others since, which must not be found; whether it is known that the
/// table has gone.
fn finds_nothing(session: &mut Session, table: Table) -> bool {
    match session.get(table, b"key") {
        Ok(found) => {
            assert!(found.is_none_or(|item| item.value() == b"doomed"));
            false
        }
        Err(error) => {
            let kinds = [ErrorKind::NoSuchTable, ErrorKind::Superseded, ErrorKind::ViewExpired];
            assert!(kinds.contains(&error.kind()) || error.retry(), "{error}");
            error.kind() == ErrorKind::NoSuchTable
        }
    }
}

#[test]
fn numbers_come_back_while_sessions_go_on() {
    let _watchdog = watchdog("numbers of tables");
    let run = RunDir::new();
    let server = serve(&run);
    let mut owner = server.session();
    let kept = owner.create_table("kept").unwrap();
    owner.put(kept, b"key", b"kept").unwrap();
    let doomed = owner.create_table("doomed").unwrap();
    owner.put(doomed, b"key", b"doomed").unwrap();
    let far = |options| session_over(FabricChoice::Tcp, &server.client(), options);
    let again = SessionOptions::default().retry_for(std::time::Duration::from_secs(60));
    let mut sessions = [server.session(), far(SessionOptions::default()), far(again)];
    let handles: Vec<(Table, Table)> = sessions
        .iter_mut()
        .map(|session| (session.table("kept").unwrap(), session.table("doomed").unwrap()))
        .collect();
    assert!(owner.drop_table("doomed").unwrap());
    let mut given_again = false;
    let mut gone = [false; 3];
    for round in 0..2 * TABLES {
        let table = make_and_drop(&mut owner, round);
        given_again |= table.id() == doomed.id();
        for (which, session) in sessions.iter_mut().enumerate() {
            // Only the first reads without a message.
            if which > 0 && round % 20 != 0 {
                continue;
            }
            let (kept, doomed) = handles[which];
            match session.get(kept, b"key") {
                Ok(found) => assert_eq!(found.expect("kept").value(), b"kept", "session {which}"),
                // Its connection was ended in the middle of an operation.
                Err(error) => assert!(error.retry(), "session {which}: {error}"),
            }
            gone[which] |= finds_nothing(session, doomed);
        }
        assert!(owner.get(doomed, b"key").is_err());
    }
    assert!(given_again, "the number of the doomed table was given again");
    for (which, session) in sessions.iter_mut().enumerate() {
        until("the session knows", || gone[which] || finds_nothing(session, handles[which].1));
        assert_eq!(session.get(handles[which].0, b"key").unwrap().expect("kept").value(), b"kept");
    }
    assert_eq!(owner.get(kept, b"key").unwrap().expect("kept").value(), b"kept");
}

/// An idle process looks at nothing, and may go on at any time.
#[test]
fn an_idle_session_keeps_the_numbers_that_it_knows() {
    let _watchdog = watchdog("an idle session");
    let run = RunDir::new();
    let server = serve(&run);
    let mut owner = server.session();
    let doomed = owner.create_table("doomed").unwrap();
    owner.put(doomed, b"key", b"doomed").unwrap();
    let mut idle = server.session();
    let known = idle.table("doomed").unwrap();
    assert!(owner.drop_table("doomed").unwrap());
    let mut made = 0;
    let error = loop {
        match owner.create_table("scratch") {
            Ok(table) => {
                assert_ne!(table.id(), doomed.id());
                owner.put(table, b"key", b"another table's").unwrap();
                assert!(owner.drop_table("scratch").unwrap());
                made += 1;
            }
            Err(error) => break error,
        }
    };
    assert_eq!(made, TABLES - 1, "all that there are but the doomed table's");
    assert!(error.to_string().contains("no session is left that was connected then"), "{error}");
    // Its session was ended, and it hears of that now: the next operation begins another one.
    match idle.get(known, b"key") {
        Ok(found) => assert!(found.is_none()),
        Err(error) => assert!(error.retry(), "{error}"),
    }
    until("it knows", || finds_nothing(&mut idle, known));
    until("numbers come back", || owner.create_table("scratch").is_ok());
}
