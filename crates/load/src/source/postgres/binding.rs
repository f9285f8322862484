//! Channel binding: what ties a password to the TLS connection that it is proven on (RFC 5929,
//! `tls-server-end-point`).
//!
//! It is a hash of the server's certificate, by the hash function of the certificate's signature; SHA-256
//! stands in for the two that are older.

use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};

/// Signatures by their object identifiers: RSA, then ECDSA.
const SIGNATURES: [(&[u8], &Algorithm); 9] = [
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04", &SHA256),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05", &SHA256),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b", &SHA256),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c", &SHA384),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d", &SHA512),
    (b"\x2a\x86\x48\xce\x3d\x04\x01", &SHA256),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x02", &SHA256),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x03", &SHA384),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x04", &SHA512),
];

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 6;

/// What a connection to a server with this certificate is bound by. `None`: nobody has said how for
/// signatures of its kind.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (_, behind) = element(whole, SEQUENCE)?;
    let (algorithm, _) = element(behind, SEQUENCE)?;
    let (identifier, _) = element(algorithm, OBJECT_IDENTIFIER)?;
    let (_, hash) = SIGNATURES.iter().find(|(known, _)| *known == identifier)?;
    Some(digest(hash, certificate).as_ref().to_vec())
}

/// The content of an element of DER, and what is behind it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let [found, length, rest @ ..] = bytes else { return None };
    let (length, rest) = match *length {
        short @ 0..=127 => (usize::from(short), rest),
        long => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 127))?;
            (
                digits
                    .iter()
                    .try_fold(0usize, |sum, digit| sum.checked_mul(256)?.checked_add((*digit).into()))?,
                rest,
            )
        }
    };
    if *found == tag { rest.split_at_checked(length) } else { None }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

    use super::*;

    #[test]
    fn the_signature_says_which_hash() {
        for (algorithm, bytes) in
            [(&PKCS_ECDSA_P256_SHA256, Some(32)), (&PKCS_ECDSA_P384_SHA384, Some(48)), (&PKCS_ED25519, None)]
        {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let certificate =
                CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
            let der = certificate.der();
            assert_eq!(end_point(der).map(|binding| binding.len()), bytes);
            // What is cut off has none, and does no harm.
            (0..der.len().min(400)).for_each(|end| assert_eq!(end_point(&der[..end]), None));
        }
    }
}
