//! The options that can be set outside the command line, as the definitions of the command line have them.
//!
//! Nothing is written down twice: an option of `kelix serve`, or one that all commands have, is known to the
//! environment and to files by being defined.

use std::any::TypeId;
use std::net::SocketAddr;

use clap::{Arg, Command};

/// A section of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Section {
    /// What `kelix serve` takes.
    Serve,
    /// What the commands take that need a server.
    Client,
}

/// Options that are only said: those of all commands that are not about where the server is and who is
/// trusted, and the one by which a server starts another process, which is to begin with the same options.
const NOT_SET: [&str; 3] = ["config", "json", "background"];

/// Options of all commands that a server takes, too.
const OF_BOTH: [&str; 4] = ["dir", "tls-ca", "tls-cert", "tls-key"];

impl Section {
    pub const ALL: [Section; 2] = [Section::Serve, Section::Client];

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Section::Serve => "serve",
            Section::Client => "client",
        }
    }

    /// The section with this name.
    pub fn named(name: &str) -> Option<Section> {
        Section::ALL.into_iter().find(|section| section.name() == name)
    }

    /// The section that a command takes its options from. Some commands do without.
    pub fn of_command(name: &str) -> Option<Section> {
        match name {
            "serve" => Some(Section::Serve),
            "bench" | "config" | "demo" | "fabric" | "help" | "map" | "namespaces" | "plan" | "syntax" => {
                None
            }
            _ => Some(Section::Client),
        }
    }

    /// Its options.
    pub fn options(self, program: &Command) -> Vec<&Arg> {
        let is_set = |option: &&Arg| !NOT_SET.contains(&key(option));
        let common = program.get_arguments().filter(|option| option.is_global_set()).filter(is_set);
        match self {
            Section::Client => common.collect(),
            Section::Serve => {
                let serve = program.find_subcommand("serve").into_iter().flat_map(Command::get_arguments);
                let own = serve.filter(|option| !option.is_global_set() && option.get_long().is_some());
                let own = own.filter(|option| option.get_action().takes_values() || is_flag(option));
                let own = own.filter(is_set);
                common.filter(|option| OF_BOTH.contains(&key(option))).chain(own).collect()
            }
        }
    }
}

fn is_flag(option: &Arg) -> bool {
    matches!(option.get_action(), clap::ArgAction::SetTrue)
}

/// An option's name in the file.
pub(crate) fn key(option: &Arg) -> &str {
    option.get_long().unwrap_or_default()
}

/// The variable that sets an option.
pub(crate) fn variable(option: &Arg) -> String {
    format!("KELIX_{}", key(option).replace('-', "_").to_uppercase())
}

/// What a value of an option is in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Flag,
    /// A number.
    Number,
    /// A text.
    Text,
    /// A text, or a number where no unit or host is needed.
    TextOrNumber,
    /// A text, several of them, or `true` for none.
    Texts,
}

impl Kind {
    pub fn of(option: &Arg) -> Kind {
        let value = option.get_value_parser().type_id();
        if is_flag(option) {
            Kind::Flag
        } else if option.get_value_delimiter().is_some() {
            Kind::Texts
        } else if value == TypeId::of::<usize>() {
            Kind::Number
        } else if value == TypeId::of::<u64>() || value == TypeId::of::<SocketAddr>() {
            Kind::TextOrNumber
        } else {
            Kind::Text
        }
    }

    /// What it has to be, in words.
    pub fn wanted(self) -> &'static str {
        match self {
            Kind::Flag => "true or false",
            Kind::Number => "a number",
            Kind::Text => "a text",
            Kind::TextOrNumber => "a text or a number",
            Kind::Texts => "a text, an array of texts, or true",
        }
    }
}

/// What an option is if nobody sets it: the value, or words that stand for it; nothing if it is simply not
/// given.
pub(crate) enum Default {
    Value(String),
    Words(String),
    None,
}

impl Default {
    pub fn of(option: &Arg) -> Default {
        if is_flag(option) {
            return Default::Value("false".into());
        }
        if let [value] = option.get_default_values() {
            return Default::Value(value.to_string_lossy().into_owned());
        }
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        match help.split_once("[default: ").and_then(|(_, words)| words.split_once(']')) {
            Some((words, _)) => Default::Words(words.into()),
            None => Default::None,
        }
    }
}
