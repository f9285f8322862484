//! Who gives the fragments of a page.

use kelix_apps::Failure;

/// A way to the fragments of pages.
pub trait Pages {
    /// Appends the fragments of a product's page, in order. `None`: there is no such page.
    fn page(&mut self, product: &str, html: &mut Vec<u8>) -> Result<Option<Made>, Failure>;
}

/// How the fragments of a page were come by.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Made {
    /// As they were.
    pub reused: usize,
    /// Made anew: their keys.
    pub anew: Vec<String>,
}
