//! Searches, written once for all that a graph can stand in.

use std::ops::ControlFlow;

use kelix_apps::Failure;

/// A graph that is searched from level to level: where the search is, and where it goes next.
pub trait Ground {
    /// Begins at a user, who alone is next.
    fn begin(&mut self, user: u32) -> Result<(), Failure>;

    /// Goes to those who are next, and shows them with their names, in order, as long as that is wanted.
    fn arrive(&mut self, see: impl FnMut(u32, &[u8]) -> ControlFlow<()>) -> Result<(), Failure>;

    /// Shows whom those follow who were arrived at, `(who, whom)`, and asks whether that one is wanted, and
    /// so is next, until no more are (`Break`). First the first list of each is read, then the second ones,
    /// and so on.
    fn look_around(&mut self, wanted: impl FnMut(u32, u32) -> ControlFlow<(), bool>) -> Result<(), Failure>;
}

/// How far users are from where a search began.
pub struct Distances {
    /// Of each user, counted from `base`; what is less is of an earlier search.
    of: Vec<u32>,
    base: u32,
    deepest: u32,
}

/// How far a search goes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Users.
    pub users: usize,
    /// Levels behind the first.
    pub depth: u32,
}

impl Limits {
    /// All that can be reached.
    pub const NONE: Limits = Limits { users: usize::MAX, depth: u32::MAX };
}

impl Distances {
    /// Without a search.
    pub fn new() -> Distances {
        Distances { of: Vec::new(), base: 1, deepest: 0 }
    }

    /// Forgets the last search.
    fn clear(&mut self) {
        match self.base.checked_add(self.deepest + 1).filter(|base| *base < u32::MAX / 2) {
            Some(base) => self.base = base,
            None => {
                self.of.fill(0);
                self.base = 1;
            }
        }
        self.deepest = 0;
    }

    /// Notes a distance, unless there is one.
    #[inline]
    fn note(&mut self, user: u32, distance: u32) -> bool {
        let Some(of) = self.of.get_mut(user as usize) else {
            self.grow(user);
            return self.note(user, distance);
        };
        if *of >= self.base {
            return false;
        }
        *of = self.base + distance;
        self.deepest = distance;
        true
    }

    #[cold]
    fn grow(&mut self, user: u32) {
        self.of.resize((user as usize + 1).next_power_of_two(), 0);
    }

    /// How far a user is from where the last search began.
    pub fn get(&self, user: u32) -> Option<u32> {
        self.of.get(user as usize)?.checked_sub(self.base)
    }

    /// Searches breadth-first, and shows each user with the distance. Returns how many that were.
    pub fn search(
        &mut self,
        ground: &mut impl Ground,
        from: u32,
        limits: Limits,
        mut see: impl FnMut(u32, &[u8], u32) -> ControlFlow<()>,
        mut found: impl FnMut(u32, u32),
    ) -> Result<usize, Failure> {
        self.clear();
        self.note(from, 0);
        ground.begin(from)?;
        let (mut seen, mut known, mut depth) = (0, 1, 0);
        loop {
            let before = seen;
            let mut ended = false;
            ground.arrive(|user, name| {
                seen += 1;
                let go_on = see(user, name, depth);
                ended |= go_on.is_break();
                go_on
            })?;
            if ended || seen == before || depth == limits.depth || seen >= limits.users {
                return Ok(seen);
            }
            depth += 1;
            ground.look_around(|who, whom| {
                if known >= limits.users {
                    return ControlFlow::Break(());
                }
                let new = self.note(whom, depth);
                if new {
                    known += 1;
                    found(who, whom);
                }
                ControlFlow::Continue(new)
            })?;
        }
    }

    /// The shortest way from a user to another, with both.
    pub fn path(
        &mut self,
        ground: &mut impl Ground,
        from: u32,
        to: u32,
    ) -> Result<Option<Vec<u32>>, Failure> {
        let mut came_from = std::collections::HashMap::new();
        let see =
            |user, _: &[u8], _| if user == to { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        self.search(ground, from, Limits::NONE, see, |who, whom| {
            came_from.insert(whom, who);
        })?;
        if self.get(to).is_none() {
            return Ok(None);
        }
        let mut path = vec![to];
        while let Some(before) = came_from.get(path.last().expect("it begins with one")) {
            path.push(*before);
        }
        path.reverse();
        Ok(Some(path))
    }

    /// The nearest user with a name, among those that are so near; and how many were looked at.
    pub fn find(
        &mut self,
        ground: &mut impl Ground,
        from: u32,
        depth: u32,
        name: &str,
    ) -> Result<(Option<(u32, u32)>, usize), Failure> {
        let mut found = None;
        let see = |user, its: &[u8], distance| {
            if user != from && its == name.as_bytes() {
                found = Some((user, distance));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let looked = self.search(ground, from, Limits { depth, ..Limits::NONE }, see, |_, _| {})?;
        Ok((found, looked))
    }
}

/// Searches depth-first, asking for one user after the other, and shows each. Returns how many that were.
pub fn deep(
    ground: &mut impl Ground,
    from: u32,
    limit: usize,
    vertices: u32,
    mut see: impl FnMut(u32),
) -> Result<usize, Failure> {
    let mut seen = vec![false; vertices as usize];
    let (mut left, mut count) = (vec![from], 0);
    while let Some(user) = left.pop() {
        if std::mem::replace(&mut seen[user as usize], true) {
            continue;
        }
        if count == limit {
            break;
        }
        count += 1;
        see(user);
        ground.begin(user)?;
        ground.arrive(|_, _| ControlFlow::Continue(()))?;
        let first = left.len();
        ground.look_around(|_, whom| {
            left.push(whom);
            ControlFlow::Continue(false)
        })?;
        left[first..].reverse();
    }
    Ok(count)
}
