//! What a shell keeps from command to command: its session, and whether it was told to stop what it does.
//!
//! A command is lent its session and knows nothing of this. Outside a shell each command opens its own.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kelix::{Client, Session};

/// What is kept. A copy is the same.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    connected: Rc<RefCell<Connected>>,
    interrupted: Arc<AtomicBool>,
    /// Whether it is looked before each command if the server is still there. Sessions notice its end only
    /// now and then, because they can go on reading; people want to know.
    looks: bool,
}

#[derive(Default)]
struct Connected {
    client: Option<Client>,
    /// One as a rule. A scan that meets links has a second one.
    sessions: Vec<Session>,
}

impl Kept {
    /// What is connected to nothing yet.
    pub fn new(looks: bool) -> Kept {
        Kept { looks, ..Kept::default() }
    }

    /// Whether it is to be looked if the server is still there.
    pub fn looks(&self) -> bool {
        self.looks
    }

    /// The client, if there is one.
    pub fn client(&self) -> Option<Client> {
        self.connected.borrow().client.clone()
    }

    /// Keeps a client.
    pub fn keep_client(&self, client: &Client) {
        self.connected.borrow_mut().client = Some(client.clone());
    }

    /// A session that nobody has.
    pub fn take_session(&self) -> Option<Session> {
        self.connected.borrow_mut().sessions.pop()
    }

    /// The same shell's, connected to nothing yet.
    pub fn anew(&self) -> Kept {
        Kept { connected: Rc::default(), ..self.clone() }
    }

    /// Keeps nothing any more, so that the next command connects anew.
    pub fn forget(&self) {
        self.connected.take();
    }

    /// What is set to interrupt a command.
    pub fn interruption(&self) -> &Arc<AtomicBool> {
        &self.interrupted
    }

    /// Whether the command is to end now.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// A session for as long as a command takes.
pub(crate) struct Lent {
    session: Option<Session>,
    back_to: Option<Kept>,
}

impl Lent {
    /// Lends a session. With `back_to` it is kept there afterwards.
    pub fn new(session: Session, back_to: Option<Kept>) -> Lent {
        Lent { session: Some(session), back_to }
    }
}

impl Deref for Lent {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().expect("there until it is dropped")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("there until it is dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(session), Some(kept)) = (self.session.take(), &self.back_to) {
            kept.connected.borrow_mut().sessions.push(session);
        }
    }
}
