//! What measurements and tests see of a session that its users do not: the memory that it reads, and READs
//! without checks. Only with the feature `measure`, and no part of the public interface.

use std::sync::Arc;

use kelix_fabric::{Read, ReadState, RemoteMemory, WorkQueue};
use kelix_image::MemoryMap;
use kelix_index::Directory;
use kelix_types::Place;

use crate::read::Watermark;
use crate::{Item, Session};

/// The memory of a shard's image, this session's copy of its directory, and the seed of the key hash, for
/// measurements that read the same table without the store's own code.
pub fn image(session: &mut Session, shard: usize) -> (Arc<MemoryMap>, Directory, u64) {
    let transport = &mut session.engine.transport;
    let map = transport.fabric.map(transport.peer(shard)).expect("a fabric with maps").clone();
    (map, transport.reader(shard).directory.clone(), transport.seed())
}

/// Where the item stands that was got last, if that is known.
pub fn last_place(session: &Session) -> Option<Place> {
    session.landing.pointer.map(|pointer| pointer.location.place())
}

/// One READ without any of the read rule's checks: words of one moment or of several. `false`: there is no
/// such place.
pub fn read_unchecked(session: &mut Session, shard: usize, place: Place, into: &mut [u64]) -> bool {
    let transport = &mut session.engine.transport;
    let read = Read { peer: transport.peer(shard), place, words: into.len(), tag: 0 };
    transport.fabric.post_read(read);
    transport.fabric.doorbell();
    loop {
        transport.fabric.progress();
        match transport.fabric.poll_read(read, into) {
            ReadState::Pending => {}
            state => return matches!(state, ReadState::Done(_)),
        }
    }
}

/// From now on a session believes whatever is valid, committed or not, as it does where everything counts at
/// once.
pub fn believe_all(session: &mut Session) {
    let transport = &mut session.engine.transport;
    (0..transport.shards()).for_each(|shard| transport.reader(shard).watermark = Watermark::new(false));
}

/// The words of the slot that an item was read from.
pub fn item_words(item: &Item) -> &[u64] {
    &item.words
}
