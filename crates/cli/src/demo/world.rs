//! The places of the world as the file tells them, and the keys that their items have.
//!
//! ```text
//! countries   FR                             the two letters of ISO 3166
//! regions     FR/Bretagne                    the first division of a country
//! districts   FR/Bretagne/Finistere          the second
//! places      31415                          the line of the file, counted from 1 after the header
//! lists       FR/Bretagne:districts:1        what an item contains, at most 100 a piece
//! ```
//!
//! A place stands in the smallest division that the file names for it: its district, or its region, or its
//! country.

use std::collections::HashMap;
use std::path::Path;

use crate::Failure;

/// What the first line of the file must be.
const HEADER: [&str; 6] = ["lat", "lon", "name", "admin1", "admin2", "cc"];

/// One place.
#[derive(Debug)]
pub(super) struct Place {
    pub name: String,
    pub latitude: String,
    pub longitude: String,
    /// Indices into the lists of [`World`].
    pub district: Option<usize>,
    pub region: Option<usize>,
    pub country: usize,
}

/// A region or a district.
#[derive(Debug)]
pub(super) struct Division {
    pub key: String,
    pub name: String,
    /// Index of the country of a region, or of the region of a district.
    pub parent: usize,
}

/// All places and what they stand in, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct World {
    pub places: Vec<Place>,
    pub districts: Vec<Division>,
    pub regions: Vec<Division>,
    /// Their keys.
    pub countries: Vec<String>,
}

/// The key of a place.
pub(super) fn place_key(place: usize) -> String {
    (place + 1).to_string()
}

/// The place that has a key.
pub(super) fn place_of_key(key: &[u8]) -> Option<usize> {
    std::str::from_utf8(key).ok()?.parse::<usize>().ok()?.checked_sub(1)
}

/// The key of a piece of the list `name` of an item, counted from 1.
pub(super) fn list_key(holder: &str, name: &str, piece: usize) -> String {
    format!("{holder}:{name}:{piece}")
}

/// The index of a key, which is added by `add` if it is new.
fn index_of(known: &mut HashMap<String, usize>, key: String, add: impl FnOnce(String) -> usize) -> usize {
    match known.get(&key) {
        Some(index) => *index,
        None => {
            let index = add(key.clone());
            known.insert(key, index);
            index
        }
    }
}

impl World {
    /// Reads a file of places.
    pub fn read(file: &Path) -> Result<World, Failure> {
        let broken = |error: csv::Error| {
            Failure::usage("demo", format!("{} is no file of places: {error}", file.display()))
        };
        let mut reader = csv::Reader::from_path(file).map_err(broken)?;
        if *reader.headers().map_err(broken)? != HEADER[..] {
            let context = format!("{} has not the columns {}", file.display(), HEADER.join(","));
            return Err(Failure::usage("demo", context));
        }
        let world = World::from_records(reader.records()).map_err(broken)?;
        if world.places.is_empty() {
            return Err(Failure::usage("demo", format!("{} holds no places", file.display())));
        }
        Ok(world)
    }

    fn from_records(
        records: impl Iterator<Item = Result<csv::StringRecord, csv::Error>>,
    ) -> Result<World, csv::Error> {
        let mut world = World::default();
        let (mut countries, mut regions, mut districts) = (HashMap::new(), HashMap::new(), HashMap::new());
        for record in records {
            let record = record?;
            // The reader refuses records of another length than the header's.
            let [latitude, longitude, name, region, district, code] =
                [0, 1, 2, 3, 4, 5].map(|at| &record[at]);
            let country = index_of(&mut countries, code.to_string(), |key| {
                world.countries.push(key);
                world.countries.len() - 1
            });
            let region = (!region.is_empty()).then(|| {
                index_of(&mut regions, format!("{code}/{region}"), |key| {
                    world.regions.push(Division { key, name: region.to_string(), parent: country });
                    world.regions.len() - 1
                })
            });
            let district = region.filter(|_| !district.is_empty()).map(|region| {
                let key = format!("{}/{district}", world.regions[region].key);
                index_of(&mut districts, key, |key| {
                    world.districts.push(Division { key, name: district.to_string(), parent: region });
                    world.districts.len() - 1
                })
            });
            world.places.push(Place {
                name: name.to_string(),
                latitude: latitude.to_string(),
                longitude: longitude.to_string(),
                district,
                region,
                country,
            });
        }
        Ok(world)
    }

    /// A place to show: the first one of this name in this country, or else the first one that has a
    /// district.
    pub fn example(&self, name: &str, country: &str) -> usize {
        let named = |place: &Place| place.name == name && self.countries[place.country] == country;
        let found = self.places.iter().position(named);
        found.or_else(|| self.places.iter().position(|place| place.district.is_some())).unwrap_or(0)
    }

    /// The names of the links from a place up to its country.
    pub fn path_up(&self, place: usize) -> &'static [&'static str] {
        match (self.places[place].district, self.places[place].region) {
            (Some(_), _) => &["district", "region", "country"],
            (None, Some(_)) => &["region", "country"],
            (None, None) => &["country"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(lines: &str) -> World {
        let mut reader = csv::Reader::from_reader(lines.as_bytes());
        World::from_records(reader.records()).expect("well formed")
    }

    #[test]
    fn places_stand_in_the_smallest_division_that_is_named() {
        let world = world(
            "lat,lon,name,admin1,admin2,cc\n\
             48.39029,-4.48628,Brest,Bretagne,Departement du Finistere,FR\n\
             48.68333,-1.53333,\"Courtils, \"\"bourg\"\"\",Bretagne,,FR\n\
             43.73333,7.41667,Monaco,,Nowhere,MC\n\
             48.45,-4.25,Landerneau,Bretagne,Departement du Finistere,FR\n",
        );
        assert_eq!(world.countries, ["FR", "MC"]);
        assert_eq!(world.regions.len(), 1);
        assert_eq!((world.regions[0].key.as_str(), world.regions[0].parent), ("FR/Bretagne", 0));
        assert_eq!(world.districts.len(), 1);
        assert_eq!(world.districts[0].key, "FR/Bretagne/Departement du Finistere");
        let divisions: Vec<_> =
            world.places.iter().map(|place| (place.district, place.region, place.country)).collect();
        let expected = [(Some(0), Some(0), 0), (None, Some(0), 0), (None, None, 1), (Some(0), Some(0), 0)];
        assert_eq!(divisions, expected);
        assert_eq!(world.places[1].name, "Courtils, \"bourg\"");
        assert_eq!(world.example("Landerneau", "FR"), 3);
        assert_eq!(world.example("Landerneau", "DE"), 0);
        let paths = [0, 1, 2].map(|place| world.path_up(place).join("."));
        assert_eq!(paths, ["district.region.country", "region.country", "country"]);
    }

    #[test]
    fn regions_of_one_name_in_two_countries_are_two() {
        let world = world("lat,lon,name,admin1,admin2,cc\n1,2,A,Limburg,,NL\n1,2,B,Limburg,,BE\n");
        let keys: Vec<&str> = world.regions.iter().map(|region| region.key.as_str()).collect();
        assert_eq!(keys, ["NL/Limburg", "BE/Limburg"]);
    }

    #[test]
    fn keys_lead_back_to_their_places() {
        for place in [0, 1, 9, 144_562] {
            assert_eq!(place_of_key(place_key(place).as_bytes()), Some(place));
        }
        for key in ["0", "", "x", "-1"] {
            assert_eq!(place_of_key(key.as_bytes()), None, "{key:?}");
        }
        assert_eq!(list_key("FR/Bretagne", "districts", 2), "FR/Bretagne:districts:2");
    }
}
