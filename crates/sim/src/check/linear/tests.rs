//! Histories made by hand, and random ones compared with every order there is.

mod every_order;
mod hand_made;
mod random;
