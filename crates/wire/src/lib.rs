//! What is said between a client and a server: the set-up frames, the message rings and the messages in them.
//!
//! docs/wire-format.md is the specification; the golden-bytes tests here hold the code to it. Everything a
//! peer sends is copied out of shared memory before it is looked at, and every length is checked.

#![forbid(unsafe_code)]

pub mod catalogue;
pub mod control;
pub mod feed;
pub mod generation;
pub mod hot;
pub mod mailboxes;
mod message;
mod model;
pub mod puts;
mod ring;
mod scan;
mod version;
mod view;

pub use message::{
    Expiry, FrameBuffer, IN_A_LEAF, Op, OpProperties, Reply, ReplyHead, Request, RequestFlags, RequestHead,
    RequestShape, Sequence, Status, encode_reply, encode_request,
};
pub use model::ModelWords;
pub use ring::{
    LAP_FAR, LAP_NEAR, MAILBOX_BYTES, MAILBOX_STRIDE, RingFault, RingReader, RingShape, RingWriter,
    mailbox_word,
};
pub use scan::{ScanArgument, ScanEntry, ScanReply, push_key, reserve_item};
pub use version::{SPOKEN, Versions};
pub use view::View;
