//! The memory image of a shard: segments, slabs, guardians, quarantine, items and their attributes.
//!
//! An image is relocatable: every pointer inside it is a [`Place`](kelix_types::Place), an offset. Exactly
//! one thread writes an image; any number of readers, in this process or far away, read it at any moment.
//! What makes that safe is the read rule (docs/read-rule.md), and the parts of the rule that concern the
//! writer are kept here:
//!
//! 1. every store to remotely readable memory, and every load from it, is one of [`words`];
//! 2. memory is reused only after its quarantine ([`Image::release`], [`Image::advance_epoch`]);
//! 3. a place keeps its kind for as long as its segment exists, and offsets of a retired segment never
//!    return.

mod attributes;
mod changes;
pub mod clock;
mod header;
mod item;
mod layout;
mod map;
#[cfg(kelix_loom)]
pub mod model;
mod pages;
mod replica;
mod section;
mod segments;
mod stock;
mod term;
pub mod watermark;
pub mod words;
mod writer;

pub use attributes::{AttributeBuilder, Attributes, LinkView, Value, link_tables, link_target};
pub use changes::{Changes, Journal, Note, Notes, event, redo};
pub use header::{Header, ImageState, features, header_word};
pub use item::{
    ItemFlags, ItemHeader, ItemOptions, ItemView, LargeBody, PlainItem, holds_key, inline_item, load_key,
};
pub use layout::ItemLayout;
pub use map::{Finding, IndexReader, MapView, MemoryMap, SharedWord, Span, Take, Wanted, has_memory};
pub use pages::Kind;
pub use replica::{Replica, Turn};
pub use section::Section;
pub use segments::{PrivateSegments, SegmentSource};
pub use stock::{Live, Stock};
pub use term::LeasedTerm;
pub use watermark::Committed;
pub use writer::{
    Books, Image, ImageConfig, InUse, KindUse, MemoryUse, NoRoom, SegmentBooks, SegmentSummary,
};

/// Version of the image layout. A reader refuses any other by name.
pub const LAYOUT_VERSION: u32 = 1;
