//! Blocks: strings, and elements that name them by their place.

use super::wire::{Field, Stop, message};
use crate::problem::Problem;

/// A node, a way or a relation.
#[derive(Clone, Copy, Debug)]
pub struct Element<'b> {
    /// Its number among its kind.
    pub id: i64,
    /// What it says of itself.
    pub tags: Tags<'b>,
    /// What it is.
    pub what: What<'b>,
}

/// What an element is.
#[derive(Clone, Copy, Debug)]
pub enum What<'b> {
    /// A place, in billionths of a degree.
    Node {
        /// North: 90 degrees at most.
        lat: i64,
        /// East: 180 degrees at most.
        lon: i64,
    },
    /// A line through nodes.
    Way {
        /// Their ids.
        nodes: &'b [i64],
    },
    /// Elements that belong together.
    Relation(Members<'b>),
}

/// Keys with their values.
#[derive(Clone, Copy, Debug)]
pub struct Tags<'b> {
    keys: &'b [u64],
    values: &'b [u64],
    strings: &'b [&'b str],
}

impl<'b> Tags<'b> {
    /// Keys with their values, in their order.
    pub fn iter(self) -> impl Iterator<Item = (&'b str, &'b str)> + Clone {
        let Tags { keys, values, strings } = self;
        keys.iter().zip(values).map(|(key, value)| (strings[*key as usize], strings[*value as usize]))
    }
}

/// Members of a relation.
#[derive(Clone, Copy, Debug)]
pub struct Members<'b> {
    ids: &'b [i64],
    kinds: &'b [u64],
    roles: &'b [u64],
    strings: &'b [&'b str],
}

/// A member of a relation.
#[derive(Clone, Copy, Debug)]
pub struct Member<'b> {
    /// `node`, `way` or `relation`.
    pub kind: &'static str,
    /// Its number among its kind.
    pub id: i64,
    /// What it is there for; often empty.
    pub role: &'b str,
}

/// Kinds of members, by their numbers.
const KINDS: [&str; 3] = ["node", "way", "relation"];

impl<'b> Members<'b> {
    /// Members in their order.
    pub fn iter(self) -> impl Iterator<Item = Member<'b>> {
        let numbers = self.kinds.iter().zip(self.roles);
        self.ids.iter().zip(numbers).map(move |(id, (kind, role))| Member {
            kind: KINDS[*kind as usize],
            id: *id,
            role: self.strings[*role as usize],
        })
    }
}

/// Lists that elements are read into, one after the other.
#[derive(Default)]
pub(super) struct Lists {
    ids: Vec<i64>,
    lats: Vec<i64>,
    lons: Vec<i64>,
    keys: Vec<u64>,
    values: Vec<u64>,
    /// Keys and values of all nodes of a group.
    pairs: Vec<u64>,
    kinds: Vec<u64>,
    roles: Vec<u64>,
    users: Vec<i64>,
    visible: Vec<u64>,
}

impl Lists {
    fn clear(&mut self) {
        let Lists { ids, lats, lons, keys, values, pairs, kinds, roles, users, visible } = self;
        [ids, lats, lons, users].into_iter().for_each(Vec::clear);
        [keys, values, pairs, kinds, roles, visible].into_iter().for_each(Vec::clear);
    }
}

type Each<'e> = &'e mut dyn FnMut(&Element<'_>) -> Result<bool, Problem>;

/// A block whose strings were read.
pub(super) struct Block<'b> {
    bytes: &'b [u8],
    strings: Vec<&'b str>,
    granularity: i64,
    lat_offset: i64,
    lon_offset: i64,
}

impl<'b> Block<'b> {
    /// Reads what groups need to be understood, wherever in the block that stands.
    pub fn of(bytes: &'b [u8]) -> Result<Block<'b>, Stop> {
        let mut block = Block { bytes, strings: Vec::new(), granularity: 100, lat_offset: 0, lon_offset: 0 };
        let mut has_strings = false;
        message(bytes, |field| {
            match field.number {
                1 => {
                    has_strings = true;
                    field.message(|string| match string.number {
                        1 => block.add_string(string.bytes(bytes)?),
                        _ => string.skip(),
                    })?;
                }
                17 => block.granularity = field.integer()?,
                19 => block.lat_offset = field.integer()?,
                20 => block.lon_offset = field.integer()?,
                _ => field.skip()?,
            }
            Ok(())
        })?;
        match () {
            () if !has_strings => Err(Stop::broken("a block has no strings")),
            () if block.granularity < 1 => Err(Stop::broken("a block's places have no unit")),
            () => Ok(block),
        }
    }

    fn add_string(&mut self, bytes: &'b [u8]) -> Result<(), Stop> {
        let string = std::str::from_utf8(bytes);
        self.strings
            .push(string.map_err(|_| {
                Stop::broken(format!("string {} of a block is no UTF-8", self.strings.len()))
            })?);
        Ok(())
    }

    /// Shows the elements.
    pub fn elements(&self, lists: &mut Lists, each: Each<'_>) -> Result<(), Stop> {
        message(self.bytes, |field| match field.number {
            2 => field.message(|group| {
                lists.clear();
                match group.number {
                    1 => self.node(group, lists, each),
                    2 => self.dense_nodes(group, lists, each),
                    3 => self.way(group, lists, each),
                    4 => self.relation(group, lists, each),
                    _ => group.skip(),
                }
            }),
            _ => field.skip(),
        })
    }

    /// Reads what elements of all kinds may say, or skips the field: tags, and whether the element is there.
    fn common(&self, field: &mut Field<'_, 'b>, lists: &mut Lists, is_there: &mut bool) -> Result<(), Stop> {
        match field.number {
            2 => field.list(&mut lists.keys),
            3 => field.list(&mut lists.values),
            4 => {
                *is_there = self.is_there(field)?;
                Ok(())
            }
            _ => field.skip(),
        }
    }

    fn node(&self, field: &mut Field<'_, 'b>, lists: &mut Lists, each: Each<'_>) -> Result<(), Stop> {
        let (mut id, mut lat, mut lon, mut is_there) = (None, None, None, true);
        field.message(|field| {
            match field.number {
                1 => id = Some(field.signed()?),
                8 => lat = Some(field.signed()?),
                9 => lon = Some(field.signed()?),
                _ => self.common(field, lists, &mut is_there)?,
            }
            Ok(())
        })?;
        let id = needed(id, "node")?;
        let at = lat.zip(lon).ok_or_else(|| Stop::broken("it is nowhere").of("node", id))?;
        self.show_node(id, at, is_there, lists, each)
    }

    fn show_node(
        &self,
        id: i64,
        (lat, lon): (i64, i64),
        is_there: bool,
        lists: &Lists,
        each: Each<'_>,
    ) -> Result<(), Stop> {
        let tags = self.tags(lists).map_err(|stop| stop.of("node", id))?;
        if !is_there {
            return Ok(());
        }
        let degrees = |units: i64, offset: i64, most: i64| {
            let billionths = units.checked_mul(self.granularity)?.checked_add(offset)?;
            (billionths.unsigned_abs() <= most as u64 * 1_000_000_000).then_some(billionths)
        };
        let at = degrees(lat, self.lat_offset, 90).zip(degrees(lon, self.lon_offset, 180));
        let (lat, lon) = at.ok_or_else(|| Stop::broken("it is beyond the globe").of("node", id))?;
        show(Element { id, tags, what: What::Node { lat, lon } }, each)
    }

    fn dense_nodes(&self, field: &mut Field<'_, 'b>, lists: &mut Lists, each: Each<'_>) -> Result<(), Stop> {
        field.message(|field| match field.number {
            1 => field.signed_list(&mut lists.ids),
            5 => field.message(|field| match field.number {
                5 => field.signed_list(&mut lists.users),
                6 => field.list(&mut lists.visible),
                _ => field.skip(),
            }),
            8 => field.signed_list(&mut lists.lats),
            9 => field.signed_list(&mut lists.lons),
            10 => field.list(&mut lists.pairs),
            _ => field.skip(),
        })?;
        let count = lists.ids.len();
        let may_lack = |length: usize| length == 0 || length == count;
        let fit = lists.lats.len() == count && lists.lons.len() == count;
        if !fit || !may_lack(lists.users.len()) || !may_lack(lists.visible.len()) {
            return Err(Stop::broken(format!("lists of {count} nodes have other lengths")));
        }
        for list in [&mut lists.ids, &mut lists.lats, &mut lists.lons, &mut lists.users] {
            add_up(list)?;
        }
        if lists.users.iter().any(|user| *user != 0 && !self.is_string(*user as u64)) {
            return Err(Stop::broken("a node is of a user beyond the strings of its block"));
        }
        let pairs = std::mem::take(&mut lists.pairs);
        let mut left = pairs.iter();
        for index in 0..count {
            let id = lists.ids[index];
            lists.keys.clear();
            lists.values.clear();
            if !pairs.is_empty() {
                // A zero stands behind the tags of each node.
                let mut next =
                    || left.next().ok_or_else(|| Stop::broken("its tags have no end").of("node", id));
                loop {
                    match *next()? {
                        0 => break,
                        key => lists.keys.push(key),
                    }
                    lists.values.push(*next()?);
                }
            }
            let is_there = lists.visible.get(index) != Some(&0);
            self.show_node(id, (lists.lats[index], lists.lons[index]), is_there, lists, each)?;
        }
        if left.next().is_some() {
            return Err(Stop::broken(format!("there are more tags than those of {count} nodes")));
        }
        lists.pairs = pairs;
        Ok(())
    }

    fn way(&self, field: &mut Field<'_, 'b>, lists: &mut Lists, each: Each<'_>) -> Result<(), Stop> {
        let (mut id, mut is_there) = (None, true);
        field.message(|field| {
            match field.number {
                1 => id = Some(field.integer()?),
                8 => field.signed_list(&mut lists.ids)?,
                _ => self.common(field, lists, &mut is_there)?,
            }
            Ok(())
        })?;
        let id = needed(id, "way")?;
        let checked = add_up(&mut lists.ids).and_then(|()| self.tags(lists));
        let tags = checked.map_err(|stop| stop.of("way", id))?;
        if is_there {
            show(Element { id, tags, what: What::Way { nodes: &lists.ids } }, each)
        } else {
            Ok(())
        }
    }

    fn relation(&self, field: &mut Field<'_, 'b>, lists: &mut Lists, each: Each<'_>) -> Result<(), Stop> {
        let (mut id, mut is_there) = (None, true);
        field.message(|field| {
            match field.number {
                1 => id = Some(field.integer()?),
                8 => field.list(&mut lists.roles)?,
                9 => field.signed_list(&mut lists.ids)?,
                10 => field.list(&mut lists.kinds)?,
                _ => self.common(field, lists, &mut is_there)?,
            }
            Ok(())
        })?;
        let id = needed(id, "relation")?;
        let checked = add_up(&mut lists.ids).and_then(|()| self.tags(lists));
        let checked = checked.and_then(|tags| Ok((tags, self.members(lists)?)));
        let (tags, members) = checked.map_err(|stop| stop.of("relation", id))?;
        if is_there { show(Element { id, tags, what: What::Relation(members) }, each) } else { Ok(()) }
    }

    fn members<'l>(&'l self, lists: &'l Lists) -> Result<Members<'l>, Stop> {
        let Lists { ids, kinds, roles, .. } = lists;
        if kinds.len() != ids.len() || roles.len() != ids.len() {
            return Err(Stop::broken(format!(
                "{} members have {} kinds and {} roles",
                ids.len(),
                kinds.len(),
                roles.len()
            )));
        }
        if let Some(kind) = kinds.iter().find(|kind| **kind >= KINDS.len() as u64) {
            return Err(Stop::broken(format!("a member is of kind {kind}, which is none")));
        }
        if roles.iter().any(|role| !self.is_string(*role)) {
            return Err(Stop::broken("a role is beyond the strings of its block"));
        }
        Ok(Members { ids, kinds, roles, strings: &self.strings })
    }

    fn tags<'l>(&'l self, lists: &'l Lists) -> Result<Tags<'l>, Stop> {
        let Lists { keys, values, .. } = lists;
        if keys.len() != values.len() {
            return Err(Stop::broken(format!("{} keys of tags have {} values", keys.len(), values.len())));
        }
        if keys.iter().chain(values).any(|string| !self.is_string(*string)) {
            return Err(Stop::broken("a tag is beyond the strings of its block"));
        }
        Ok(Tags { keys, values, strings: &self.strings })
    }

    /// Whether an element is there, and not deleted: what is said of its version.
    fn is_there(&self, field: &mut Field<'_, 'b>) -> Result<bool, Stop> {
        let (mut user, mut visible) = (0, 1);
        field.message(|field| {
            match field.number {
                5 => user = field.unsigned()?,
                6 => visible = field.unsigned()?,
                _ => field.skip()?,
            }
            Ok(())
        })?;
        if user != 0 && !self.is_string(user) {
            return Err(Stop::broken("an element is of a user beyond the strings of its block"));
        }
        Ok(visible != 0)
    }

    fn is_string(&self, number: u64) -> bool {
        number < self.strings.len() as u64
    }
}

fn show(element: Element<'_>, each: Each<'_>) -> Result<(), Stop> {
    match each(&element).map_err(Stop::Problem)? {
        true => Ok(()),
        false => Err(Stop::Enough),
    }
}

fn needed(id: Option<i64>, what: &str) -> Result<i64, Stop> {
    id.ok_or_else(|| Stop::broken(format!("a {what} has no id")))
}

/// Numbers in the place of differences to the one before.
fn add_up(list: &mut [i64]) -> Result<(), Stop> {
    let mut last = 0_i64;
    for number in list {
        last = last.checked_add(*number).ok_or_else(|| Stop::broken("a number is beyond 64 bits"))?;
        *number = last;
    }
    Ok(())
}
