//! Who we are in TLS: a certificate and its key, where libpq has them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::tls::certificates;
use crate::problem::Problem;
use crate::source::cannot;

/// Files with a certificate and its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub certificates: PathBuf,
    pub key: PathBuf,
}

impl Identity {
    /// The certificate, with those that lead to its issuer, and the key.
    pub fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Problem> {
        Ok((certificates(&self.certificates)?, key(&self.key)?))
    }
}

/// A key that nobody else can read; of root's, a group may.
fn key(path: &Path) -> Result<PrivateKeyDer<'static>, Problem> {
    let metadata = path.metadata().map_err(|source| cannot("read", path, &source))?;
    let others = if metadata.uid() == 0 { 0o027 } else { 0o077 };
    if metadata.mode() & others != 0 {
        let path = path.display();
        return Err(Problem::Source(format!("the key {path} can be used by others, too: chmod 600 {path}")));
    }
    let bytes = std::fs::read(path).map_err(|source| cannot("read", path, &source))?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
        Problem::Source(format!("{} has no key in PEM, or one that wants a password", path.display()))
    })
}
