//! What a shard finds item by item that goes on with another one's memory: when items end. Until it has, it
//! serves: an item that has ended is not given out, whoever knows of it, and one that comes is noted as ever.

use kelix_image::{Image, ItemFlags, ItemHeader};
use kelix_types::{Guardian, Location, Place, SizeClass};

use crate::store::Store;

/// Slots that are looked at in one step.
pub(crate) const SLOTS_A_STEP: u64 = 256;

/// Slots of items that are still to be looked at.
#[derive(Default)]
pub(crate) struct Stocktaking {
    /// Class, first slot, and number of slots.
    slabs: Vec<(SizeClass, Place, u64)>,
    /// How many of the last slab's were looked at.
    looked_at: u64,
}

impl Stocktaking {
    /// All that there are now.
    pub fn new(image: &Image) -> Stocktaking {
        Stocktaking { slabs: image.item_slabs().collect(), looked_at: 0 }
    }

    /// The next slot. None: that was all.
    fn next(&mut self) -> Option<Location> {
        loop {
            let (class, first, slots) = *self.slabs.last()?;
            if self.looked_at < slots {
                self.looked_at += 1;
                return Some(Location::new(first.plus((self.looked_at - 1) * class.bytes() as u64), class));
            }
            self.slabs.pop();
            self.looked_at = 0;
        }
    }
}

impl Store {
    /// Looks at some more slots. Whether there are more.
    pub(crate) fn take_stock(&mut self, slots: u64) -> bool {
        for _ in 0..slots {
            let Some(location) = self.stocktaking.next() else { return false };
            // Its segment may be gone.
            let Some(slot) = self.image.map().words(location.place(), location.class().words()) else {
                continue;
            };
            let (guardian, header) = (Guardian(slot.load(0)), ItemHeader::from_word(slot.load(1)));
            let Some(header) = header.filter(|_| guardian.is_live()) else { continue };
            if header.flags.has(ItemFlags::EXPIRES) {
                // Where one has come meanwhile this is its second note, which does no harm.
                let ends = self.copy_item(location, |item| item.expiry());
                ends.into_iter().for_each(|ends| {
                    self.expiries.note(&self.image, ends, location, guardian.incarnation());
                });
            }
            self.note_restored(location, header);
        }
        true
    }
}
