//! Passwords that stand in files: one alone, or libpq's `~/.pgpass`.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::problem::Problem;
use crate::source::cannot;

/// What a password is for.
pub(super) struct Account<'a> {
    pub host: &'a str,
    pub port: u16,
    pub database: &'a str,
    pub user: &'a str,
}

/// The password in a file that has nothing else.
pub(super) fn from_file(path: &Path) -> Result<String, Problem> {
    let text = std::fs::read_to_string(path).map_err(|source| cannot("read", path, &source))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_string()),
        _ => Err(Problem::Source(format!("{} has no password in its first line", path.display()))),
    }
}

/// Where libpq looks.
pub(super) fn usual_file() -> Option<PathBuf> {
    let set = std::env::var_os("PGPASSFILE").map(PathBuf::from);
    set.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pgpass")))
}

/// The password of an account in libpq's file; and if that is not looked at, why.
pub(super) fn from_usual_file(path: &Path, account: &Account<'_>) -> Result<Option<String>, String> {
    let Ok(mut file) = File::open(path) else { return Ok(None) };
    let Ok(metadata) = file.metadata() else { return Ok(None) };
    if !metadata.is_file() {
        return Ok(None);
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        let path = path.display();
        return Err(format!("{path} was not looked at, because others can read it: chmod 600 {path}"));
    }
    let mut text = String::new();
    if file.read_to_string(&mut text).is_err() {
        return Ok(None);
    }
    Ok(text.lines().find_map(|line| of_line(line, account)))
}

/// The password of a line `host:port:database:user:password`, if it is for this account.
fn of_line(line: &str, account: &Account<'_>) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let port = account.port.to_string();
    let mut rest = line;
    for wanted in [account.host, &port, account.database, account.user] {
        let (field, behind) = field(rest)?;
        let everything = rest.len() - behind.len() == 2 && field == "*";
        if !everything && field != wanted {
            return None;
        }
        rest = behind;
    }
    let password = field(rest).map_or_else(|| unescaped(rest), |(password, _)| password);
    Some(password)
}

/// The text before the next colon, and what is behind that. A backslash takes the next character as it is.
fn field(text: &str) -> Option<(String, &str)> {
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ':' => return Some((unescaped(&text[..at]), &text[at + 1..])),
            _ => {}
        }
    }
    None
}

fn unescaped(text: &str) -> String {
    let mut characters = text.chars();
    let mut plain = String::new();
    while let Some(character) = characters.next() {
        plain.push(if character == '\\' { characters.next().unwrap_or('\\') } else { character });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: Account<'static> =
        Account { host: "db.example", port: 5432, database: "shop", user: "ada" };

    #[test]
    fn a_line_is_for_an_account_or_not() {
        let password = |line: &str| of_line(line, &ACCOUNT);
        assert_eq!(password("db.example:5432:shop:ada:secret").as_deref(), Some("secret"));
        assert_eq!(password("*:*:*:*:a\\:b\\\\c").as_deref(), Some("a:b\\c"));
        assert_eq!(password("*:*:*:ada:secret:rest").as_deref(), Some("secret"));
        for other in
            ["# *:*:*:*:x", "db:5432:shop:ada:x", "*:1:*:*:x", "*:*:*:bob:x", "*:*:*", "", "\\*:*:*:*:x"]
        {
            assert_eq!(password(other), None, "{other}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_not_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pgpass");
        std::fs::write(&path, "*:*:*:bob:one\n*:*:*:ada:two\n").unwrap();
        let read = || from_usual_file(&path, &ACCOUNT);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(read(), Ok(Some("two".into())));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(read().unwrap_err().contains("chmod 600"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(), Ok(None));
    }
}
