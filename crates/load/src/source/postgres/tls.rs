//! TLS to PostgreSQL, with rustls.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::client::TlsStream;

use super::binding::end_point;
use super::identity::Identity;
use crate::problem::Problem;
use crate::source::cannot;

/// Whose certificate is good enough.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trust {
    /// Anybody's: what is said is hidden, and that is all.
    Anybody,
    /// One that was issued by somebody in this file.
    Issuer(PathBuf),
    /// The same, and it is for the host that was asked for.
    IssuerAndHost(PathBuf),
}

/// Makes connections of the driver's TLS.
#[derive(Clone)]
pub(super) struct Connector {
    config: Arc<ClientConfig>,
}

impl Connector {
    pub fn new(trust: &Trust, identity: Option<&Identity>) -> Result<Connector, Problem> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Verifier::new(trust, &provider)?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                let (certificates, key) = identity.read()?;
                config.with_client_auth_cert(certificates, key).map_err(|error| {
                    let Identity { certificates, key } = identity;
                    let (certificates, key) = (certificates.display(), key.display());
                    Problem::Source(format!("{certificates} with {key} cannot be used: {error}"))
                })?
            }
        };
        Ok(Connector { config: Arc::new(config) })
    }
}

/// Judges certificates as libpq does.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// Certificates that are trusted, and who judges by them.
    trusted: Option<(Vec<CertificateDer<'static>>, Arc<WebPkiServerVerifier>)>,
    names_count: bool,
}

impl Verifier {
    fn new(trust: &Trust, provider: &Arc<CryptoProvider>) -> Result<Verifier, Problem> {
        let (path, names_count) = match trust {
            Trust::Anybody => {
                return Ok(Verifier { provider: provider.clone(), trusted: None, names_count: false });
            }
            Trust::Issuer(path) => (path, false),
            Trust::IssuerAndHost(path) => (path, true),
        };
        let certificates = certificates(path)?;
        let unfit = |error: &dyn std::fmt::Display| {
            Problem::Source(format!("the certificates of {} cannot be used: {error}", path.display()))
        };
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone()).map_err(|error| unfit(&error))?;
        }
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let inner = inner.build().map_err(|error| unfit(&error))?;
        Ok(Verifier { provider: provider.clone(), trusted: Some((certificates, inner)), names_count })
    }
}

/// The certificates of a file.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let bytes = std::fs::read(path).map_err(|source| cannot("read", path, &source))?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(Problem::Source(format!("{} has no certificates in PEM", path.display()))),
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some((trusted, inner)) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        // A certificate that stands in the file itself needs no issuer.
        if trusted.contains(end_entity) {
            if self.names_count {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        match inner.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.names_count => Ok(ServerCertVerified::assertion()),
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A connector for one host.
pub(super) struct ToHost {
    connector: Connector,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Connector {
    type Stream = Encrypted<S>;
    type TlsConnect = ToHost;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<ToHost, Self::Error> {
        Ok(ToHost { connector: self.clone(), name: ServerName::try_from(domain)?.to_owned() })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for ToHost {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connector = tokio_rustls::TlsConnector::from(self.connector.config);
        Box::pin(async move {
            connector.connect(self.name, stream).await.map(|stream| Encrypted(Box::new(stream)))
        })
    }
}

/// An encrypted connection.
pub(super) struct Encrypted<S>(Box<TlsStream<S>>);

impl<S> Encrypted<S> {
    fn inner(self: Pin<&mut Self>) -> Pin<&mut TlsStream<S>>
    where
        S: Unpin,
    {
        Pin::new(&mut *self.get_mut().0)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let certificates = self.0.get_ref().1.peer_certificates();
        let binding = certificates.and_then(|certificates| end_point(certificates.first()?));
        binding.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.inner().poll_read(context, to)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.inner().poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(context)
    }
}
