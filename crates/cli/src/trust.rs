//! Who is trusted over TCP: certificates and tokens, as options say.

use std::path::{Path, PathBuf};

use kelix::{ClientTls, Credentials, Identity};
use kelix_fabric::tcp::ServerTls;
use kelix_server::Token;

use crate::Failure;

/// Options about TLS, for both sides, and a client's token.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Trust, over TCP")]
pub(crate) struct TrustArgs {
    /// Certificates (PEM) that the other side's must be issued by; a client speaks TLS if this is given
    #[arg(long, global = true, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// This side's certificate (PEM), with those that lead to its issuer
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of this side's certificate (PEM)
    #[arg(long, global = true, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// A file with the word that the server knows this client by [default: $KELIX_TOKEN, if that is set]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|source| Failure::io("connect", format!("cannot read {}", path.display()), &source))
}

/// The words in a file, one a line, or a name and a word; empty lines and those that begin with # do not
/// count.
pub(crate) fn tokens(path: &Path) -> Result<Vec<Token>, Failure> {
    let text = read(path)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let token = |line: &str| {
        let (name, word) = line.split_once(char::is_whitespace).unwrap_or(("", line));
        Token { name: name.into(), word: word.trim_start().into() }
    };
    let tokens: Vec<Token> = lines.map(token).collect();
    if tokens.is_empty() {
        return Err(Failure::usage("connect", format!("there is no token in {}", path.display())));
    }
    Ok(tokens)
}

impl TrustArgs {
    fn identity(&self) -> Option<Identity<'_>> {
        let (certificates, key) = self.tls_cert.as_deref().zip(self.tls_key.as_deref())?;
        Some(Identity { certificates, key })
    }

    /// What a client says for itself.
    pub fn credentials(&self) -> Result<Credentials, Failure> {
        let token = match &self.token_file {
            Some(path) => tokens(path)?.into_iter().next().map(|token| token.word),
            None => std::env::var("KELIX_TOKEN").ok().filter(|token| !token.is_empty()),
        };
        let tls = self.tls_ca.as_deref().map(|ca| ClientTls::load(ca, self.identity())).transpose()?;
        if tls.is_none() && self.tls_cert.is_some() {
            let context = "--tls-cert without --tls-ca: say whose certificate the server must have";
            return Err(Failure::usage("connect", context.to_string()));
        }
        Ok(Credentials::default().token(token).tls(tls))
    }

    /// What a server shows and wants to see.
    pub fn server_tls(&self) -> Result<Option<ServerTls>, Failure> {
        match self.identity() {
            Some(own) => Ok(Some(ServerTls::load(own, self.tls_ca.as_deref())?)),
            None if self.tls_ca.is_some() => {
                let context =
                    "--tls-ca without --tls-cert and --tls-key: a server that speaks TLS has a certificate";
                Err(Failure::usage("serve", context.to_string()))
            }
            None => Ok(None),
        }
    }
}
