//! A store: where the server is, and what belongs to no table.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kelix::{Client, ClientTls, ConnectOptions, Credentials, FabricChoice, Identity, SessionOptions};
use pyo3::prelude::*;

use crate::codec::kind_of;
use crate::errors::{OrRaise, invalid};
use crate::sessions::Shared;
use crate::view::View;
use crate::wait::{Waited, wait};

/// A connection to a store, for all threads.
#[pyclass(frozen, module = "kelix._kelix")]
pub struct Store {
    pub shared: Arc<Shared>,
}

/// A time in seconds.
pub fn duration(py: Python<'_>, operation: &'static str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| invalid(py, operation, format!("{seconds} seconds are no time that can be waited for")))
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (
        address, *, namespace, token, timeout, retry_for, durable, fabric, private_caches, own_writes,
        max_lag, strict, tls, certificate, key
    ))]
    #[expect(clippy::too_many_arguments, reason = "each has its name where it is called")]
    fn new(
        py: Python<'_>,
        address: Option<String>,
        namespace: String,
        token: Option<String>,
        timeout: f64,
        retry_for: f64,
        durable: bool,
        fabric: Option<&str>,
        private_caches: bool,
        own_writes: bool,
        max_lag: Option<f64>,
        strict: bool,
        tls: Option<PathBuf>,
        certificate: Option<PathBuf>,
        key: Option<PathBuf>,
    ) -> PyResult<Store> {
        let (timeout, retry_for) = (duration(py, "connect", timeout)?, duration(py, "connect", retry_for)?);
        let max_lag = max_lag.map(|seconds| duration(py, "connect", seconds)).transpose()?;
        let address = match address {
            Some(address) => address.parse().or_raise(py)?,
            None => kelix::Address::from(Client::default_directory()),
        };
        let fabric = fabric.map(str::parse::<FabricChoice>).transpose().or_raise(py)?;
        let identity = match (&certificate, &key) {
            (Some(certificates), Some(key)) => Some(Identity { certificates, key }),
            (None, None) => None,
            _ => return Err(invalid(py, "connect", "a certificate and its key come together")),
        };
        let tls = tls.map(|servers| ClientTls::load(&servers, identity)).transpose().or_raise(py)?;
        let credentials = Credentials::default().namespace(namespace).token(token).tls(tls);
        let options = SessionOptions::default()
            .timeout(timeout)
            .retry_for(Some(retry_for).filter(|time| !time.is_zero()))
            .durable(durable)
            .fabric(fabric)
            .private_caches(private_caches)
            .own_writes(own_writes)
            .max_lag(max_lag)
            .strict(strict)
            .rdma_address(None::<IpAddr>);
        let patience = ConnectOptions::default().timeout(timeout).retry_for(retry_for);
        let longest = timeout.saturating_add(retry_for);
        let client = match wait(py, longest, move || Client::connect_within(address, credentials, patience))?
        {
            Waited::Ended(client) => client.or_raise(py)?,
            Waited::LeftBehind(raised) => return Err(raised),
        };
        Ok(Store { shared: Arc::new(Shared::new(client, options)) })
    }

    /// Makes a table, if there is none of the name.
    fn create(&self, py: Python<'_>, name: String, kind: &str) -> PyResult<()> {
        let kind = kind_of(py, kind)?;
        self.shared.run(py, move |session, _| session.create_table_of(kind, &name).map(drop))
    }

    /// The names of the tables.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.shared.run(py, |session, _| session.tables())
    }

    /// Drops a table. `False`: there was none.
    fn drop_table(&self, py: Python<'_>, name: String) -> PyResult<bool> {
        let dropped = self.shared.run(py, move |session, _| session.drop_table(&name));
        self.shared.note_changed();
        dropped
    }

    /// Drops a dataset. `False`: there was none.
    fn drop_dataset(&self, py: Python<'_>, name: String) -> PyResult<bool> {
        let dropped = self.shared.run(py, move |session, _| session.drop_dataset(&name));
        self.shared.note_changed();
        dropped
    }

    /// Opens a view of a dataset.
    fn view(&self, py: Python<'_>, dataset: &str) -> PyResult<View> {
        View::open(py, &self.shared, dataset)
    }

    /// The server's statistics, as JSON.
    fn statistics(&self, py: Python<'_>) -> PyResult<String> {
        let client = self.shared.client().clone();
        match wait(py, self.shared.longest(), move || client.statistics())? {
            Waited::Ended(statistics) => Ok(statistics.or_raise(py)?.json()),
            Waited::LeftBehind(raised) => Err(raised),
        }
    }

    /// The fabric of this thread's session.
    fn fabric(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.shared.run(py, |session, _| Ok(session.fabric()))
    }

    /// Whether the server is known to have gone.
    fn is_detached(&self, py: Python<'_>) -> PyResult<bool> {
        self.shared.run(py, |session, _| Ok(session.is_detached()))
    }

    /// Whether the server is a mirror.
    fn is_mirror(&self, py: Python<'_>) -> PyResult<bool> {
        self.shared.run(py, |session, _| Ok(session.is_mirror()))
    }

    /// Where the server is that the mirror follows.
    fn primary(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.shared.run(py, |session, _| Ok(session.primary().map(str::to_owned)))
    }

    /// How many seconds ago the mirror is known to have had all that its primary had.
    fn lag(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.shared.run(py, |session, _| Ok(session.lag().map(|lag| lag.as_secs_f64())))
    }

    /// What operations of this thread have cost: reads, bytes read, messages, retries, fallbacks.
    fn cost(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64, u64)> {
        let cost = self.shared.run(py, |session, _| Ok(session.cost()))?;
        Ok((cost.reads, cost.read_bytes, cost.messages, cost.retries, cost.fallbacks))
    }

    /// Ends the sessions of all threads.
    fn close(&self) {
        self.shared.close();
    }
}
