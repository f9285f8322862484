//! The one error type of Kelix.
//!
//! An error answers four questions a caller has: what kind is it, is trying again of use, did the write take
//! effect, and what was going on. The same four exist in every language binding.

use std::fmt;

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument breaks a documented limit or makes no sense. Nothing was sent.
    InvalidArgument,
    /// The table does not exist.
    NoSuchTable,
    /// The item has no such attribute, or it is not of the wanted kind.
    NoSuchAttribute,
    /// The caller's buffer is smaller than the value.
    BufferTooSmall,
    /// The store has no room, and none comes back by waiting.
    OutOfMemory,
    /// No server answers, or it has gone.
    Unavailable,
    /// The server did not answer in time.
    TimedOut,
    /// Another server has taken over. A session connects to it with its next call, unless [`Error::retry`]
    /// says that what was used has to be got or opened anew.
    Superseded,
    /// The generation of a loaded table that was being read is not there any more.
    ViewExpired,
    /// A loaded table takes no writes for a moment, because its next generation is about to come into force.
    Frozen,
    /// The other side, or a file, is of another version, byte order or layout.
    Incompatible,
    /// A file is not what was written: it was changed, or cut short.
    Damaged,
    /// The other side broke the protocol.
    Protocol,
    /// The server does not let this client do that.
    Denied,
    /// The system refused (permission, descriptors, memory); see the source.
    System,
    /// The session is of the process that forked this one, which goes on with it; open one here.
    Forked,
}

impl ErrorKind {
    /// The name, as printed and as used in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorKind::InvalidArgument => "invalid argument",
            ErrorKind::NoSuchTable => "no such table",
            ErrorKind::NoSuchAttribute => "no such attribute",
            ErrorKind::BufferTooSmall => "buffer too small",
            ErrorKind::OutOfMemory => "out of memory",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::TimedOut => "timed out",
            ErrorKind::Superseded => "superseded",
            ErrorKind::ViewExpired => "view expired",
            ErrorKind::Frozen => "frozen",
            ErrorKind::Incompatible => "incompatible",
            ErrorKind::Damaged => "damaged",
            ErrorKind::Protocol => "protocol error",
            ErrorKind::Denied => "denied",
            ErrorKind::System => "system error",
            ErrorKind::Forked => "forked",
        }
    }

    /// The exit code by which a program of Kelix ends that fails so: 1 not there, 2 usage, 3 no server, 4 out
    /// of memory, 5 anything else.
    pub const fn exit_code(self) -> u8 {
        match self {
            ErrorKind::NoSuchTable | ErrorKind::NoSuchAttribute => 1,
            ErrorKind::InvalidArgument => 2,
            ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Superseded => 3,
            ErrorKind::OutOfMemory => 4,
            _ => 5,
        }
    }
}

/// Whether the operation changed the store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// It did not.
    No,
    /// It did.
    Yes,
    /// It may have: the request may have been delivered and no answer came.
    Unknown,
}

/// An error: its kind, whether to retry, whether it took effect, the operation, the context and the source.
///
/// Boxed, so that a `Result` on the data path stays two words.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    retry: bool,
    effect: Effect,
    operation: &'static str,
    context: String,
    needed_bytes: Option<usize>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A result with Kelix's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind` in `operation`; `context` says what happened and what to do about it.
    pub fn new(kind: ErrorKind, operation: &'static str, context: impl Into<String>) -> Error {
        let retry = matches!(
            kind,
            ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Superseded | ErrorKind::Frozen
        );
        Error(Box::new(Inner {
            kind,
            retry,
            effect: Effect::No,
            operation,
            context: context.into(),
            needed_bytes: None,
            source: None,
        }))
    }

    /// A refusal by the system, with the system's own error as the source.
    pub fn system(
        operation: &'static str,
        context: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Error {
        Error::new(ErrorKind::System, operation, context).with_source(source)
    }

    /// An error of whatever operation it ends: the one that fails names itself where the error leaves it
    /// ([`Error::of`]).
    pub fn unnamed(kind: ErrorKind, context: impl Into<String>) -> Error {
        Error::new(kind, "", context)
    }

    /// Names the operation that ended by this error, unless an inner one has.
    pub fn of(mut self, operation: &'static str) -> Error {
        if self.0.operation.is_empty() {
            self.0.operation = operation;
        }
        self
    }

    /// Says whether the operation took effect.
    pub fn with_effect(mut self, effect: Effect) -> Error {
        self.0.effect = effect;
        self
    }

    /// Says whether the same call may succeed later, where that is not as usual for the kind.
    pub fn with_retry(mut self, retry: bool) -> Error {
        self.0.retry = retry;
        self
    }

    /// Says how large the caller's buffer has to be.
    pub fn with_needed_bytes(mut self, bytes: usize) -> Error {
        self.0.needed_bytes = Some(bytes);
        self
    }

    /// Says what caused it.
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        self.0.source = Some(Box::new(source));
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later. A write that may have taken effect is for the caller to
    /// judge: see [`Error::effect`].
    pub fn retry(&self) -> bool {
        self.0.retry
    }

    /// Whether the operation changed the store.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// The operation, as its function is named.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// Of [`ErrorKind::BufferTooSmall`] the bytes of the value, as it was then.
    pub fn needed_bytes(&self) -> Option<usize> {
        self.0.needed_bytes
    }

    /// What happened and what to do about it, in words.
    pub fn context(&self) -> &str {
        &self.0.context
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.0.operation, self.0.kind.name(), self.0.context)?;
        if let Some(source) = &self.0.source {
            write!(f, " ({source})")?;
        }
        match self.0.effect {
            Effect::No => Ok(()),
            Effect::Yes => f.write_str("; the write took effect"),
            Effect::Unknown => f.write_str("; whether the write took effect is unknown"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("retry", &self.0.retry)
            .field("effect", &self.0.effect)
            .field("operation", &self.0.operation)
            .field("context", &self.0.context)
            .field("source", &self.0.source)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
