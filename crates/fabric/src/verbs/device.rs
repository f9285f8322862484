//! Devices, protection domains and registered memory, each holding what it needs to exist.

use std::ffi::{CStr, c_int, c_void};
use std::io::{Error, Result};
use std::sync::Arc;

use kelix_image::Span;
use kelix_image::words::Words;

use super::ffi::constant::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, TRANSPORT_IWARP};
use super::ffi::{self, Libraries};

/// The last call of a library has failed: what it was to do, and why it could not.
pub(super) fn failed(what: &str) -> Error {
    let source = Error::last_os_error();
    Error::new(source.kind(), format!("cannot {what}: {source}"))
}

/// Calls that return an error number, or -1 and set it.
pub(super) fn check(what: &str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        -1 => Err(failed(what)),
        code => {
            let source = Error::from_raw_os_error(code);
            Err(Error::new(source.kind(), format!("cannot {what}: {source}")))
        }
    }
}

/// A name that the library gives.
///
/// # Safety
/// `text` is a string of the library's that stays.
pub(super) unsafe fn name(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as promised by the caller.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// An open device.
pub(super) struct Device {
    pub libraries: &'static Libraries,
    pub context: *mut ffi::Context,
    pub name: String,
    pub limits: ffi::DeviceAttr,
}

// SAFETY: the library's objects may be used from any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// The names of all devices.
    pub fn names() -> Result<Vec<String>> {
        Device::each(|libraries, device| {
            // SAFETY: a device of the list, whose name stays as long as it.
            Some(unsafe { name((libraries.ibv_get_device_name)(device)) })
        })
    }

    /// Opens the device of this name.
    pub fn open(wanted: &str) -> Result<Arc<Device>> {
        let opened = Device::each(|libraries, device| {
            // SAFETY: a device of the list.
            let name = unsafe { name((libraries.ibv_get_device_name)(device)) };
            (name == wanted).then(|| {
                // SAFETY: a device of the list.
                let context = unsafe { (libraries.ibv_open_device)(device) };
                if context.is_null() { Err(failed(&format!("open {wanted}"))) } else { Ok(context) }
            })
        })?;
        let missing = || Error::other(format!("there is no RDMA device {wanted}"));
        let context = opened.into_iter().next().ok_or_else(missing)??;
        let libraries = ffi::libraries().map_err(Error::other)?;
        // SAFETY: integers only, for which zero is a value; the library fills them in.
        let limits: ffi::DeviceAttr = unsafe { std::mem::zeroed() };
        let mut device = Device { libraries, context, name: wanted.into(), limits };
        // SAFETY: an open context and a structure of the right layout.
        check("query device", unsafe { (libraries.ibv_query_device)(context, &mut device.limits) })?;
        Ok(Arc::new(device))
    }

    fn each<T>(mut of: impl FnMut(&'static Libraries, *mut ffi::Device) -> Option<T>) -> Result<Vec<T>> {
        let libraries = ffi::libraries().map_err(Error::other)?;
        let mut count = 0;
        // SAFETY: the list is looked at as far as it goes, and freed once.
        unsafe {
            let list = (libraries.ibv_get_device_list)(&mut count);
            if list.is_null() {
                return Err(failed("list RDMA devices"));
            }
            let found = (0..count as usize).filter_map(|index| of(libraries, *list.add(index))).collect();
            (libraries.ibv_free_device_list)(list);
            Ok(found)
        }
    }

    /// The device's own name for the kind of network it is for.
    pub fn is_iwarp(&self) -> bool {
        // SAFETY: the device of an open context.
        unsafe { (*(*self.context).device).transport_type == TRANSPORT_IWARP }
    }

    /// What is known of a port.
    pub fn port(&self, number: u8) -> Result<ffi::PortAttr> {
        let mut port = ffi::PortAttr::default();
        // SAFETY: an open context and a structure of the right layout.
        let code = unsafe { (self.libraries.ibv_query_port)(self.context, number, &mut port) };
        check("query port", code)?;
        Ok(port)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if !self.libraries.is_own() {
            return;
        }
        // SAFETY: everything made from the device holds it, so nothing is left.
        unsafe { (self.libraries.ibv_close_device)(self.context) };
    }
}

/// A protection domain: what is registered in one can be reached by its queue pairs only.
pub(super) struct Domain {
    pub device: Arc<Device>,
    pub domain: *mut ffi::Opaque,
}

// SAFETY: as for a device.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    pub fn new(device: &Arc<Device>) -> Result<Arc<Domain>> {
        // SAFETY: an open context.
        let domain = unsafe { (device.libraries.ibv_alloc_pd)(device.context) };
        if domain.is_null() {
            return Err(failed("make a protection domain"));
        }
        Ok(Arc::new(Domain { device: device.clone(), domain }))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if !self.device.libraries.is_own() {
            return;
        }
        // SAFETY: regions and queue pairs hold it, so none is left.
        unsafe { (self.device.libraries.ibv_dealloc_pd)(self.domain) };
    }
}

/// A place in another side's registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remote {
    /// Virtual address there.
    pub address: u64,
    /// Its region's key.
    pub rkey: u32,
}

impl Remote {
    /// So many words further on.
    pub(super) fn word(self, index: usize) -> Remote {
        Remote { address: self.address.wrapping_add(index as u64 * 8), ..self }
    }
}

/// Who may do what with registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// The other side READs it.
    Readable,
    /// The other side WRITEs it.
    Writable,
    /// Words of READs land in it.
    Landing,
    /// WRITEs are sent from it.
    Source,
}

impl Access {
    fn flags(self, device: &Device) -> c_int {
        match self {
            Access::Readable => ACCESS_REMOTE_READ,
            Access::Writable => ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE,
            // On iWARP a READ is answered by what is a WRITE there.
            Access::Landing if device.is_iwarp() => ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE,
            Access::Landing => ACCESS_LOCAL_WRITE,
            Access::Source => 0,
        }
    }
}

/// A registered span.
pub struct Region {
    mr: *mut ffi::Mr,
    span: Span,
    domain: Arc<Domain>,
}

// SAFETY: as for a device.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Registers all of a span.
    pub(super) fn register(domain: &Arc<Domain>, span: Span, access: Access) -> Result<Region> {
        let (base, bytes) = (span.words().as_ptr() as *mut c_void, span.bytes());
        let flags = access.flags(&domain.device);
        // SAFETY: the span stays mapped as long as the region, which holds it; it is reached through `Words`
        // and by a device only, as a span wants it.
        let mr = unsafe { (domain.device.libraries.ibv_reg_mr)(domain.domain, base, bytes as usize, flags) };
        if mr.is_null() {
            let mut error = failed(&format!("register {bytes} bytes of memory"));
            if matches!(error.raw_os_error(), Some(12)) || error.kind() == std::io::ErrorKind::OutOfMemory {
                error =
                    Error::new(error.kind(), format!("{error}; see `ulimit -l`, the limit on locked memory"));
            }
            return Err(error);
        }
        Ok(Region { mr, span, domain: domain.clone() })
    }

    /// Zeroed memory of this side's own, registered.
    pub(super) fn private(domain: &Arc<Domain>, words: usize, access: Access) -> Result<Region> {
        let span = Span::try_private(words as u64 * 8).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Region::register(domain, span, access)
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
    pub(super) fn part(&self, first: usize, count: usize) -> ffi::Sge {
        let words = self.words().part(first, count);
        // SAFETY: the region exists.
        let lkey = unsafe { (*self.mr).lkey };
        ffi::Sge { addr: words.as_ptr().addr() as u64, length: (count * 8) as u32, lkey }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.domain.device.libraries.is_own() {
            return;
        }
        // SAFETY: registered once and dropped once. Work requests that still name it fail, here and there.
        unsafe { (self.domain.device.libraries.ibv_dereg_mr)(self.mr) };
    }
}
