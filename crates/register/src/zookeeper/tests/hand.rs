//! A hand that does to ZooKeeper what nobody should.

use tokio::runtime::Runtime;
use zookeeper_client::{Acls, Client, CreateMode, SessionInfo};

pub struct Hand {
    runtime: Runtime,
    client: Client,
}

impl Hand {
    pub fn at(server: &str) -> Hand {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(Client::connect(server)).unwrap();
        Hand { runtime, client }
    }

    pub fn make(&self, path: &str, contents: &[u8]) {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.runtime.block_on(self.client.create(path, contents, &options)).unwrap();
    }

    pub fn make_directories(&self, path: &str) {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.runtime.block_on(self.client.mkdir(path, &options)).unwrap();
    }

    pub fn set(&self, path: &str, contents: &[u8]) {
        self.runtime.block_on(self.client.set_data(path, contents, None)).unwrap();
    }

    pub fn get(&self, path: &str) -> Vec<u8> {
        self.runtime.block_on(self.client.get_data(path)).unwrap().0
    }

    pub fn remove(&self, path: &str) {
        self.runtime.block_on(self.client.delete(path, None)).unwrap();
    }

    /// Removes a register, with all nodes that may be there.
    pub fn remove_register(&self, path: &str) {
        let beats = format!("{path}/beats");
        for beat in self.runtime.block_on(self.client.list_children(&beats)).unwrap() {
            self.remove(&format!("{beats}/{beat}"));
        }
        for child in self.runtime.block_on(self.client.list_children(path)).unwrap() {
            self.remove(&format!("{path}/{child}"));
        }
        self.remove(path);
    }

    /// Ends a session that somebody else has.
    pub fn end_session(server: &str, session: SessionInfo) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::connector().with_session(session).connect(server).await.unwrap();
            let mut watch = client.state_watcher();
            drop(client);
            watch.changed().await;
        });
    }
}
