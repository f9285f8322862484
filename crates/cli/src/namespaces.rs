//! The file that says which namespaces a server has, and who may use them.

use std::collections::BTreeMap;
use std::path::Path;

use kelix_server::{NamespaceConfig, Rights, ServerConfig, Who};
use serde::Deserialize;

use crate::Failure;
use crate::config::line_of;
use crate::units::parse_size;

/// What `kelix help namespaces` tells.
pub(crate) const HELP: &str = "\
A namespace is a store of its own inside a server: it has its own memory,
tables and rights, and links stay inside it. Who may read a namespace can read
all memory of it and nothing of another. Every server has the namespace
`default`, which clients use that name none; everybody who is let in may read
and write it unless the file says otherwise.

  kelix serve --namespaces FILE         a server with those of FILE
  kelix --namespace people get t key    use one of them, or $KELIX_NAMESPACE

FILE is written in TOML:

  [people]
  memory = \"1G\"                         # most memory; needed
  cache = true                          # let items go when it is used up
  shards = 1                            # threads that write; 1 if left out
  readers = [\"anybody\"]
  writers = [\"user:loader\", \"token:nightly\"]

  [default]                             # only its rights; the rest is said by
  writers = [\"user:admin\"]              # --memory and --shards

Writers may also read. Nobody may who is not named, but the user that the
server runs as, on the Unix socket.

  anybody             everybody who is let in
  user:NAME           on the Unix socket, a user of the host (or user:1000)
  token:NAME          over TCP, who knows the token in a line `NAME WORD` of
                      the file that --tokens names
  certificate:HOST    over TCP, who shows a certificate for that name
                      (--tls-ca)
";

/// A section of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section, as in [people]")]
struct Section {
    memory: Option<String>,
    shards: Option<usize>,
    #[serde(default)]
    cache: bool,
    #[serde(default)]
    readers: Vec<String>,
    #[serde(default)]
    writers: Vec<String>,
}

/// The number of a user of this host.
fn user(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let number =
        found.filter(|fields| fields.first() == Some(&name)).find_map(|fields| fields.get(2)?.parse().ok());
    number.ok_or_else(|| format!("no user \"{name}\" in /etc/passwd; the number can be given instead"))
}

fn who(text: &str) -> Result<Who, String> {
    match text.split_once(':') {
        None if text == "anybody" => Ok(Who::Anybody),
        Some(("user", name)) => user(name).map(Who::User),
        Some(("token", name)) if !name.is_empty() => Ok(Who::Token(name.into())),
        Some(("certificate", name)) if !name.is_empty() => Ok(Who::Certificate(name.into())),
        _ => Err(format!("\"{text}\" is nobody: anybody, user:NAME, token:NAME or certificate:HOST")),
    }
}

fn parse(text: &str, config: &mut ServerConfig) -> Result<(), String> {
    let sections: BTreeMap<String, Section> = toml::from_str(text).map_err(|error| {
        let line = line_of(text, &error.span().unwrap_or(0..0));
        format!("line {line}: {}", error.message())
    })?;
    for (name, section) in sections {
        let list =
            |texts: &[String]| texts.iter().map(|text| who(text)).collect::<Result<Vec<Who>, String>>();
        let wrong = |what: String| format!("[{name}]: {what}");
        let rights = Rights {
            readers: list(&section.readers).map_err(wrong)?,
            writers: list(&section.writers).map_err(wrong)?,
        };
        for who in rights.readers.iter().chain(&rights.writers) {
            if let Who::Token(token) = who {
                if !config.tokens.iter().any(|known| known.name == *token) {
                    return Err(wrong(format!("no token is called \"{token}\" in the file of --tokens")));
                }
            }
        }
        if name == "default" {
            if section.memory.is_some() || section.shards.is_some() || section.cache {
                return Err(wrong(
                    "memory, shards and cache of it are said by --memory, --shards and --cache".into(),
                ));
            }
            config.rights = rights;
            continue;
        }
        let memory =
            section.memory.as_deref().ok_or_else(|| wrong("it needs memory, as in \"1G\"".into()))?;
        let memory_bytes = parse_size(memory).map_err(wrong)?;
        let shards = section.shards.unwrap_or(1);
        config.namespaces.push(NamespaceConfig { name, shards, memory_bytes, cache: section.cache, rights });
    }
    Ok(())
}

/// Reads the file into what is to be served.
pub(crate) fn read(path: &Path, config: &mut ServerConfig) -> Result<(), Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Failure::io("serve", format!("cannot read {}", path.display()), &source))?;
    parse(&text, config).map_err(|what| Failure::usage("serve", format!("{}, {what}", path.display())))
}

#[cfg(test)]
mod tests {
    use kelix_server::Token;

    use super::*;

    fn parsed(text: &str) -> Result<ServerConfig, String> {
        let tokens = vec![Token { name: "nightly".into(), word: "w".into() }];
        let mut config = ServerConfig { tokens, ..ServerConfig::default() };
        parse(text, &mut config).map(|()| config)
    }

    #[test]
    fn the_example_of_the_help_is_read() {
        let lines = HELP.lines().skip_while(|line| !line.contains("[people]"));
        let lines = lines.take_while(|line| !line.starts_with("Writers"));
        let text = lines
            .collect::<Vec<_>>()
            .join("\n")
            .replace("user:loader", "user:7")
            .replace("user:admin", "user:root");
        let config = parsed(&text).unwrap();
        assert_eq!(config.rights, Rights { readers: vec![], writers: vec![Who::User(0)] });
        let people = NamespaceConfig {
            name: "people".into(),
            shards: 1,
            memory_bytes: 1 << 30,
            cache: true,
            rights: Rights {
                readers: vec![Who::Anybody],
                writers: vec![Who::User(7), Who::Token("nightly".into())],
            },
        };
        assert_eq!(config.namespaces, [people]);
    }

    #[test]
    fn slips_are_named() {
        for (text, wanted) in [
            ("[people]\nreaders = [\"anybody\"]", "needs memory"),
            ("[people]\nmemory = \"1G\"\nwriters = [\"everybody\"]", "\"everybody\" is nobody"),
            ("[people]\nmemory = \"1G\"\nwriters = [\"token:none\"]", "no token is called \"none\""),
            ("[people]\nmemory = \"1G\"\nwriters = [\"user:nobody-of-that-name\"]", "no user"),
            ("[people]\nmemory = \"1G\"\nreader = []", "reader"),
            ("[people]\nmemory = \"much\"", "much"),
            ("[default]\nmemory = \"1G\"", "--memory"),
            ("people = 3", "people"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
