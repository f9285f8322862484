//! A session whose server has gone goes on with the next one.
//!
//! ```text
//! open --the server goes, or is superseded: the operation fails--> lost --the next operation, where a server is there--> open
//! ```
//!
//! The operation that meets the end of the server fails and says what it has done; the next one connects anew, to whichever server is at the
//! address, and is done there. While there is none, one-sided reads of mapped memory go on from the last state, and everything else fails.
//!
//! A handle of a table carries the number of the life of the store that it was opened in. In a later life it stands for the table of the same
//! name, which is looked up once; never for another table, whatever number that has. A handle whose name is not known, of a view say, is
//! refused.

use std::collections::HashMap;
use std::sync::Arc;

use kelix_fabric::Fabric;
use kelix_types::{Error, ErrorKind, Result, TableId};

use crate::Table;
use crate::session::Session;

/// In place of the number of a life: the server has gone.
const LOST: u64 = 0;
/// Between two tries to connect anew, so that a program that calls over and over does not spend its time so.
const BETWEEN_TRIES_NS: u64 = 20_000_000;

/// What a session remembers of the handles that it gave.
#[derive(Default)]
pub(crate) struct Handles {
    /// By life and number: the names of tables.
    names: HashMap<(u64, TableId), Arc<str>>,
    /// Handles of earlier lives, and those that they stand for in this one.
    now: HashMap<(u64, TableId), Table>,
    /// When the next try to connect anew may be made.
    next_try_ns: u64,
}

impl Session {
    /// Remembers the name of a table whose handle is given away.
    pub(crate) fn remember_name(&mut self, table: Table, name: &str) {
        let known = self.handles.names.entry((table.server, table.id));
        known.or_insert_with(|| name.into());
    }

    /// The server has gone, or was superseded: the next operation looks for another one.
    pub(crate) fn lose(&mut self) {
        self.server = LOST;
    }

    /// Connects anew if the server was lost, nothing is under way, and there is one now.
    #[cold]
    pub(crate) fn revive(&mut self) {
        let now_ns = self.core.fabric.now_ns();
        if self.server != LOST || self.outstanding() > 0 || now_ns < self.handles.next_try_ns {
            return;
        }
        #[cfg(kelix_sim)]
        if matches!(self.setup, crate::connect::Setup::Sim(_)) {
            return;
        }
        // Where that fails the operation goes on, and says itself what is wrong.
        if self.reconnect().is_err() {
            self.handles.next_try_ns = self.core.fabric.now_ns() + BETWEEN_TRIES_NS;
        }
    }

    /// The same, for operations that begin without a handle.
    #[inline]
    pub(crate) fn revive_if_lost(&mut self) {
        if self.server == LOST {
            self.revive();
        }
    }

    /// What a handle stands for that is not of this life of the store, or not known to be.
    #[cold]
    pub(crate) fn check_other(&mut self, operation: &'static str, table: Table) -> Result<TableId> {
        self.revive_if_lost();
        let life = self.core.life();
        if table.server == life {
            return self.check_own(operation, table);
        }
        let key = (table.server, table.id);
        if let Some(now) = self.handles.now.get(&key) {
            return self.check_own(operation, *now);
        }
        let Some(name) = self.handles.names.get(&key).cloned() else {
            let context = "the handle is of an earlier server, and which table it led to is not known: open the table again";
            return Err(Error::new(ErrorKind::Superseded, operation, context).with_retry(false));
        };
        let now = self.table(&name)?;
        if now.kind() != table.kind() {
            let context =
                format!("table \"{name}\" is {} now, and was {}: open it again", now.kind(), table.kind());
            return Err(Error::new(ErrorKind::Superseded, operation, context).with_retry(false));
        }
        self.handles.now.insert(key, now);
        self.check_own(operation, now)
    }

    /// Takes what is remembered over from the session before.
    pub(crate) fn take_handles(&mut self, mut handles: Handles) {
        handles.now.clear();
        self.handles = handles;
    }
}
