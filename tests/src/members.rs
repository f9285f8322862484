//! Who is primary, and who is in sync, of a cluster whose register is in a ZooKeeper.

use std::time::{Duration, Instant};

use kelix_register::{Register, View, ZooKeeperOptions, ZooKeeperRegister};
use kelix_zookeeper::ZooKeeper;

use crate::until_told;

/// The name of the cluster.
pub const CLUSTER: &str = "prod";

/// The nodes of such a cluster, which have numbers for names.
pub trait Members {
    /// How long nodes may take to be in sync, and to be chosen.
    const WITHIN: Duration;

    /// The register's.
    fn zookeeper(&self) -> &ZooKeeper;

    /// The newest view.
    fn view(&self) -> View;

    /// The newest view, if the register answers.
    fn try_view(&self) -> Option<View> {
        let options = ZooKeeperOptions::new(&self.zookeeper().servers(), CLUSTER, "test").unwrap();
        ZooKeeperRegister::open(&options).and_then(|mut register| register.read()).ok().flatten()
    }

    /// The node that is primary.
    fn primary(&self) -> usize {
        self.view().primary_member().expect("a primary").node.parse().expect("a number")
    }

    /// Waits until so many nodes are in sync.
    #[track_caller]
    fn until_in_sync(&self, nodes: usize) {
        let began = Instant::now();
        let what = || format!("{nodes} nodes are in sync: {:?}", self.try_view());
        until_told(Self::WITHIN, what, || self.try_view().is_some_and(|view| view.in_sync.len() == nodes));
        println!("{nodes} in sync after {:?}", began.elapsed());
    }

    /// Waits until another node than this one is primary.
    #[track_caller]
    fn until_other_primary(&self, than: usize) {
        let what = || format!("node {than} is primary no more: {:?}", self.try_view());
        until_told(Self::WITHIN, what, || self.primary() != than);
    }
}
