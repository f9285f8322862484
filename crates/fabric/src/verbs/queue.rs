//! Completion queues and queue pairs.

use std::ffi::c_int;
use std::io::Result;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::Arc;

use super::device::{Device, Domain, check, failed};
use super::ffi::constant::{QP_STATE, QPS_ERR, QPT_RC};
use super::ffi::{self, Wc};

/// Completions taken at once.
pub(super) const TAKEN: usize = 32;

/// A descriptor that is readable when an armed completion queue has news.
pub(super) struct Channel {
    channel: *mut ffi::Channel,
    device: Arc<Device>,
}

// SAFETY: as for a device.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    pub fn new(device: &Arc<Device>) -> Result<Arc<Channel>> {
        // SAFETY: an open context; the result is checked before it is used.
        let channel = unsafe { (device.libraries.ibv_create_comp_channel)(device.context) };
        if channel.is_null() {
            return Err(failed("make a completion channel"));
        }
        let channel = Channel { channel, device: device.clone() };
        rustix::fs::fcntl_setfl(channel.fd(), rustix::fs::OFlags::NONBLOCK)?;
        Ok(Arc::new(channel))
    }

    /// Takes an event, if there is one: what its queue was given as a name.
    pub fn take(&self) -> Option<usize> {
        let (mut cq, mut context) = (null_mut(), null_mut());
        // SAFETY: the channel exists and does not block; each event is acknowledged once.
        unsafe {
            if (self.device.libraries.ibv_get_cq_event)(self.channel, &mut cq, &mut context) != 0 {
                return None;
            }
            (self.device.libraries.ibv_ack_cq_events)(cq, 1);
        }
        Some(context.addr())
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the channel.
        unsafe { BorrowedFd::borrow_raw((*self.channel).fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.device.libraries.is_own() {
            return;
        }
        // SAFETY: the queues that use it hold it, so none is left.
        unsafe { (self.device.libraries.ibv_destroy_comp_channel)(self.channel) };
    }
}

/// A completion queue.
pub(super) struct Completions {
    cq: *mut ffi::Cq,
    channel: Arc<Channel>,
}

// SAFETY: as for a device.
unsafe impl Send for Completions {}
// SAFETY: the library locks its queues.
unsafe impl Sync for Completions {}

impl Completions {
    /// A queue for so many completions, which has a name on its channel.
    pub fn new(channel: &Arc<Channel>, count: usize, name: usize) -> Result<Completions> {
        let device = &channel.device;
        let name = std::ptr::without_provenance_mut(name);
        // SAFETY: an open context and a channel of it; the name is only handed back.
        let cq = unsafe {
            (device.libraries.ibv_create_cq)(device.context, count as c_int, name, channel.channel, 0)
        };
        if cq.is_null() {
            return Err(failed("make a completion queue"));
        }
        Ok(Completions { cq, channel: channel.clone() })
    }

    /// Takes some completions out.
    pub fn poll<'a>(&self, into: &'a mut [Wc; TAKEN]) -> &'a [Wc] {
        // SAFETY: the queue exists.
        let count = unsafe { ffi::poll_cq(self.cq, into) };
        &into[..usize::try_from(count).expect("a completion queue that has not overrun")]
    }

    /// Asks for an event at the next completion. Completions before are not told.
    pub fn arm(&self) {
        // SAFETY: the queue exists.
        unsafe { ffi::req_notify_cq(self.cq) };
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        if !self.channel.device.libraries.is_own() {
            return;
        }
        // SAFETY: the queue pairs that use it are dropped before it, so none is left.
        unsafe { (self.channel.device.libraries.ibv_destroy_cq)(self.cq) };
    }
}

/// A reliable connected queue pair.
pub(super) struct Pair {
    qp: *mut ffi::Qp,
    domain: Arc<Domain>,
    /// What may be inline, in bytes.
    pub inline_bytes: usize,
}

// SAFETY: as for a device.
unsafe impl Send for Pair {}
// SAFETY: as above; the library locks the queues of a pair.
unsafe impl Sync for Pair {}

impl Pair {
    /// A queue pair that is not connected yet. Its user drops it before the completion queues.
    pub fn new(
        domain: &Arc<Domain>,
        (sends, receives): (&Completions, &Completions),
        (send_count, receive_count): (usize, usize),
        inline_bytes: usize,
    ) -> Result<Pair> {
        let libraries = domain.device.libraries;
        let mut wanted = ffi::QpInitAttr {
            qp_context: null_mut(),
            send_cq: sends.cq,
            recv_cq: receives.cq,
            srq: null_mut(),
            cap: ffi::QpCap {
                max_send_wr: send_count as u32,
                max_recv_wr: receive_count as u32,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline_bytes as u32,
            },
            qp_type: QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: a domain and queues of the same device.
        let mut qp = unsafe { (libraries.ibv_create_qp)(domain.domain, &mut wanted) };
        if qp.is_null() && inline_bytes > 0 {
            // Not every device has so much room, or any, for words inside a request.
            wanted.cap.max_inline_data = 0;
            // SAFETY: as above.
            qp = unsafe { (libraries.ibv_create_qp)(domain.domain, &mut wanted) };
        }
        if qp.is_null() {
            return Err(failed("make a queue pair"));
        }
        let inline_bytes = wanted.cap.max_inline_data as usize;
        Ok(Pair { qp, domain: domain.clone(), inline_bytes })
    }

    /// Its number, by which the other side addresses it.
    pub fn number(&self) -> u32 {
        // SAFETY: the queue pair exists.
        unsafe { (*self.qp).qp_num }
    }

    /// Changes its state and attributes.
    pub fn modify(&self, attributes: &mut ffi::QpAttr, mask: c_int) -> Result<()> {
        // SAFETY: the queue pair exists.
        let code = unsafe { (self.domain.device.libraries.ibv_modify_qp)(self.qp, attributes, mask) };
        check("modify a queue pair", code)
    }

    /// Gives it up: what is under way ends with an error.
    pub fn fail(&self) {
        let _ = self.modify(&mut ffi::QpAttr { qp_state: QPS_ERR, ..Default::default() }, QP_STATE);
    }

    /// Posts a list of requests with one doorbell.
    ///
    /// # Safety
    /// 1. The requests and what they point to are there until the call returns, each but the last names the
    ///    next, and the last none. 2. Memory of those that are not inline stays registered, and nothing else
    ///    uses it, until they are complete or the queue pair is gone.
    pub unsafe fn post(&self, first: &mut ffi::SendWr) -> Result<()> {
        // SAFETY: as promised by the caller.
        check("post", unsafe { ffi::post_send(self.qp, first, &mut null_mut()) })
    }

    /// Posts a receive, for one wake-up by the other side.
    ///
    /// # Safety
    /// The memory stays registered until the receive is complete or the queue pair is gone.
    pub unsafe fn post_receive(&self, name: u64, mut into: ffi::Sge) -> Result<()> {
        let mut receive = ffi::RecvWr { wr_id: name, next: null_mut(), sg_list: &mut into, num_sge: 1 };
        // SAFETY: one request, and memory as promised by the caller.
        check("post a receive", unsafe { ffi::post_recv(self.qp, &mut receive, &mut null_mut()) })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if !self.domain.device.libraries.is_own() {
            return;
        }
        // SAFETY: made once and dropped once.
        unsafe { (self.domain.device.libraries.ibv_destroy_qp)(self.qp) };
    }
}
