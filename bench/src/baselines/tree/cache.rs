//! A client's copies of inner nodes: from the top level down whole levels as far as the bytes go, and of the
//! next level those nodes that are used first. Nothing is given up for another, since all are alike to keys
//! that are drawn alike.

use kelix_image::Span;
use kelix_image::words::Words;
use kelix_types::Place;

use super::node::{COPIES, Child, Shape};
use super::server::Top;

/// The copies.
pub(super) struct Cache {
    shape: Shape,
    /// The root, or its copy.
    pub root: Child,
    pub copies: Span,
    count: usize,
    most: usize,
    /// Levels that are here whole.
    pub whole: usize,
}

/// The entry of a copy that names a node.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub copy: Child,
    pub entry: usize,
}

impl Cache {
    /// Copies of whole levels, of so many bytes at most, with room for others up to then. `read` READs a
    /// node.
    pub fn new(
        top: Top,
        bytes: usize,
        mut read: impl FnMut(Place, &mut [u64]) -> Result<(), String>,
    ) -> Result<Cache, String> {
        let shape = top.shape;
        let most = (bytes / 8 / shape.words).min(top.nodes);
        let copies = Span::private((most * shape.words) as u64 * 8);
        let mut cache = Cache { shape, root: top.root, copies, count: 0, most, whole: 0 };
        let mut node = vec![0; shape.words];
        let mut level = vec![(top.root, None)];
        for _ in 0..top.levels {
            if level.len() > cache.most - cache.count {
                break;
            }
            let mut below = Vec::new();
            for (child, link) in level {
                read(child.place(), &mut node)?;
                let copy = cache.keep(link, child, &node).expect("room for a level");
                let children = shape.children(&node).into_iter().enumerate();
                below.extend(children.map(|(entry, child)| (child, Some(Link { copy, entry }))));
            }
            level = below;
            cache.whole += 1;
        }
        Ok(cache)
    }

    /// Bytes of all copies.
    pub fn bytes(&self) -> usize {
        self.count * self.shape.words * 8
    }

    /// Whether there is room for another.
    #[inline(always)]
    pub fn has_room(&self) -> bool {
        self.count < self.most
    }

    /// A copy.
    #[inline(always)]
    pub fn copy(&self, copy: Child) -> Words<'_> {
        self.copies.words().part(((copy.place().0 - COPIES.0) / 8) as usize, self.shape.words)
    }

    /// Keeps a copy of an inner node, if there is room and none. What named the node names its copy from now
    /// on.
    pub fn keep(&mut self, link: Option<Link>, child: Child, words: &[u64]) -> Option<Child> {
        if !self.has_room() {
            return None;
        }
        let copy = Child::at(COPIES.plus((self.count * self.shape.words) as u64 * 8));
        match link {
            None if self.root == child => self.root = copy,
            None => return None,
            Some(link) => {
                let mut parent = vec![0; self.shape.words];
                self.copy(link.copy).copy_out(0, &mut parent);
                if self.shape.children(&parent)[link.entry] != child {
                    return None;
                }
                self.shape.set_child(&mut parent, link.entry, copy);
                self.copy(link.copy).copy_in(0, &parent);
            }
        }
        self.count += 1;
        self.copy(copy).copy_in(0, &words[..self.shape.words]);
        Some(copy)
    }
}
