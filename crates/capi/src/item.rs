//! Items: what they hold, and how they are got and followed.

use std::ffi::c_int;
use std::time::SystemTime;

use kelix::{Attribute, Item, Link, Name};

use crate::call::{alone, in_session};
use crate::error::{Failure, KELIX_ABSENT, KELIX_OK, Result};
use crate::handle::{Entered, Opaque, enter, free, make, share};
use crate::memory::{Place, kelix_bytes, texts};
use crate::session::kelix_session;
use crate::structs::{Passed, ResultPlace};
use crate::table::kelix_table;

/// Room for one item: a private, consistent copy of one version. It is filled by kelix_get_item(),
/// kelix_follow() and others, as often as one likes, by any session; what it tells stays until it is filled
/// again or freed.
pub struct kelix_item {
    _private: [u8; 0],
}

impl Opaque for kelix_item {
    type State = Held;
    const MAGIC: u64 = u64::from_le_bytes(*b"kx  item");
    const NAME: &'static str = "item";
}

/// An item, and what was told of it.
#[derive(Default)]
pub struct Held {
    item: Item,
    is_filled: bool,
    attributes: Vec<kelix_attribute>,
    links: Vec<kelix_link>,
}

// SAFETY: the pointers lead to the item beside them, which is not changed while they are told.
unsafe impl Send for Held {}

impl Held {
    /// Takes another item in. What was told of the one before ends.
    pub fn fill(&mut self, item: Item) {
        *self.room() = item;
        self.is_filled = true;
    }

    /// Where another item goes. What was told of the one before ends.
    fn room(&mut self) -> &mut Item {
        self.attributes.clear();
        self.links.clear();
        &mut self.item
    }

    /// The item, which has to be there.
    pub fn item(&self) -> Result<&Item> {
        if self.is_filled {
            return Ok(&self.item);
        }
        Err(Failure::argument("nothing was got into the item yet"))
    }

    /// Tells bytes of the item, which may be absent.
    ///
    /// # Safety
    ///
    /// The promises of the crate.
    unsafe fn tell_bytes(
        &self,
        bytes: *mut kelix_bytes,
        find: impl FnOnce(&Item) -> Option<&[u8]>,
    ) -> Result<c_int> {
        // SAFETY: the promises.
        let mut place = unsafe { Place::needed(bytes, "bytes") }?;
        let found = find(&self.item);
        place.tell(kelix_bytes::of(found.unwrap_or_default()));
        Ok(if found.is_some() { KELIX_OK } else { KELIX_ABSENT })
    }

    /// Tells links of the item.
    ///
    /// # Safety
    ///
    /// The promises of the crate.
    unsafe fn tell_links<'i, L: Iterator<Item = Link<'i>>>(
        &'i mut self,
        (links, count): (*mut *const kelix_link, *mut usize),
        find: impl FnOnce(&'i Item) -> L,
    ) -> Result<c_int> {
        // SAFETY: the promises.
        let (mut place, mut count) =
            unsafe { (Place::needed(links, "links")?, Place::needed(count, "count")?) };
        self.links.clear();
        self.links.extend(find(&self.item).map(|link| kelix_link {
            key: kelix_bytes::of(link.key),
            bytes: kelix_bytes::of(link.bytes),
            table_id: link.table.0,
        }));
        place.tell(self.links.as_ptr());
        count.tell(self.links.len());
        Ok(KELIX_OK)
    }
}

/// Makes room for an item.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_new(item: *mut *mut kelix_item) -> c_int {
    alone("kelix_item_new", || {
        // SAFETY: the promises.
        unsafe { Place::needed(item, "item") }?.tell(make(Held::default()));
        Ok(KELIX_OK)
    })
}

/// Frees an item. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_free(item: *mut kelix_item) {
    // SAFETY: the promises.
    unsafe { free(item) };
}

/// What an item tells of itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_item_info {
    /// sizeof(kelix_item_info), set by the caller.
    pub size: usize,
    /// The key.
    pub key: kelix_bytes,
    /// The value; of an item with attributes, that without a name (empty if there is none).
    pub value: kelix_bytes,
    /// The version.
    pub version: u64,
    /// When it ends, in nanoseconds since 1970. 0: it does not.
    pub ends_ns: u64,
    /// The flags that whoever put it gave it.
    pub flags: u32,
    /// The number of its table, as links tell it.
    pub table_id: u16,
}

// SAFETY: addresses and numbers, the size first.
unsafe impl Passed for kelix_item_info {}

/// Nanoseconds since 1970, and at least 1.
fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// Runs a function of an item alone.
///
/// # Safety
///
/// The promises of the crate.
unsafe fn of_item(
    name: &'static str,
    item: *const kelix_item,
    call: impl FnOnce(&mut Held) -> Result<c_int>,
) -> c_int {
    alone(name, || {
        // SAFETY: the promises.
        let mut held = unsafe { enter(item.cast_mut()) }?;
        held.item()?;
        call(&mut held)
    })
}

/// Tells key, value, version, flags and end of an item.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_about(item: *const kelix_item, info: *mut kelix_item_info) -> c_int {
    // SAFETY: the promises.
    unsafe {
        of_item("kelix_item_about", item, |held| {
            let item = held.item()?;
            ResultPlace::at(info, "info")?.tell(&kelix_item_info {
                size: size_of::<kelix_item_info>(),
                key: kelix_bytes::of(item.key()),
                value: kelix_bytes::of(item.value()),
                version: item.version().0,
                ends_ns: item.expires().map_or(0, nanoseconds),
                flags: item.flags(),
                table_id: item.table().0,
            });
            Ok(KELIX_OK)
        })
    }
}

/// An attribute is bytes.
pub const KELIX_BYTES: c_int = 0;
/// An attribute is a link.
pub const KELIX_LINK: c_int = 1;

/// An attribute of an item.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_attribute {
    /// Its name. That of a plain item's value is empty.
    pub name: kelix_bytes,
    /// Its bytes; of a link its own, an edge's attributes.
    pub bytes: kelix_bytes,
    /// Of a link: the key of its target. Otherwise empty.
    pub key: kelix_bytes,
    /// KELIX_BYTES or KELIX_LINK.
    pub kind: c_int,
    /// Of a link: the number of its target's table. Otherwise 0.
    pub table_id: u16,
}

/// A link to another item.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_link {
    /// The key of its target.
    pub key: kelix_bytes,
    /// Its own bytes.
    pub bytes: kelix_bytes,
    /// The number of its target's table.
    pub table_id: u16,
}

/// The attributes of an item, in order: by index. A plain item has one, without a name. They stay until the
/// item is filled again or freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_attributes(
    item: *const kelix_item,
    attributes: *mut *const kelix_attribute,
    count: *mut usize,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        of_item("kelix_item_attributes", item, |held| {
            let mut place = Place::needed(attributes, "attributes")?;
            let mut count = Place::needed(count, "count")?;
            // Every item has one at least, so an empty list has not been made yet; an item with none makes it
            // anew.
            if held.attributes.is_empty() {
                let Held { item, attributes, .. } = held;
                attributes.extend(
                    item.attributes().into_iter().map(|(name, attribute)| attribute_of(name, attribute)),
                );
            }
            place.tell(held.attributes.as_ptr());
            count.tell(held.attributes.len());
            Ok(KELIX_OK)
        })
    }
}

fn attribute_of(name: &str, attribute: Attribute<'_>) -> kelix_attribute {
    let name = kelix_bytes::of(name.as_bytes());
    match attribute {
        Attribute::Bytes(bytes) => kelix_attribute {
            name,
            bytes: kelix_bytes::of(bytes),
            key: kelix_bytes::of(&[]),
            kind: KELIX_BYTES,
            table_id: 0,
        },
        Attribute::Link(link) => kelix_attribute {
            name,
            bytes: kelix_bytes::of(link.bytes),
            key: kelix_bytes::of(link.key),
            kind: KELIX_LINK,
            table_id: link.table.0,
        },
    }
}

/// The first attribute of a name that is bytes; the empty name is the item's value. KELIX_ABSENT: there is
/// none. The bytes stay until the item is filled again or freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_bytes(
    item: *const kelix_item,
    name: kelix_bytes,
    bytes: *mut kelix_bytes,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        of_item("kelix_item_bytes", item, |held| {
            let name = name.text("name")?;
            held.tell_bytes(bytes, |item| if name.is_empty() { Some(item.value()) } else { item.bytes(name) })
        })
    }
}

/// The links under a name, in order; there may be none. They stay until this function is called for the item
/// again, or it is filled again or freed; what they lead to stays as long as the item is not filled again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_links(
    item: *const kelix_item,
    name: kelix_bytes,
    links: *mut *const kelix_link,
    count: *mut usize,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        of_item("kelix_item_links", item, |held| {
            let name = name.text("name")?;
            held.tell_links((links, count), |item| item.links(name))
        })
    }
}

/// Fills a handle with an item that may not be there.
pub fn found(held: &mut Entered<'_, kelix_item>, item: Option<Item>) -> c_int {
    match item {
        Some(item) => {
            held.fill(item);
            KELIX_OK
        }
        None => KELIX_ABSENT,
    }
}

/// Gets an item with its attributes, links, flags and end, in the memory that the handle has. KELIX_ABSENT:
/// there is no such key, and `item` stays as it was. After an error get it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_get_item(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    item: *mut kelix_item,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_get_item", session, |inside| {
            let mut held = enter(item)?;
            let was_there = inside.session.get_item_into(table.table(), key.get("key")?, held.room())?;
            if was_there {
                held.is_filled = true;
            }
            Ok(if was_there { KELIX_OK } else { KELIX_ABSENT })
        })
    }
}

/// Goes from the item `from` along its first link under a name, and fills `to` with the target. Both may be
/// the same handle; then nothing is allocated, and what was told of the item ends.
///
/// KELIX_ABSENT: the target does not exist (any more), and `to` stays as it was. KELIX_NO_SUCH_ATTRIBUTE: the
/// item has no such link. KELIX_SUPERSEDED, with `retry` 0: the item is of another server than the session's.
/// Where both are the same handle, get the item again after any error but these two.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_follow(
    session: *mut kelix_session,
    from: *const kelix_item,
    name: kelix_bytes,
    to: *mut kelix_item,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_follow", session, |inside| {
            let name = name.text("name")?;
            let mut held = enter(to)?;
            if std::ptr::eq(from, to) {
                held.item()?;
                let went_on = inside.session.follow_into(held.room(), name)?;
                return Ok(if went_on { KELIX_OK } else { KELIX_ABSENT });
            }
            let from = enter(from.cast_mut())?;
            let followed = inside.session.follow(from.item()?, name)?;
            Ok(found(&mut held, followed))
        })
    }
}

/// Goes from the item `from` along the first link under each of these names, one after the other, and fills
/// `to`, another handle, with the last target; without names with the item itself. Otherwise as
/// kelix_follow().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_follow_path(
    session: *mut kelix_session,
    from: *const kelix_item,
    names: *const kelix_bytes,
    count: usize,
    to: *mut kelix_item,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_follow_path", session, |inside| {
            let names = texts(names, count, "names")?;
            let (mut held, from) = (enter(to)?, enter(from.cast_mut())?);
            let followed = inside.session.follow_path(from.item()?, &names)?;
            Ok(found(&mut held, followed))
        })
    }
}

/// The name of an attribute, which remembers the number that it has in the table whose items were read by it
/// last. So it is compared with one name an item, and not with all that the table has.
pub struct kelix_name {
    _private: [u8; 0],
}

impl Opaque for kelix_name {
    type State = Name;
    const MAGIC: u64 = u64::from_le_bytes(*b"kx  name");
    const NAME: &'static str = "name";
}

/// Makes the name with this text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_name_new(text: kelix_bytes, name: *mut *mut kelix_name) -> c_int {
    alone("kelix_name_new", || {
        // SAFETY: the promises.
        unsafe { Place::needed(name, "name")?.tell(make(Name::new(text.text("text")?))) };
        Ok(KELIX_OK)
    })
}

/// Frees a name. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_name_free(name: *mut kelix_name) {
    // SAFETY: the promises.
    unsafe { free(name) };
}

/// As kelix_item_bytes(), by a name that was made. Any number of threads may use one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_bytes_of(
    item: *const kelix_item,
    name: *const kelix_name,
    bytes: *mut kelix_bytes,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        of_item("kelix_item_bytes_of", item, |held| {
            let name = share(name)?;
            held.tell_bytes(bytes, |item| match name.as_str() {
                "" => Some(item.value()),
                _ => item.bytes_of(name),
            })
        })
    }
}

/// As kelix_item_links(), by a name that was made. Any number of threads may use one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_links_of(
    item: *const kelix_item,
    name: *const kelix_name,
    links: *mut *const kelix_link,
    count: *mut usize,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        of_item("kelix_item_links_of", item, |held| {
            let name = share(name)?;
            held.tell_links((links, count), |item| item.links_of(name))
        })
    }
}
