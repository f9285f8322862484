//! Certificates for tests that need some and are no Rust: `kelix-test-certificates DIRECTORY HOST...` writes
//! `ca.pem`, and `host.pem` and `host.key` of hosts that it vouches for, which are names or addresses.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, hosts @ ..] = &arguments[..] else { panic!("see the source") };
    let write = |name: &str, text: String| {
        std::fs::write(Path::new(directory).join(name), text).expect("a directory to write to");
    };
    let (authority_key, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("a certificate");
    let params = CertificateParams::new(hosts.to_vec()).expect("a name or an address");
    let certificate = params.signed_by(&key, &authority, &authority_key).expect("a certificate");
    write("ca.pem", authority.pem());
    write("host.pem", certificate.pem());
    write("host.key", key.serialize_pem());
}
