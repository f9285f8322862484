//! Connections by rdma_cm: addresses become devices and routes, a request carries a few bytes, and both sides
//! bring their queue pair to its states themselves, so that time-outs and retries are ours.

use std::ffi::{c_int, c_void};
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::device::{Device, check, failed, name};
use super::ffi::constant::*;
use super::ffi::{self, ConnParam, Libraries};
use super::queue::Pair;
use crate::timespec;

/// One try lasts 4.096 us times two to this power: 67 ms.
const TIMEOUT: u8 = 14;
/// Tries after the first; a peer that is dead is known to be after about 0.4 s. 7 would be for ever on some
/// devices.
const RETRIES: u8 = 5;
/// For ever: a side without a receive is slow, not dead. The hang-up of its connection says when it is.
const RNR_RETRIES: u8 = 7;
/// READs of one queue pair that the device works on at once; it keeps the others waiting by itself.
const READS_AT_ONCE: c_int = 16;
/// Connection requests that may wait to be looked at.
const BACKLOG: c_int = 64;

/// A socket address as system calls take it.
#[repr(C, align(8))]
struct RawAddress([u8; 28]);

impl RawAddress {
    fn new(address: SocketAddr) -> RawAddress {
        const AF_INET: u16 = 2;
        const AF_INET6: u16 = 10;
        let mut raw = [0; 28];
        raw[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(address) => {
                raw[..2].copy_from_slice(&AF_INET.to_ne_bytes());
                raw[4..8].copy_from_slice(&address.ip().octets());
            }
            SocketAddr::V6(address) => {
                raw[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
                raw[8..24].copy_from_slice(&address.ip().octets());
                raw[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
            }
        }
        RawAddress(raw)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }
}

/// Where events of connections come from.
pub(super) struct Events {
    channel: *mut ffi::CmChannel,
    libraries: &'static Libraries,
}

// SAFETY: the library's objects may be used from any thread.
unsafe impl Send for Events {}
// SAFETY: as above.
unsafe impl Sync for Events {}

/// What happened to a connection.
#[derive(Debug)]
pub(super) struct Event {
    pub kind: c_int,
    /// Which one; of a request, a new one.
    pub id: IdName,
    /// What the other side said with it.
    pub said: Vec<u8>,
}

/// Tells connections apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IdName(*mut ffi::CmId);

// SAFETY: a name, which is not followed.
unsafe impl Send for IdName {}

impl Events {
    pub fn new() -> Result<Arc<Events>> {
        let libraries = ffi::libraries().map_err(Error::other)?;
        // SAFETY: the result is checked before it is used.
        let channel = unsafe { (libraries.rdma_create_event_channel)() };
        if channel.is_null() {
            return Err(failed("use the connection manager; is the module rdma_ucm loaded?"));
        }
        let events = Events { channel, libraries };
        rustix::fs::fcntl_setfl(events.fd(), rustix::fs::OFlags::NONBLOCK)?;
        Ok(Arc::new(events))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the channel.
        unsafe { BorrowedFd::borrow_raw((*self.channel).fd) }
    }

    /// The next event, if there is one.
    pub fn take(&self) -> Option<Event> {
        let mut event = null_mut();
        // SAFETY: the channel exists and does not block; an event is read until it is acknowledged, once.
        unsafe {
            if (self.libraries.rdma_get_cm_event)(self.channel, &mut event) != 0 {
                return None;
            }
            let ffi::CmEvent { id, event: kind, conn, .. } = *event;
            let said = match kind {
                EVENT_CONNECT_REQUEST | EVENT_CONNECT_RESPONSE | EVENT_REJECTED | EVENT_ESTABLISHED
                    if !conn.private_data.is_null() =>
                {
                    let length = usize::from(conn.private_data_len);
                    std::slice::from_raw_parts(conn.private_data.cast::<u8>(), length).to_vec()
                }
                _ => Vec::new(),
            };
            (self.libraries.rdma_ack_cm_event)(event);
            Some(Event { kind, id: IdName(id), said })
        }
    }

    /// Waits for one of these events of a connection.
    fn wait_for(&self, wanted: &[c_int], until: Instant, what: &str) -> Result<Event> {
        loop {
            if let Some(event) = self.take() {
                if wanted.contains(&event.kind) {
                    return Ok(event);
                }
                // SAFETY: the library returns a static string for any number.
                let told = unsafe { name((self.libraries.rdma_event_str)(event.kind)) };
                return Err(Error::new(ErrorKind::ConnectionRefused, format!("cannot {what}: {told}")));
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                return Err(Error::new(ErrorKind::TimedOut, format!("cannot {what}: no answer in time")));
            };
            let _ = poll(&mut [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)], Some(&timespec(left)));
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if !self.libraries.is_own() {
            return;
        }
        // SAFETY: connections hold it, so none is left.
        unsafe { (self.libraries.rdma_destroy_event_channel)(self.channel) };
    }
}

/// A connection, or what listens for some.
pub(super) struct Id {
    id: *mut ffi::CmId,
    events: Arc<Events>,
}

// SAFETY: the library's objects may be used from any thread.
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}

impl Id {
    fn new(events: &Arc<Events>) -> Result<Id> {
        let mut id = null_mut();
        // SAFETY: a channel that exists.
        let code = unsafe { (events.libraries.rdma_create_id)(events.channel, &mut id, null_mut(), PS_TCP) };
        check("make a connection", code)?;
        Ok(Id { id, events: events.clone() })
    }

    /// The connection that a request is about: whoever is told of the request owns it.
    pub fn of_request(events: &Arc<Events>, event: &Event) -> Id {
        debug_assert!(event.kind == EVENT_CONNECT_REQUEST);
        Id { id: event.id.0, events: events.clone() }
    }

    /// Listens at an address.
    pub fn listen(events: &Arc<Events>, address: SocketAddr) -> Result<Id> {
        let id = Id::new(events)?;
        let mut raw = RawAddress::new(address);
        // SAFETY: a connection that exists, and an address as its family has it.
        unsafe {
            let code = (events.libraries.rdma_bind_addr)(id.id, raw.as_ptr());
            check(&format!("listen at {address} with a device for RDMA"), code)?;
            check(&format!("listen at {address}"), (events.libraries.rdma_listen)(id.id, BACKLOG))?;
        }
        Ok(id)
    }

    /// What events call it.
    pub fn name(&self) -> IdName {
        IdName(self.id)
    }

    /// The name of the device that it leads to.
    pub fn device(&self) -> Result<String> {
        // SAFETY: the library keeps the device of a connection that has one.
        unsafe {
            let verbs = (*self.id).verbs;
            if verbs.is_null() {
                return Err(Error::other("no device leads there"));
            }
            Ok(name((self.events.libraries.ibv_get_device_name)((*verbs).device)))
        }
    }

    /// Finds the way to an address, from one of this host's if that is given.
    pub fn resolve(
        events: &Arc<Events>,
        from: Option<IpAddr>,
        to: SocketAddr,
        patience: Duration,
    ) -> Result<Id> {
        let id = Id::new(events)?;
        let until = Instant::now() + patience;
        let milliseconds = patience.as_millis() as c_int;
        let mut from = from.map(|from| RawAddress::new(SocketAddr::new(from, 0)));
        let from = from.as_mut().map_or(null_mut(), RawAddress::as_ptr);
        let mut raw = RawAddress::new(to);
        let (addressing, routing) =
            (format!("find a device that leads to {to}"), format!("find a route to {to}"));
        // SAFETY: a connection that exists, and addresses as their families have them.
        let code = unsafe { (events.libraries.rdma_resolve_addr)(id.id, from, raw.as_ptr(), milliseconds) };
        check(&addressing, code)?;
        events.wait_for(&[EVENT_ADDR_RESOLVED], until, &addressing)?;
        // SAFETY: as above.
        check(&routing, unsafe { (events.libraries.rdma_resolve_route)(id.id, milliseconds) })?;
        events.wait_for(&[EVENT_ROUTE_RESOLVED], until, &routing)?;
        Ok(id)
    }

    /// Connects a queue pair to whoever listens there, and says something with the request.
    pub fn connect(&self, pair: &Pair, device: &Device, said: &[u8], patience: Duration) -> Result<()> {
        let until = Instant::now() + patience;
        self.initialise(pair)?;
        let mut param = parameters(pair, device, said);
        // SAFETY: a connection with a route; what is said is there until the call returns.
        check("connect", unsafe { (self.events.libraries.rdma_connect)(self.id, &mut param) })?;
        let wanted = [EVENT_CONNECT_RESPONSE, EVENT_ESTABLISHED];
        let event = self.events.wait_for(&wanted, until, "connect")?;
        if event.kind == EVENT_CONNECT_RESPONSE {
            self.make_ready(pair, device)?;
            // SAFETY: a connection that was answered.
            check("connect", unsafe { (self.events.libraries.rdma_establish)(self.id) })?;
        }
        Ok(())
    }

    /// Accepts the request that this is about.
    pub fn accept(&self, pair: &Pair, device: &Device) -> Result<()> {
        self.initialise(pair)?;
        if !device.is_iwarp() {
            self.make_ready(pair, device)?;
        }
        let mut param = parameters(pair, device, &[]);
        // SAFETY: a connection that was asked for.
        check("accept", unsafe { (self.events.libraries.rdma_accept)(self.id, &mut param) })
    }

    /// Refuses the request that this is about.
    pub fn reject(&self) {
        // SAFETY: a connection that was asked for.
        unsafe { (self.events.libraries.rdma_reject)(self.id, null_mut(), 0) };
    }

    fn attributes(&self, state: c_int) -> Result<(ffi::QpAttr, c_int)> {
        let mut attributes = ffi::QpAttr { qp_state: state, ..Default::default() };
        let mut mask = 0;
        // SAFETY: a connection that has a device.
        let code = unsafe { (self.events.libraries.rdma_init_qp_attr)(self.id, &mut attributes, &mut mask) };
        check("learn a queue pair's attributes", code)?;
        Ok((attributes, mask))
    }

    fn initialise(&self, pair: &Pair) -> Result<()> {
        let (mut attributes, mask) = self.attributes(QPS_INIT)?;
        attributes.qp_access_flags = (ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE) as u32;
        pair.modify(&mut attributes, mask | QP_ACCESS_FLAGS)
    }

    fn make_ready(&self, pair: &Pair, device: &Device) -> Result<()> {
        let (mut attributes, mask) = self.attributes(QPS_RTR)?;
        attributes.max_dest_rd_atomic = reads_at_once(device.limits.max_qp_rd_atom);
        pair.modify(&mut attributes, mask)?;
        let (mut attributes, mask) = self.attributes(QPS_RTS)?;
        attributes.max_rd_atomic = reads_at_once(device.limits.max_qp_init_rd_atom);
        (attributes.timeout, attributes.retry_cnt) = (TIMEOUT, RETRIES);
        attributes.rnr_retry = RNR_RETRIES;
        pair.modify(&mut attributes, mask | QP_TIMEOUT | QP_RETRY_CNT | QP_RNR_RETRY)
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        if !self.events.libraries.is_own() {
            return;
        }
        // SAFETY: made once and dropped once; its events are acknowledged as they are taken.
        unsafe {
            (self.events.libraries.rdma_disconnect)(self.id);
            (self.events.libraries.rdma_destroy_id)(self.id);
        }
    }
}

fn reads_at_once(most: c_int) -> u8 {
    most.clamp(1, READS_AT_ONCE) as u8
}

fn parameters(pair: &Pair, device: &Device, said: &[u8]) -> ConnParam {
    ConnParam {
        private_data: said.as_ptr().cast(),
        private_data_len: said.len() as u8,
        responder_resources: reads_at_once(device.limits.max_qp_rd_atom),
        initiator_depth: reads_at_once(device.limits.max_qp_init_rd_atom),
        flow_control: 0,
        retry_count: RETRIES,
        rnr_retry_count: RNR_RETRIES,
        srq: 0,
        qp_num: pair.number(),
    }
}
