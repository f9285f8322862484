//! The graph in a store, as the paper has it (KELI, figure 5): a user has a link to a list of those it
//! follows, at most 100, which has one to the next list. By keys the same, with keys where the links are.
//!
//! ```text
//! graph_users  user                 "name"    "list" -> the first list
//! graph_lists  user, list number    "follows" -> user, user, ...    "next" -> the next list
//! ```

use kelix::{NewTable, Session, TableKind};
use kelix_apps::{Failure, Keyed};

use crate::edges::Edges;
use crate::names::name;

/// Links of a list at most.
pub const LIST_LINKS: usize = 100;
/// Values that are put at once.
const PUT: usize = 64;
/// Edges between two looks at how far it is.
const SHOWN: u64 = 1 << 18;

/// The dataset and its tables.
pub const DATASET: &str = "graph";
pub const USERS: &str = "graph_users";
pub const LISTS: &str = "graph_lists";

/// The key of a user.
pub fn user_key(user: u32) -> [u8; 8] {
    u64::from(user).to_le_bytes()
}

/// Whose key it is.
#[inline]
pub fn user_of(key: &[u8]) -> u32 {
    key.first_chunk().map_or(u32::MAX, |low| u32::from_le_bytes(*low))
}

fn list_key(user: u32, list: usize) -> [u8; 8] {
    (u64::from(user) | (list as u64) << 32).to_le_bytes()
}

/// Memory that a graph needs, in bytes, with room to spare: 40 a link, and what items and index take besides.
pub fn memory_for(edges: &Edges) -> u64 {
    (edges.len() * 56 + u64::from(edges.vertices()) * 640).max(256 << 20)
}

/// Loads the graph: a new generation of it, which takes the place of one before.
pub fn load(session: &mut Session, edges: &Edges) -> Result<(), Failure> {
    let table = |name| NewTable::new(name, TableKind::Hash);
    let mut build = session.build(DATASET, &[table(USERS), table(LISTS)])?;
    let (users, lists) = (build.table(0), build.table(1));
    let (mut done, mut shown) = (0, 0);
    for user in edges.users() {
        let follows = edges.from(user);
        let key = user_key(user);
        let mut item = build.item(0, &key);
        item = item.bytes("name", name(user).as_bytes());
        if !follows.is_empty() {
            item = item.link("list", lists, &list_key(user, 0));
        }
        item.end()?;
        for (list, chunk) in follows.chunks(LIST_LINKS).enumerate() {
            let key = list_key(user, list);
            let mut item = build.item(1, &key);
            for to in chunk {
                item = item.link("follows", users, &user_key(*to));
            }
            if (list + 1) * LIST_LINKS < follows.len() {
                item = item.link("next", lists, &list_key(user, list + 1));
            }
            item.end()?;
        }
        done += follows.len() as u64;
        if done - shown > SHOWN {
            shown = done;
            kelix_report::progress::show(&format!("loading: {} %", done * 100 / edges.len()));
        }
    }
    kelix_report::progress::show("resolving links");
    let built = build.finish()?;
    kelix_report::progress::show("");
    match built.dangling {
        0 => Ok(()),
        dangling => Err(format!("{dangling} links lead nowhere").into()),
    }
}

/// Puts the graph into a store that knows no links. A user's value is whether it has a list, and its name; a
/// list's whether there is another one, and the numbers of the users.
pub fn load_keyed(store: &mut impl Keyed, edges: &Edges) -> Result<(), String> {
    let mut items = Vec::with_capacity(PUT);
    let mut put = |item, last: bool| -> Result<(), String> {
        items.extend(item);
        if items.len() >= PUT || last {
            store.put(&items)?;
            items.clear();
        }
        Ok(())
    };
    for user in edges.users() {
        let follows = edges.from(user);
        let mut value = vec![u8::from(!follows.is_empty())];
        value.extend_from_slice(name(user).as_bytes());
        put(Some((format!("u{user}").into_bytes(), value)), false)?;
        for (list, chunk) in follows.chunks(LIST_LINKS).enumerate() {
            let mut value = vec![u8::from((list + 1) * LIST_LINKS < follows.len())];
            chunk.iter().for_each(|to| value.extend_from_slice(&to.to_le_bytes()));
            put(Some((format!("l{user}.{list}").into_bytes(), value)), false)?;
        }
    }
    put(None, true)
}
