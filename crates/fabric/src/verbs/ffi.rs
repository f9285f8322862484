//! The structures and functions of libibverbs and librdmacm that are used, written by hand.
//!
//! No header, no libclang and no rdma-core is needed to build: the libraries are loaded when they are wanted
//! first. Their interface has two halves. Set-up calls are exported functions. The data path
//! (`ibv_post_send`, `ibv_poll_cq`, `ibv_req_notify_cq`) is inline functions of the header that call through
//! a table in the context, so the layout of that table is part of the binary interface. `layout.c` has a C
//! compiler compare the sizes and offsets asserted here with those of the libraries' headers
//! (`scripts/verbs-layout`).

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};
use std::sync::OnceLock;

use libloading::Library;

/// A structure that only the library looks into.
pub type Opaque = c_void;

/// `struct ibv_context`, as far as the data path's table.
#[repr(C)]
pub struct Context {
    /// The device that is open.
    pub device: *mut Device,
    unused_0: [usize; 11],
    poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    unused_13: [usize; 12],
    post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
}

/// `struct ibv_mr`.
#[repr(C)]
pub struct Mr {
    context: *mut Context,
    pd: *mut Opaque,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    /// Key for work requests of this side.
    pub lkey: u32,
    /// Key for work requests of the other side.
    pub rkey: u32,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub struct Channel {
    context: *mut Context,
    /// Becomes readable when an armed completion queue has news.
    pub fd: c_int,
    refcnt: c_int,
}

/// The beginning of `struct ibv_cq`.
#[repr(C)]
pub struct Cq {
    context: *mut Context,
}

/// The beginning of `struct ibv_qp`.
#[repr(C)]
pub struct Qp {
    context: *mut Context,
    unused: [usize; 5],
    handle: u32,
    /// Its number, which the other side addresses it by.
    pub qp_num: u32,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs, reason = "the library's names")]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
#[allow(missing_docs, reason = "the library's names")]
pub struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Opaque,
    pub cap: QpCap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

/// `union ibv_gid`: its eight-byte alignment is part of the layout.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Gid(pub [u8; 16]);

/// `struct ibv_ah_attr`, with its `struct ibv_global_route` inside.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(missing_docs, reason = "the library's names")]
pub struct AhAttr {
    pub dgid: Gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(missing_docs, reason = "the library's names")]
pub struct QpAttr {
    pub qp_state: c_int,
    pub cur_qp_state: c_int,
    pub path_mtu: c_int,
    pub path_mig_state: c_int,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(missing_docs, reason = "the library's names")]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `struct ibv_send_wr`, its unions as far as READ and WRITE use them.
#[repr(C)]
#[allow(missing_docs, reason = "the library's names")]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: c_uint,
    pub imm_data: u32,
    pub remote_addr: u64,
    pub rkey: u32,
    pub unused: [u64; 9],
}

/// `struct ibv_recv_wr`.
#[repr(C)]
#[allow(missing_docs, reason = "the library's names")]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs, reason = "the library's names")]
pub struct Wc {
    pub wr_id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// `struct ibv_device_attr`, as far as it is looked at; the rest is room.
#[repr(C)]
#[allow(missing_docs, reason = "the library's names")]
pub struct DeviceAttr {
    pub fw_ver: [u8; 64],
    pub guids: [u64; 2],
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor: [u32; 3],
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub rest: [u32; 16],
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// `struct ibv_port_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs, reason = "the library's names")]
pub struct PortAttr {
    pub state: c_int,
    pub max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub rest: [u32; 7],
}

/// The beginning of `struct ibv_device`.
#[repr(C)]
pub struct Device {
    unused: [usize; 2],
    node_type: c_int,
    /// InfiniBand and RoCE, or iWARP.
    pub transport_type: c_int,
}

/// `struct rdma_event_channel`.
#[repr(C)]
pub struct CmChannel {
    /// Becomes readable when there is an event.
    pub fd: c_int,
}

/// The beginning of `struct rdma_cm_id`.
#[repr(C)]
pub struct CmId {
    /// The device that it belongs to, once that is known.
    pub verbs: *mut Context,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "the library's names")]
pub struct ConnParam {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// `struct rdma_cm_event`, its union as far as connections use it.
#[repr(C)]
#[allow(missing_docs, reason = "the library's names")]
pub struct CmEvent {
    pub id: *mut CmId,
    pub listen_id: *mut CmId,
    pub event: c_int,
    pub status: c_int,
    pub conn: ConnParam,
}

const _: () = {
    assert!(offset_of!(Context, poll_cq) == 96 && offset_of!(Context, req_notify_cq) == 104);
    assert!(offset_of!(Context, post_send) == 208 && offset_of!(Context, post_recv) == 216);
    assert!(offset_of!(Mr, lkey) == 36 && offset_of!(Mr, rkey) == 40 && size_of::<Mr>() == 48);
    assert!(offset_of!(Channel, fd) == 8 && offset_of!(Qp, qp_num) == 52);
    assert!(size_of::<QpInitAttr>() == 64 && offset_of!(QpInitAttr, qp_type) == 52);
    assert!(size_of::<AhAttr>() == 32 && offset_of!(AhAttr, port_num) == 30);
    assert!(size_of::<QpAttr>() == 144 && offset_of!(QpAttr, ah_attr) == 56);
    assert!(offset_of!(QpAttr, timeout) == 130 && offset_of!(QpAttr, rate_limit) == 136);
    assert!(size_of::<SendWr>() == 128 && offset_of!(SendWr, remote_addr) == 40);
    assert!(offset_of!(SendWr, rkey) == 48 && size_of::<RecvWr>() == 32 && size_of::<Sge>() == 16);
    assert!(size_of::<Wc>() == 48 && offset_of!(Wc, status) == 8 && offset_of!(Wc, wc_flags) == 36);
    assert!(size_of::<DeviceAttr>() == 232 && offset_of!(DeviceAttr, max_qp_rd_atom) == 144);
    assert!(offset_of!(PortAttr, max_msg_sz) == 20 && size_of::<PortAttr>() == 52);
    assert!(offset_of!(Device, transport_type) == 20);
    assert!(offset_of!(DeviceAttr, phys_port_cnt) == 227);
    assert!(size_of::<ConnParam>() == 24 && offset_of!(ConnParam, qp_num) == 16);
    assert!(offset_of!(CmEvent, event) == 16 && offset_of!(CmEvent, conn) == 24);
};

/// Constants, under the libraries' names without their prefix.
#[allow(missing_docs, reason = "the libraries' names")]
pub mod constant {
    use std::ffi::{c_int, c_uint};
    pub const QPT_RC: c_int = 2;
    pub const QPS_INIT: c_int = 1;
    pub const QPS_RTR: c_int = 2;
    pub const QPS_RTS: c_int = 3;
    pub const QPS_ERR: c_int = 6;
    pub const QP_STATE: c_int = 1;
    pub const QP_ACCESS_FLAGS: c_int = 1 << 3;
    pub const QP_TIMEOUT: c_int = 1 << 9;
    pub const QP_RETRY_CNT: c_int = 1 << 10;
    pub const QP_RNR_RETRY: c_int = 1 << 11;
    pub const ACCESS_LOCAL_WRITE: c_int = 1;
    pub const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
    pub const ACCESS_REMOTE_READ: c_int = 1 << 2;
    pub const WR_RDMA_WRITE: c_int = 0;
    pub const WR_RDMA_WRITE_WITH_IMM: c_int = 1;
    pub const WR_SEND: c_int = 2;
    pub const WR_RDMA_READ: c_int = 4;
    pub const SEND_SIGNALED: c_uint = 1 << 1;
    pub const SEND_INLINE: c_uint = 1 << 3;
    pub const WC_WITH_IMM: c_uint = 1 << 1;
    pub const TRANSPORT_IWARP: c_int = 1;
    pub const PORT_ACTIVE: c_int = 4;
    pub const PS_TCP: c_int = 0x106;
    pub const EVENT_ADDR_RESOLVED: c_int = 0;
    pub const EVENT_ROUTE_RESOLVED: c_int = 2;
    pub const EVENT_CONNECT_REQUEST: c_int = 4;
    pub const EVENT_CONNECT_RESPONSE: c_int = 5;
    pub const EVENT_REJECTED: c_int = 8;
    pub const EVENT_ESTABLISHED: c_int = 9;
    pub const EVENT_DISCONNECTED: c_int = 10;
    pub const EVENT_DEVICE_REMOVAL: c_int = 11;
}

/// Finds an exported function.
///
/// # Safety
/// `F` is a pointer to a function, with the signature of the one of this name.
unsafe fn function<F: Copy>(library: &'static Library, file: &str, name: &str) -> Result<F, String> {
    // SAFETY: as promised by the caller.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|found| *found).map_err(|_| format!("{file} has no {name}: rdma-core is too old"))
}

/// Opens a library for as long as the process lives.
fn open(file: &str) -> Result<&'static Library, String> {
    // SAFETY: what the distribution's rdma-core does when it is loaded is harmless.
    let library = unsafe { Library::new(file) };
    let library = library.map_err(|_| format!("{file} is not installed; it is part of rdma-core"))?;
    Ok(Box::leak(Box::new(library)))
}

macro_rules! libraries {
    ($($file:literal: { $($name:ident: fn($($argument:ty),*) -> $result:ty;)* })*) => {
        /// The functions that the libraries export.
        #[allow(missing_docs, reason = "the libraries' names")]
        pub struct Libraries {
            /// The process that loaded them. What they make is of no use to a child, but can be taken from
            /// the parent there.
            process: u32,
            $($(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*)*
        }

        impl Libraries {
            fn load() -> Result<Libraries, String> {
                $(let library = open($file)?;
                // SAFETY: the signatures are those of the header.
                $(let $name = unsafe { function(library, $file, stringify!($name))? };)*)*
                Ok(Libraries { process: std::process::id(), $($($name,)*)* })
            }

            /// Whether this is the process that loaded them.
            pub fn is_own(&self) -> bool {
                self.process == std::process::id()
            }
        }
    };
}

libraries! {
    "libibverbs.so.1": {
        ibv_get_device_list: fn(*mut c_int) -> *mut *mut Device;
        ibv_free_device_list: fn(*mut *mut Device) -> ();
        ibv_get_device_name: fn(*mut Device) -> *const c_char;
        ibv_open_device: fn(*mut Device) -> *mut Context;
        ibv_close_device: fn(*mut Context) -> c_int;
        ibv_query_device: fn(*mut Context, *mut DeviceAttr) -> c_int;
        ibv_query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int;
        ibv_alloc_pd: fn(*mut Context) -> *mut Opaque;
        ibv_dealloc_pd: fn(*mut Opaque) -> c_int;
        ibv_reg_mr: fn(*mut Opaque, *mut c_void, usize, c_int) -> *mut Mr;
        ibv_dereg_mr: fn(*mut Mr) -> c_int;
        ibv_create_comp_channel: fn(*mut Context) -> *mut Channel;
        ibv_destroy_comp_channel: fn(*mut Channel) -> c_int;
        ibv_create_cq: fn(*mut Context, c_int, *mut c_void, *mut Channel, c_int) -> *mut Cq;
        ibv_destroy_cq: fn(*mut Cq) -> c_int;
        ibv_get_cq_event: fn(*mut Channel, *mut *mut Cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events: fn(*mut Cq, c_uint) -> ();
        ibv_create_qp: fn(*mut Opaque, *mut QpInitAttr) -> *mut Qp;
        ibv_modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
        ibv_destroy_qp: fn(*mut Qp) -> c_int;
    }
    "librdmacm.so.1": {
        rdma_create_event_channel: fn() -> *mut CmChannel;
        rdma_destroy_event_channel: fn(*mut CmChannel) -> ();
        rdma_create_id: fn(*mut CmChannel, *mut *mut CmId, *mut c_void, c_int) -> c_int;
        rdma_destroy_id: fn(*mut CmId) -> c_int;
        rdma_bind_addr: fn(*mut CmId, *mut c_void) -> c_int;
        rdma_listen: fn(*mut CmId, c_int) -> c_int;
        rdma_resolve_addr: fn(*mut CmId, *mut c_void, *mut c_void, c_int) -> c_int;
        rdma_resolve_route: fn(*mut CmId, c_int) -> c_int;
        rdma_connect: fn(*mut CmId, *mut ConnParam) -> c_int;
        rdma_accept: fn(*mut CmId, *mut ConnParam) -> c_int;
        rdma_reject: fn(*mut CmId, *const c_void, u8) -> c_int;
        rdma_establish: fn(*mut CmId) -> c_int;
        rdma_disconnect: fn(*mut CmId) -> c_int;
        rdma_get_cm_event: fn(*mut CmChannel, *mut *mut CmEvent) -> c_int;
        rdma_ack_cm_event: fn(*mut CmEvent) -> c_int;
        rdma_init_qp_attr: fn(*mut CmId, *mut QpAttr, *mut c_int) -> c_int;
        rdma_event_str: fn(c_int) -> *const c_char;
    }
}

/// The libraries, loaded at the first call.
pub fn libraries() -> Result<&'static Libraries, String> {
    static LIBRARIES: OnceLock<Result<Libraries, String>> = OnceLock::new();
    let libraries = LIBRARIES.get_or_init(Libraries::load).as_ref().map_err(Clone::clone)?;
    match libraries.is_own() {
        true => Ok(libraries),
        false => Err("the process that forked this one uses RDMA, and a child cannot".into()),
    }
}

/// `ibv_post_send`.
///
/// # Safety
/// 1. The queue pair exists.
/// 2. The list of requests, its entries and their memory are as the library wants them. Memory that is not
///    inline stays registered until the completion.
pub unsafe fn post_send(qp: *mut Qp, wr: *mut SendWr, bad: &mut *mut SendWr) -> c_int {
    // SAFETY: as promised by the caller; the table belongs to the queue pair's context.
    unsafe { ((*(*qp).context).post_send)(qp, wr, bad) }
}

/// `ibv_post_recv`.
///
/// # Safety
/// As for [`post_send`].
pub unsafe fn post_recv(qp: *mut Qp, wr: *mut RecvWr, bad: &mut *mut RecvWr) -> c_int {
    // SAFETY: as promised by the caller.
    unsafe { ((*(*qp).context).post_recv)(qp, wr, bad) }
}

/// `ibv_poll_cq`.
///
/// # Safety
/// The completion queue exists.
pub unsafe fn poll_cq(cq: *mut Cq, into: &mut [Wc]) -> c_int {
    // SAFETY: as promised by the caller; the count is that of the slice.
    unsafe { ((*(*cq).context).poll_cq)(cq, into.len() as c_int, into.as_mut_ptr()) }
}

/// `ibv_req_notify_cq`, for any completion.
///
/// # Safety
/// The completion queue exists.
pub unsafe fn req_notify_cq(cq: *mut Cq) -> c_int {
    // SAFETY: as promised by the caller.
    unsafe { ((*(*cq).context).req_notify_cq)(cq, 0) }
}
