//! What Tab completes, and what is shown behind the cursor.

use std::borrow::Cow;

use clap::{Command, CommandFactory};
use kelix::{Attribute, Item, Session};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hint, Hinter, HistoryHinter};
use rustyline::validate::Validator;
use rustyline::{Context as Typed, Helper};

use super::line::Line;
use super::words::{self, Unfinished, Wanted};
use crate::context::Context;

/// Completes lines by the definitions of the commands, and by what is in the store.
pub(super) struct Assistant {
    commands: Command,
    context: Context,
    colours: bool,
}

impl Assistant {
    pub fn new(context: Context) -> Assistant {
        let mut commands = Line::command();
        commands.build();
        Assistant { commands, context, colours: std::env::var_os("NO_COLOR").is_none() }
    }

    /// Goes to another namespace.
    pub fn follow(&mut self, context: &Context) {
        self.context = context.clone();
    }

    /// What the last word can be, whole.
    fn candidates(&self, found: &Unfinished<'_>, last: &str) -> Vec<String> {
        let command = found.command;
        let all: Vec<String> = match &found.wanted {
            None => Vec::new(),
            Some(Wanted::Command) => {
                let names = command.get_subcommands().filter(|command| !command.is_hide_set());
                names.map(|command| command.get_name().to_string() + " ").collect()
            }
            Some(Wanted::Option) => {
                let shown = command.get_arguments().filter(|option| !option.is_hide_set());
                shown.filter_map(|option| Some(format!("--{} ", option.get_long()?))).collect()
            }
            Some(Wanted::Value(argument)) => match argument.get_id().as_str() {
                "table" => quoted(self.tables(), " "),
                "link" => self.targets(last),
                "path" if !argument.is_positional() => possible(argument),
                "path" | "links" => quoted(self.links(&found.arguments, last), ""),
                _ => possible(argument),
            },
        };
        // What needs quotes is typed without them first.
        all.into_iter().filter(|candidate| candidate.replace('\'', "").starts_with(last)).collect()
    }

    /// The tables' names. Of a server that does not answer there are none, which is said by the next command.
    fn tables(&self) -> Vec<String> {
        self.context.session().ok().and_then(|mut session| session.tables().ok()).unwrap_or_default()
    }

    /// Tables that the link `NAME=...` may lead to.
    fn targets(&self, last: &str) -> Vec<String> {
        let Some((name, target)) = last.split_once('=') else { return Vec::new() };
        if target.contains('/') {
            return Vec::new();
        }
        quoted(self.tables(), "/").into_iter().map(|table| format!("{name}={table}")).collect()
    }

    /// The links of the item that the arguments and the path so far lead to.
    fn links(&self, arguments: &[String], path: &str) -> Vec<String> {
        let Ok(mut session) = self.context.session() else { return Vec::new() };
        let (way, _) = path.rsplit_once('.').unwrap_or_default();
        let item = item_at(&mut session, arguments, way);
        let before = if way.is_empty() { String::new() } else { format!("{way}.") };
        let mut links: Vec<String> = Vec::new();
        for (name, attribute) in item.iter().flat_map(Item::attributes) {
            let link = format!("{before}{name}");
            if matches!(attribute, Attribute::Link(_)) && !links.contains(&link) {
                links.push(link);
            }
        }
        links
    }
}

fn item_at(session: &mut Session, arguments: &[String], way: &str) -> Option<Item> {
    let [table, key, ..] = arguments else { return None };
    let table = session.table(table).ok()?;
    let key = key.parse::<crate::bytes::KeyArgument>().ok()?.of(table.kind()).ok()?;
    let mut item = session.get(table, &key).ok()??;
    for name in way.split('.').filter(|name| !name.is_empty()) {
        item = session.follow(&item, name).ok()??;
    }
    Some(item)
}

fn possible(argument: &clap::Arg) -> Vec<String> {
    argument.get_possible_values().iter().map(|value| value.get_name().to_string() + " ").collect()
}

/// Names as they are typed, each with what follows it.
fn quoted(names: Vec<String>, end: &str) -> Vec<String> {
    names.iter().filter_map(|name| Some(format!("{}{end}", shlex::try_quote(name).ok()?))).collect()
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(&self, line: &str, end: usize, _: &Typed<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let Some(found) = words::look(&self.commands, &line[..end]) else { return Ok((end, Vec::new())) };
        let candidates = self.candidates(&found, &line[found.start..end]).into_iter();
        let pair = |replacement: String| Pair { display: replacement.trim_end().to_string(), replacement };
        Ok((found.start, candidates.map(pair).collect()))
    }
}

/// What is shown behind the cursor.
pub(super) enum Behind {
    /// The rest of a line that was typed before, which the right arrow takes.
    Before(String),
    /// What the command wants next.
    Wants(String),
}

impl Hint for Behind {
    fn display(&self) -> &str {
        match self {
            Behind::Before(text) | Behind::Wants(text) => text,
        }
    }

    fn completion(&self) -> Option<&str> {
        match self {
            Behind::Before(text) => Some(text),
            Behind::Wants(_) => None,
        }
    }
}

impl Hinter for Assistant {
    type Hint = Behind;

    fn hint(&self, line: &str, end: usize, typed: &Typed<'_>) -> Option<Behind> {
        if let Some(rest) = HistoryHinter::new().hint(line, end, typed) {
            return Some(Behind::Before(rest));
        }
        if end < line.len() || !line.ends_with(' ') {
            return None;
        }
        let found = words::look(&self.commands, line)?;
        let name = |argument: &clap::Arg| {
            let names = argument.get_value_names().unwrap_or_default();
            names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ")
        };
        let wants = match found.wanted? {
            Wanted::Value(option) if !option.is_positional() => name(option),
            Wanted::Value(next) => {
                let rest =
                    words::arguments(found.command).skip_while(|argument| argument.get_id() != next.get_id());
                rest.map(name).collect::<Vec<_>>().join(" ")
            }
            Wanted::Command | Wanted::Option => return None,
        };
        Some(Behind::Wants(wants))
    }
}

impl Highlighter for Assistant {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        if self.colours { format!("\x1b[90m{hint}\x1b[0m").into() } else { hint.into() }
    }
}

impl Validator for Assistant {}

impl Helper for Assistant {}
