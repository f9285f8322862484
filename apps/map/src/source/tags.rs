//! What the tags of a way say of cars.

use crate::network::Street;

/// A street with its nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// Ids of its nodes, in the direction of traffic where that goes one way.
    pub nodes: Vec<i64>,
    /// What it is.
    pub street: Street,
    /// Whether traffic goes one way.
    pub oneway: bool,
}

/// Kinds of ways that cars may use, with the speed where no sign says another.
const KINDS: [(&str, u8); 15] = [
    ("motorway", 100),
    ("motorway_link", 60),
    ("trunk", 80),
    ("trunk_link", 50),
    ("primary", 50),
    ("primary_link", 40),
    ("secondary", 50),
    ("secondary_link", 40),
    ("tertiary", 40),
    ("tertiary_link", 40),
    ("unclassified", 40),
    ("residential", 30),
    ("road", 30),
    ("living_street", 15),
    ("service", 15),
];

/// The fastest that a street may say it is, in kilometres an hour.
pub const FASTEST: u8 = 140;

impl Way {
    /// The street that these tags describe. `None`: cars may not use it.
    pub fn of<'t>(nodes: Vec<i64>, tags: impl Iterator<Item = (&'t str, &'t str)>) -> Option<Way> {
        let (mut kind, mut name, mut oneway, mut speed) = (None, "", None, None);
        let mut closed = false;
        let mut round = false;
        for (key, value) in tags {
            match key {
                "highway" => kind = KINDS.iter().find(|(kind, _)| *kind == value),
                "name" => name = value,
                "oneway" => oneway = Some(value),
                "maxspeed" => speed = kilometres_an_hour(value),
                "junction" => round = matches!(value, "roundabout" | "circular"),
                "area" => closed |= value == "yes",
                "access" | "vehicle" | "motor_vehicle" | "motorcar" => {
                    closed |= matches!(value, "no" | "private")
                }
                _ => {}
            }
        }
        let (kind, usual) = kind.filter(|_| !closed)?;
        let usually = round || kind.starts_with("motorway");
        let (oneway, backwards) = match oneway {
            Some("yes" | "true" | "1") => (true, false),
            Some("-1" | "reverse") => (true, true),
            Some("no" | "false" | "0") => (false, false),
            _ => (usually, false),
        };
        let mut nodes = nodes;
        if backwards {
            nodes.reverse();
        }
        let maxspeed = speed.unwrap_or(*usual).clamp(5, FASTEST);
        Some(Way { nodes, street: Street { name: name.into(), kind: (*kind).into(), maxspeed }, oneway })
    }
}

/// `50`, or `30 mph`. Other words (`walk`, `signals`) say no number.
fn kilometres_an_hour(text: &str) -> Option<u8> {
    let (number, factor) = match text.strip_suffix("mph") {
        Some(miles) => (miles, 1.609_344),
        None => (text, 1.0),
    };
    let speed = number.trim().parse::<f64>().ok()? * factor;
    Some(speed.clamp(0.0, 255.0) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(tags: &[(&'static str, &'static str)]) -> Option<Way> {
        Way::of(vec![1, 2, 3], tags.iter().copied())
    }

    #[test]
    fn cars_use_streets() {
        for kind in ["footway", "cycleway", "steps", "pedestrian", "construction", "proposed", "path"] {
            assert_eq!(way(&[("highway", kind)]), None, "{kind}");
        }
        assert_eq!(way(&[("building", "yes")]), None);
        assert_eq!(way(&[("highway", "residential"), ("access", "private")]), None);
        let street = way(&[("highway", "residential"), ("name", "Rue"), ("maxspeed", "20 mph")]).unwrap();
        assert_eq!((&street.street.name[..], street.street.maxspeed, street.oneway), ("Rue", 32, false));
        assert_eq!(way(&[("highway", "primary"), ("maxspeed", "signals")]).unwrap().street.maxspeed, 50);
    }

    #[test]
    fn one_way_is_the_way_of_the_nodes() {
        assert!(way(&[("highway", "motorway")]).unwrap().oneway);
        assert!(!way(&[("highway", "motorway"), ("oneway", "no")]).unwrap().oneway);
        assert!(way(&[("highway", "tertiary"), ("junction", "roundabout")]).unwrap().oneway);
        let back = way(&[("highway", "primary"), ("oneway", "-1")]).unwrap();
        assert_eq!((back.oneway, &back.nodes[..]), (true, &[3, 2, 1][..]));
    }
}
