//! Whether a shard's memory and index agree. For tests; it looks at all there is.

use kelix_image::{InUse, ItemFlags, Kind, LargeBody};
use kelix_types::Guardian;

use crate::large::Target;
use crate::shard::Shard;

impl Shard {
    /// Checks, between two steps, that every item the index names is live and found by its key, and that no memory leaks
    /// or is used twice. `Err`: what is wrong.
    pub fn audit(&mut self) -> Result<(), String> {
        self.index.check(&self.image)?;
        let mut used = InUse::default();
        self.index.for_each_block(&self.image, |kind, place| used.slots.push((kind, place)));
        let mut items = Vec::new();
        self.index.for_each(&self.image, |location| items.push(location));
        for location in items {
            let place = location.place();
            if !Guardian(self.image.slot(location).load(0)).is_live() {
                return Err(format!("the index names the item at {place:?}, which is dead"));
            }
            let (table, key, large) = self.copy_item(location, |item| {
                let large = item.header().flags.has(ItemFlags::LARGE).then(|| LargeBody::parse(item.body()));
                (item.header().table, item.key().to_vec(), large)
            });
            let found = self.index.find(&self.image, self.index.hash(table, &key), table, &key);
            if found.map(|found| found.location) != Some(location) {
                return Err(format!(
                    "the item at {place:?} is not found by its key {key:02x?}, but {found:?}"
                ));
            }
            used.slots.push((Kind::item(location.class()), place));
            match large {
                Some(Some(body)) => used.runs.extend(body.runs),
                Some(None) => return Err(format!("the large item at {place:?} makes no sense")),
                None => {}
            }
        }
        for client in self.clients.iter().flatten() {
            if let Some(Target::Runs(runs)) = client.upload.as_ref().map(|upload| &upload.target) {
                used.runs.extend(runs);
            }
        }
        self.image.audit(&used)
    }
}
