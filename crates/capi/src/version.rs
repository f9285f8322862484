//! Which release of the interface this is.

use std::ffi::c_char;

/// The version of the binary interface that this header describes. A program may compare it with kelix_abi().
pub const KELIX_ABI: u32 = 0;

/// The version of the binary interface of the library in use. With another one than KELIX_ABI nothing else
/// may be called.
#[unsafe(no_mangle)]
pub extern "C" fn kelix_abi() -> u32 {
    KELIX_ABI
}

/// The release of the library in use, as "0.1.0". It stays for ever.
#[unsafe(no_mangle)]
pub extern "C" fn kelix_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
