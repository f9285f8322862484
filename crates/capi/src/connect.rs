//! Clients: where the server is, and the way to sessions.

use std::ffi::{OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use kelix::{Address, Client, ClientTls, ConnectOptions, Credentials, Identity};

use crate::call::alone;
use crate::error::{Failure, KELIX_OK, Result};
use crate::handle::{Opaque, free, make};
use crate::memory::{Place, kelix_bytes};
use crate::structs::{Passed, passed};

/// A server's clients in this process. Made by kelix_connect(), used by any number of threads at once.
pub struct kelix_client {
    _private: [u8; 0],
}

impl Opaque for kelix_client {
    type State = Client;
    const MAGIC: u64 = u64::from_le_bytes(*b"kxclient");
    const NAME: &'static str = "client";
}

/// How to connect. What is zero has its default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_options {
    /// sizeof(kelix_options).
    pub size: usize,
    /// The server's run directory, or HOST:PORT. Default: the run directory that servers use when none is
    /// named ($KELIX_DIR, else $XDG_RUNTIME_DIR/kelix, else /tmp/kelix-UID).
    pub address: kelix_bytes,
    /// The namespace. Default: the one without a name.
    pub name_space: kelix_bytes,
    /// A word that the server knows, over TCP.
    pub token: kelix_bytes,
    /// A file with certificates, in PEM: speak TLS over TCP, with servers whose certificates these vouch for.
    pub tls_ca: kelix_bytes,
    /// Files with a certificate of one's own and its key, in PEM, for servers that ask for one. Both or none.
    pub tls_cert: kelix_bytes,
    /// See tls_cert.
    pub tls_key: kelix_bytes,
    /// How long the server may take to answer. Default: 900 ms.
    pub timeout_ns: u64,
    /// For how long to try again where no server is. Default: not at all.
    pub retry_ns: u64,
}

// SAFETY: addresses and numbers, the size first.
unsafe impl Passed for kelix_options {}

/// A path, of any bytes.
fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl kelix_options {
    /// # Safety
    ///
    /// The promises of the crate.
    unsafe fn address(&self) -> Result<Address> {
        if self.address.is_empty() {
            return Ok(Address::Directory(Client::default_directory()));
        }
        // SAFETY: the promises.
        let address = unsafe { self.address.get("address") }?;
        match std::str::from_utf8(address) {
            Ok(text) => Ok(text.parse()?),
            Err(_) => Ok(Address::from(path(address))),
        }
    }

    /// # Safety
    ///
    /// The promises of the crate.
    unsafe fn credentials(&self) -> Result<Credentials> {
        let mut credentials = Credentials::default();
        // SAFETY: the promises.
        let (name_space, token) = unsafe { (self.name_space.text("name_space")?, self.token.text("token")?) };
        credentials = credentials.namespace(name_space);
        if !token.is_empty() {
            credentials = credentials.token(token.to_string());
        }
        // SAFETY: the promises.
        let [ca, cert, key] = unsafe {
            [self.tls_ca.get("tls_ca")?, self.tls_cert.get("tls_cert")?, self.tls_key.get("tls_key")?]
        };
        if cert.is_empty() != key.is_empty() || ca.is_empty() && !cert.is_empty() {
            let context = "tls_cert and tls_key go together, and with tls_ca";
            return Err(Failure::argument(context));
        }
        if !ca.is_empty() {
            let own = Identity { certificates: path(cert), key: path(key) };
            let own = Some(own).filter(|_| !cert.is_empty());
            credentials = credentials.tls(ClientTls::load(path(ca), own)?);
        }
        Ok(credentials)
    }

    fn patience(&self) -> ConnectOptions {
        let options = ConnectOptions::default().retry_for(Duration::from_nanos(self.retry_ns));
        match self.timeout_ns {
            0 => options,
            ns => options.timeout(Duration::from_nanos(ns)),
        }
    }
}

/// Finds the server, and makes a client of it. `options` may be NULL: all defaults. On error the client is
/// NULL, and kelix_last_error(NULL) tells why: KELIX_UNAVAILABLE, KELIX_TIMED_OUT, KELIX_DENIED,
/// KELIX_INCOMPATIBLE, KELIX_INVALID_ARGUMENT, KELIX_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_connect(
    options: *const kelix_options,
    client: *mut *mut kelix_client,
) -> c_int {
    alone("kelix_connect", || {
        // SAFETY: the promises.
        unsafe {
            let mut place = Place::needed(client, "client")?;
            place.tell(std::ptr::null_mut());
            let options = passed(options, "options")?;
            let (address, credentials) = (options.address()?, options.credentials()?);
            place.tell(make(Client::connect_within(address, credentials, options.patience())?));
            Ok(KELIX_OK)
        }
    })
}

/// Frees a client. NULL is nothing. Sessions that it opened stay. No other thread may be using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_client_free(client: *mut kelix_client) {
    // SAFETY: the promises.
    unsafe { free(client) };
}
