//! The calls of a session that applications make, written once for threads that wait and for tasks that do
//! not.
//!
//! Over a [`Session`] a call has ended when its future is first looked at, and [`now`] takes what it brought:
//! that is the plain form, with the costs of the plain call. Over an [`AsyncSession`] the task goes on when
//! the answer is there.

use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use kelix::aio::AsyncSession;
use kelix::{CompareAndSet, Cost, Frontier, Item, NewItem, Result, Scan, Session, Table, TableId, Version};

/// The calls of a session, as futures.
pub trait Calls: Send {
    /// Gets an item.
    fn get(&mut self, table: Table, key: &[u8]) -> impl Future<Output = Result<Option<Item>>> + Send;

    /// Follows an item's first link under a name.
    fn follow(&mut self, item: &Item, name: &str) -> impl Future<Output = Result<Option<Item>>> + Send;

    /// Goes along a link: the target takes the item's place. `false`: there is none, and the item stays.
    fn follow_into(&mut self, item: &mut Item, name: &str) -> impl Future<Output = Result<bool>> + Send;

    /// Reads all that a frontier leads to, and shows it in order.
    fn visit(
        &mut self,
        frontier: &Frontier,
        each: impl FnMut(usize, Option<&Item>) + Send,
    ) -> impl Future<Output = Result<()>> + Send;

    /// All that a scan brings.
    fn scan(&mut self, table: Table, scan: &Scan) -> impl Future<Output = Result<Vec<Item>>> + Send;

    /// Puts an item.
    fn put_item(
        &mut self,
        table: Table,
        key: &[u8],
        item: &NewItem,
    ) -> impl Future<Output = Result<Version>> + Send;

    /// Puts an item if the key has the expected version.
    fn compare_and_set_item(
        &mut self,
        table: Table,
        key: &[u8],
        expected: Option<Version>,
        item: &NewItem,
    ) -> impl Future<Output = Result<CompareAndSet>> + Send;

    /// The handle of a table by its id.
    fn table_by_id(&self, id: TableId) -> Table;

    /// What the session's operations have cost, those of all its tasks.
    fn cost(&self) -> Cost;
}

/// What a future brings that waits for nothing, as those over a [`Session`] do not.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("a plain call has ended when it returns"),
    }
}

impl Calls for Session {
    async fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Item>> {
        Session::get(self, table, key)
    }

    async fn follow(&mut self, item: &Item, name: &str) -> Result<Option<Item>> {
        Session::follow(self, item, name)
    }

    async fn follow_into(&mut self, item: &mut Item, name: &str) -> Result<bool> {
        Session::follow_into(self, item, name)
    }

    async fn visit(
        &mut self,
        frontier: &Frontier,
        mut each: impl FnMut(usize, Option<&Item>) + Send,
    ) -> Result<()> {
        Session::visit(self, frontier, |index, item| {
            each(index, item);
            ControlFlow::Continue(())
        })
    }

    async fn scan(&mut self, table: Table, scan: &Scan) -> Result<Vec<Item>> {
        Session::scan(self, table, scan)?.collect()
    }

    async fn put_item(&mut self, table: Table, key: &[u8], item: &NewItem) -> Result<Version> {
        Session::put_item(self, table, key, item)
    }

    async fn compare_and_set_item(
        &mut self,
        table: Table,
        key: &[u8],
        expected: Option<Version>,
        item: &NewItem,
    ) -> Result<CompareAndSet> {
        Session::compare_and_set_item(self, table, key, expected, item)
    }

    fn table_by_id(&self, id: TableId) -> Table {
        Session::table_by_id(self, id)
    }

    fn cost(&self) -> Cost {
        Session::cost(self)
    }
}

impl Calls for AsyncSession {
    async fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Item>> {
        AsyncSession::get(self, table, key).await
    }

    async fn follow(&mut self, item: &Item, name: &str) -> Result<Option<Item>> {
        AsyncSession::follow(self, item, name).await
    }

    async fn follow_into(&mut self, item: &mut Item, name: &str) -> Result<bool> {
        let target = AsyncSession::follow(self, item, name).await?;
        let found = target.is_some();
        if let Some(target) = target {
            *item = target;
        }
        Ok(found)
    }

    async fn visit(
        &mut self,
        frontier: &Frontier,
        mut each: impl FnMut(usize, Option<&Item>) + Send,
    ) -> Result<()> {
        let show = |index: usize, item: Option<&Item>| {
            each(index, item);
            ControlFlow::Continue(())
        };
        AsyncSession::visit(self, frontier, show).await
    }

    async fn scan(&mut self, table: Table, scan: &Scan) -> Result<Vec<Item>> {
        let mut page = AsyncSession::scan(self, table, scan).await?;
        let mut all = Vec::new();
        loop {
            let (items, rest) = page.into_parts();
            all.extend(items);
            let Some(rest) = rest else { return Ok(all) };
            page = self.page(rest).await?;
        }
    }

    async fn put_item(&mut self, table: Table, key: &[u8], item: &NewItem) -> Result<Version> {
        AsyncSession::put_item(self, table, key, item).await
    }

    async fn compare_and_set_item(
        &mut self,
        table: Table,
        key: &[u8],
        expected: Option<Version>,
        item: &NewItem,
    ) -> Result<CompareAndSet> {
        AsyncSession::compare_and_set_item(self, table, key, expected, item).await
    }

    fn table_by_id(&self, id: TableId) -> Table {
        AsyncSession::table_by_id(self, id)
    }

    fn cost(&self) -> Cost {
        AsyncSession::cost(self)
    }
}
