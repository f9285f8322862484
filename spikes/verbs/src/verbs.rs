//! Devices, memory regions, completion queues and queue pairs, each holding what it needs to exist.

use std::ffi::{CStr, c_int, c_void};
use std::io::{Error, Result};
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::Arc;

use kelix_image::Span;
use kelix_image::words::Words;

use crate::ffi::{self, Gid, Library, Wc, constant::*};

fn failed(what: &str) -> Error {
    let source = Error::last_os_error();
    Error::new(source.kind(), format!("{what}: {source}"))
}

/// Calls that return an error number.
fn check(what: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let source = Error::from_raw_os_error(code);
    Err(Error::new(source.kind(), format!("{what}: {source}")))
}

/// An open device with one protection domain.
pub struct Device {
    library: &'static Library,
    context: *mut ffi::Context,
    domain: *mut ffi::Opaque,
    /// Its address, and the index of it.
    gid: (Gid, u8),
}

// SAFETY: the library's objects may be used from any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the first device.
    pub fn open() -> Result<Arc<Device>> {
        let library = ffi::library().map_err(Error::other)?;
        // SAFETY: the calls take what the calls before them returned, and results are checked before they are
        // used.
        unsafe {
            let mut count = 0;
            let list = (library.ibv_get_device_list)(&mut count);
            if list.is_null() || count == 0 {
                return Err(failed("no verbs device"));
            }
            let context = (library.ibv_open_device)(*list);
            (library.ibv_free_device_list)(list);
            if context.is_null() {
                return Err(failed("open device"));
            }
            let domain = (library.ibv_alloc_pd)(context);
            let mut device = Device { library, context, domain, gid: Default::default() };
            if domain.is_null() {
                return Err(failed("allocate protection domain"));
            }
            // RoCE addresses a port by its GID; the link-local one is no use on a device without neighbours.
            device.gid = (0..device.port()?.gid_tbl_len)
                .filter_map(|index| {
                    let mut gid = Gid::default();
                    let code = (library.ibv_query_gid)(context, 1, index, &mut gid);
                    (code == 0 && gid != Gid::default() && gid.0[0] != 0xfe).then_some((gid, index as u8))
                })
                .next()
                .ok_or_else(|| Error::other("the device has no address"))?;
            Ok(Arc::new(device))
        }
    }

    /// Limits of the device.
    pub fn limits(&self) -> Result<ffi::DeviceAttr> {
        // SAFETY: integers only, for which zero is a value; the library fills them in.
        let mut limits: ffi::DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: an open context and a structure of the right layout.
        check("query device", unsafe { (self.library.ibv_query_device)(self.context, &mut limits) })?;
        Ok(limits)
    }

    /// Limits of its first port.
    pub fn port(&self) -> Result<ffi::PortAttr> {
        let mut port = ffi::PortAttr::default();
        // SAFETY: as above.
        check("query port", unsafe { (self.library.ibv_query_port)(self.context, 1, &mut port) })?;
        Ok(port)
    }

    /// The next asynchronous event, if `wait_ms` pass with one: its name.
    pub fn next_event(&self, wait_ms: u32) -> Option<String> {
        // SAFETY: the descriptor is open as long as the context, which `self` keeps.
        let fd = unsafe { BorrowedFd::borrow_raw((*self.context).async_fd) };
        if !readable(fd, wait_ms) {
            return None;
        }
        let mut event = ffi::AsyncEvent { element: null_mut(), event_type: 0 };
        // SAFETY: an open context, an event to fill in, and one acknowledgement for it; names are static strings.
        unsafe {
            if (self.library.ibv_get_async_event)(self.context, &mut event) != 0 {
                return None;
            }
            (self.library.ibv_ack_async_event)(&mut event);
            let name = CStr::from_ptr((self.library.ibv_event_type_str)(event.event_type));
            Some(name.to_string_lossy().into_owned())
        }
    }

    /// The library's words for a completion's status.
    pub fn status_name(&self, status: c_int) -> String {
        // SAFETY: the library returns a static string for any number.
        let name = unsafe { CStr::from_ptr((self.library.ibv_wc_status_str)(status)) };
        name.to_string_lossy().into_owned()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: everything made from the device holds it, so nothing is left.
        unsafe {
            if !self.domain.is_null() {
                (self.library.ibv_dealloc_pd)(self.domain);
            }
            (self.library.ibv_close_device)(self.context);
        }
    }
}

/// Whether a descriptor becomes readable within so many milliseconds.
pub fn readable(fd: BorrowedFd<'_>, wait_ms: u32) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let timeout =
        Timespec { tv_sec: i64::from(wait_ms / 1000), tv_nsec: i64::from(wait_ms % 1000) * 1_000_000 };
    matches!(poll(&mut fds, Some(&timeout)), Ok(1))
}

/// A place in another side's registered memory.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    /// Virtual address there.
    pub address: u64,
    /// Its region's key.
    pub rkey: u32,
}

impl Remote {
    /// So many words further on.
    pub fn word(self, index: usize) -> Remote {
        Remote { address: self.address + index as u64 * 8, ..self }
    }
}

/// A registered span.
pub struct Region {
    mr: *mut ffi::Mr,
    span: Span,
    device: Arc<Device>,
}

// SAFETY: as for a device.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Registers all of a span.
    pub fn register(device: &Arc<Device>, span: Span, access: c_int) -> Result<Region> {
        let base = span.words().as_ptr() as *mut c_void;
        // SAFETY: the span stays mapped as long as the region, which holds it; it is reached through `Words`
        // and by a device only, as a span wants it.
        let mr = unsafe { (device.library.ibv_reg_mr)(device.domain, base, span.bytes() as usize, access) };
        if mr.is_null() {
            return Err(failed("register memory"));
        }
        Ok(Region { mr, span, device: device.clone() })
    }

    /// Its words.
    pub fn words(&self) -> Words<'_> {
        self.span.words()
    }

    /// Where another side finds it.
    pub fn remote(&self) -> Remote {
        // SAFETY: the region exists.
        Remote { address: self.words().as_ptr().addr() as u64, rkey: unsafe { (*self.mr).rkey } }
    }

    /// Some of its words, for a work request.
    pub fn part(&self, first: usize, count: usize) -> ffi::Sge {
        let words = self.words().part(first, count);
        // SAFETY: the region exists.
        let lkey = unsafe { (*self.mr).lkey };
        ffi::Sge { addr: words.as_ptr().addr() as u64, length: (count * 8) as u32, lkey }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: registered once and dropped once. Work requests that still name it fail, here and there.
        unsafe { (self.device.library.ibv_dereg_mr)(self.mr) };
    }
}

/// A completion queue, with a completion channel of its own.
pub struct Completions {
    cq: *mut ffi::Cq,
    channel: *mut ffi::Channel,
    device: Arc<Device>,
}

// SAFETY: as for a device.
unsafe impl Send for Completions {}
// SAFETY: the library locks its queues.
unsafe impl Sync for Completions {}

impl Completions {
    /// A queue for so many completions.
    pub fn new(device: &Arc<Device>, count: usize) -> Result<Arc<Completions>> {
        // SAFETY: results are checked before they are used. The channel does not block: see `news`.
        unsafe {
            let channel = (device.library.ibv_create_comp_channel)(device.context);
            if channel.is_null() {
                return Err(failed("make completion channel"));
            }
            let fd = BorrowedFd::borrow_raw((*channel).fd);
            rustix::fs::fcntl_setfl(fd, rustix::fs::OFlags::NONBLOCK)?;
            let cq = (device.library.ibv_create_cq)(device.context, count as c_int, null_mut(), channel, 0);
            if cq.is_null() {
                return Err(failed("make completion queue"));
            }
            Ok(Arc::new(Completions { cq, channel, device: device.clone() }))
        }
    }

    /// Takes some completions out.
    pub fn poll<'a>(&self, into: &'a mut [Wc; 32]) -> &'a [Wc] {
        // SAFETY: the queue exists.
        let count = unsafe { ffi::poll_cq(self.cq, into) };
        &into[..usize::try_from(count).expect("a completion queue that has not overrun")]
    }

    /// Asks for an event at the next completion. Completions before are not told.
    pub fn arm(&self) {
        // SAFETY: the queue exists.
        unsafe { ffi::req_notify_cq(self.cq) };
    }

    /// Takes an event, if there is one.
    pub fn news(&self) -> bool {
        let (mut cq, mut context) = (null_mut(), null_mut());
        // SAFETY: the channel exists, and each event is acknowledged once.
        unsafe {
            let news = (self.device.library.ibv_get_cq_event)(self.channel, &mut cq, &mut context) == 0;
            if news {
                (self.device.library.ibv_ack_cq_events)(cq, 1);
            }
            news
        }
    }

    /// Becomes readable when there is an event.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the channel.
        unsafe { BorrowedFd::borrow_raw((*self.channel).fd) }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: the queue pairs that use it hold it, so none is left.
        unsafe {
            (self.device.library.ibv_destroy_cq)(self.cq);
            (self.device.library.ibv_destroy_comp_channel)(self.channel);
        }
    }
}

/// How another side finds a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// The port.
    pub gid: Gid,
    /// Its number there.
    pub qp_num: u32,
}

/// How long a queue pair waits for a side that does not answer.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// One try lasts at least 4.096 us times two to this power.
    pub timeout: u8,
    /// Tries after the first; 7 means for ever on some devices.
    pub retries: u8,
    /// Tries after "receiver not ready"; 7 means for ever.
    pub rnr_retries: u8,
}

/// Fails within half a second on the software device.
pub const PATIENCE: Patience = Patience { timeout: 14, retries: 5, rnr_retries: 7 };

/// What one work request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// RDMA READ into registered memory.
    Read,
    /// RDMA WRITE from registered memory.
    Write,
    /// RDMA WRITE of words that are copied into the request.
    WriteInline,
    /// A WRITE of nothing that takes a receive from the other side's queue and so makes a completion there.
    Wake,
}

/// A reliable connected queue pair.
pub struct Pair {
    qp: *mut ffi::Qp,
    sends: Arc<Completions>,
    _receives: Arc<Completions>,
    /// What may be inline, in bytes.
    pub inline_bytes: u32,
}

// SAFETY: as for a device.
unsafe impl Send for Pair {}
// SAFETY: as above; the library locks the queues of a pair.
unsafe impl Sync for Pair {}

impl Pair {
    /// A queue pair that is not connected yet.
    pub fn new(
        sends: &Arc<Completions>,
        receives: &Arc<Completions>,
        (send_count, receive_count): (u32, u32),
        inline_bytes: u32,
    ) -> Result<Pair> {
        let device = &sends.device;
        let mut wanted = ffi::QpInitAttr {
            qp_context: null_mut(),
            send_cq: sends.cq,
            recv_cq: receives.cq,
            srq: null_mut(),
            cap: ffi::QpCap {
                max_send_wr: send_count,
                max_recv_wr: receive_count,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline_bytes,
            },
            qp_type: QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: queues of the same device, which the pair holds.
        let qp = unsafe { (device.library.ibv_create_qp)(device.domain, &mut wanted) };
        if qp.is_null() {
            return Err(failed("make queue pair"));
        }
        let inline_bytes = wanted.cap.max_inline_data;
        Ok(Pair { qp, sends: sends.clone(), _receives: receives.clone(), inline_bytes })
    }

    fn device(&self) -> &Device {
        &self.sends.device
    }

    /// How the other side finds it.
    pub fn address(&self) -> Address {
        // SAFETY: the queue pair exists.
        Address { gid: self.device().gid.0, qp_num: unsafe { (*self.qp).qp_num } }
    }

    fn modify(&self, attributes: &mut ffi::QpAttr, mask: c_int) -> Result<()> {
        // SAFETY: the queue pair exists.
        check("modify queue pair", unsafe {
            (self.device().library.ibv_modify_qp)(self.qp, attributes, mask)
        })
    }

    /// Connects it: from here on the other side may READ and WRITE, and so may this one.
    pub fn connect(&self, to: Address, patience: Patience) -> Result<()> {
        let mut init = ffi::QpAttr {
            qp_state: QPS_INIT,
            port_num: 1,
            qp_access_flags: (ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE) as u32,
            ..Default::default()
        };
        self.modify(&mut init, QP_STATE | QP_PKEY_INDEX | QP_PORT | QP_ACCESS_FLAGS)?;
        let mut ready_to_receive = ffi::QpAttr {
            qp_state: QPS_RTR,
            path_mtu: self.device().port()?.active_mtu,
            dest_qp_num: to.qp_num,
            max_dest_rd_atomic: 16,
            // 0.64 ms.
            min_rnr_timer: 12,
            ah_attr: ffi::AhAttr {
                dgid: to.gid,
                sgid_index: self.device().gid.1,
                hop_limit: 64,
                is_global: 1,
                port_num: 1,
                ..Default::default()
            },
            ..Default::default()
        };
        let mask = QP_AV | QP_PATH_MTU | QP_DEST_QPN | QP_RQ_PSN | QP_MAX_DEST_RD_ATOMIC | QP_MIN_RNR_TIMER;
        self.modify(&mut ready_to_receive, QP_STATE | mask)?;
        let mut ready_to_send = ffi::QpAttr {
            qp_state: QPS_RTS,
            timeout: patience.timeout,
            retry_cnt: patience.retries,
            rnr_retry: patience.rnr_retries,
            max_rd_atomic: 16,
            ..Default::default()
        };
        let mask = QP_SQ_PSN | QP_TIMEOUT | QP_RETRY_CNT | QP_RNR_RETRY | QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut ready_to_send, QP_STATE | mask)
    }

    /// Gives it up: what is under way ends with an error.
    pub fn fail(&self) {
        let _ = self.modify(&mut ffi::QpAttr { qp_state: QPS_ERR, ..Default::default() }, QP_STATE);
    }

    /// Posts work requests with one doorbell. Each makes a completion with its identifier.
    ///
    /// # Safety
    /// 1. Memory of a READ or a WRITE that is not inline stays registered, and nothing else uses it, until
    ///    its completion
    ///    or the end of the pair. 2. Memory of a WRITE that is inline is readable now.
    pub unsafe fn post(&self, work: &mut [(u64, Work, ffi::Sge, Remote)]) -> Result<()> {
        let mut requests: Vec<ffi::SendWr> = work
            .iter_mut()
            .map(|(id, work, local, remote)| ffi::SendWr {
                wr_id: *id,
                next: null_mut(),
                sg_list: local,
                num_sge: c_int::from(*work != Work::Wake),
                opcode: match work {
                    Work::Read => WR_RDMA_READ,
                    Work::Write | Work::WriteInline => WR_RDMA_WRITE,
                    Work::Wake => WR_RDMA_WRITE_WITH_IMM,
                },
                send_flags: SEND_SIGNALED | if *work == Work::WriteInline { SEND_INLINE } else { 0 },
                imm_data: 0,
                remote_addr: remote.address,
                rkey: remote.rkey,
                unused: [0; 9],
            })
            .collect();
        for index in 1..requests.len() {
            let next: *mut ffi::SendWr = &mut requests[index];
            requests[index - 1].next = next;
        }
        let Some(first) = requests.first_mut() else { return Ok(()) };
        // SAFETY: a list whose entries live until the call returns; memory as the caller promised.
        check("post", unsafe { ffi::post_send(self.qp, first, &mut null_mut()) })
    }

    /// Posts a receive without memory, for one [`Work::Wake`] of the other side.
    pub fn post_receive(&self, id: u64) -> Result<()> {
        let mut receive = ffi::RecvWr { wr_id: id, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
        // SAFETY: one request without memory.
        check("post receive", unsafe { ffi::post_recv(self.qp, &mut receive, &mut null_mut()) })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: made once and dropped once.
        unsafe { (self.device().library.ibv_destroy_qp)(self.qp) };
    }
}
