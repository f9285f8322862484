//! TLS 1.3 on a connection, by rustls: certificates and keys from PEM files, and what each side wants of the
//! other.

use std::path::Path;
use std::sync::Arc;

use kelix_types::{Error, ErrorKind, Result};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};

/// Plaintext that waits inside the TLS connection at most; the rest waits in the stream.
const BUFFER_BYTES: usize = 64 << 10;

fn refuse(what: String, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::InvalidArgument, "set up TLS", what).with_source(std::io::Error::other(source))
}

/// An error of a file: one that cannot be read is told from one that holds something else than `what`.
fn refuse_file(what: &str, path: &Path, source: pem::Error) -> Error {
    match source {
        pem::Error::Io(source) => {
            Error::system("set up TLS", format!("cannot read {}", path.display()), source)
        }
        source => refuse(format!("no {what} in {}", path.display()), source),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<std::result::Result<Vec<_>, _>>();
    let found = read().map_err(|source| refuse_file("certificates", path, source))?;
    if found.is_empty() {
        let context = format!("no certificates in {}; they are written in PEM", path.display());
        return Err(Error::new(ErrorKind::InvalidArgument, "set up TLS", context));
    }
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| refuse_file("private key", path, source))
}

fn roots(path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|source| refuse(format!("a certificate of {} is of no use", path.display()), source))?;
    }
    Ok(roots)
}

/// Files of one's own certificate, with those that lead to its issuer, and its key.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The certificates.
    pub certificates: &'a Path,
    /// The private key.
    pub key: &'a Path,
}

/// What a server needs for TLS.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    authenticates: bool,
}

impl ServerTls {
    /// A server with a certificate. With `clients`, a file of certificates, only clients whose own are issued
    /// by one of these may connect.
    pub fn load(own: Identity<'_>, clients: Option<&Path>) -> Result<ServerTls> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has TLS 1.3");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider)
                    .build()
                    .map_err(|source| refuse(format!("{} is of no use", path.display()), source))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config =
            builder.with_single_cert(certificates(own.certificates)?, key(own.key)?).map_err(|source| {
                refuse(
                    format!("{} does not go with {}", own.key.display(), own.certificates.display()),
                    source,
                )
            })?;
        Ok(ServerTls { config: Arc::new(config), authenticates: clients.is_some() })
    }

    /// Whether it takes only clients with certificates that it knows.
    pub fn authenticates(&self) -> bool {
        self.authenticates
    }

    pub(super) fn accept(&self) -> std::io::Result<Connection> {
        let mut connection = ServerConnection::new(self.config.clone()).map_err(std::io::Error::other)?;
        connection.set_buffer_limit(Some(BUFFER_BYTES));
        Ok(connection.into())
    }
}

/// Whether the other side has shown a certificate for a name.
pub(super) fn is_certified_for(connection: &Connection, name: &str) -> bool {
    let first = connection.peer_certificates().and_then(<[CertificateDer<'_>]>::first);
    let (Some(certificate), Ok(name)) = (first, ServerName::try_from(name)) else { return false };
    ParsedCertificate::try_from(certificate).is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
}

/// What a client needs for TLS.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// A client that trusts servers whose certificates are issued by one of those in the file `servers`, and
    /// shows its own if it has one.
    pub fn load(servers: &Path, own: Option<Identity<'_>>) -> Result<ClientTls> {
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has TLS 1.3")
            .with_root_certificates(roots(servers)?);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => builder
                .with_client_auth_cert(certificates(own.certificates)?, key(own.key)?)
                .map_err(|source| refuse(format!("{} is of no use", own.key.display()), source))?,
        };
        Ok(ClientTls(Arc::new(config)))
    }

    /// `host`: the name or address that the server's certificate must be for.
    pub(super) fn connect(&self, host: &str) -> Result<Connection> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_string())
            .map_err(|source| refuse(format!("\"{host}\" is no name of a host"), source))?;
        let mut connection = ClientConnection::new(self.0.clone(), name)
            .map_err(|source| refuse("TLS cannot be set up".into(), source))?;
        connection.set_buffer_limit(Some(BUFFER_BYTES));
        Ok(connection.into())
    }
}
