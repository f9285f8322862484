//! An unfinished line: what its last word may be, as the definitions of the commands say.

use clap::{Arg, Command};

/// What may stand before a command, because examples are written so.
pub(super) const PROGRAM: &str = "kelix";

/// What the last word may be.
pub(super) enum Wanted<'c> {
    /// A command of this one.
    Command,
    /// An option's name.
    Option,
    /// The value of an option, or an argument.
    Value(&'c Arg),
}

/// An unfinished line.
pub(super) struct Unfinished<'c> {
    /// The command, as far as it is known.
    pub command: &'c Command,
    /// Its arguments before the last word, without options.
    pub arguments: Vec<String>,
    /// What the last word may be; nothing where there can be no more.
    pub wanted: Option<Wanted<'c>>,
    /// Where the part of the last word begins that is to be completed.
    pub start: usize,
}

/// The arguments of a command, in their order.
pub(super) fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_positionals().filter(|argument| !argument.is_hide_set())
}

/// The argument that comes after so many. The last one may take more than one word.
fn argument_after(command: &Command, count: usize) -> Option<&Arg> {
    let many = |argument: &&Arg| argument.get_num_args().is_some_and(|range| range.max_values() > 1);
    arguments(command).nth(count).or_else(|| arguments(command).last().filter(many))
}

fn option<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|argument| argument.get_long() == Some(name))
}

fn takes_value(option: &&Arg) -> bool {
    option.get_action().takes_values()
}

/// Looks at a line up to the cursor. `None`: the last word is in quotes, which are left to who types them.
pub(super) fn look<'c>(commands: &'c Command, line: &str) -> Option<Unfinished<'c>> {
    let start = line.rfind([' ', '\t']).map_or(0, |space| space + 1);
    let (before, last) = line.split_at(start);
    if last.contains(['\'', '"', '\\']) {
        return None;
    }
    let words = shlex::split(before)?;
    let words = words.iter().skip(usize::from(words.first().is_some_and(|word| word == PROGRAM)));
    let mut found = Unfinished { command: commands, arguments: Vec::new(), wanted: None, start };
    let (mut pending, mut only_arguments) = (None, false);
    for word in words {
        match word.strip_prefix("--") {
            _ if pending.take().is_some() => {}
            Some("") if !only_arguments => only_arguments = true,
            Some(name) if !only_arguments => pending = option(found.command, name).filter(takes_value),
            _ => match found.command.find_subcommand(word) {
                Some(command) if found.arguments.is_empty() => found.command = command,
                _ => found.arguments.push(word.clone()),
            },
        }
    }
    found.wanted = match (pending, last.strip_prefix("--").and_then(|last| last.split_once('='))) {
        (Some(option), _) => Some(Wanted::Value(option)),
        (None, Some((name, _))) if !only_arguments => {
            found.start += name.len() + 3;
            option(found.command, name).filter(takes_value).map(Wanted::Value)
        }
        _ if last.starts_with('-') && !only_arguments => Some(Wanted::Option),
        _ if found.command.has_subcommands() => Some(Wanted::Command).filter(|_| found.arguments.is_empty()),
        _ => argument_after(found.command, found.arguments.len()).map(Wanted::Value),
    };
    Some(found)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::line::Line;
    use super::*;

    /// What the last word may be, in words.
    fn wanted(line: &str) -> String {
        let mut commands = Line::command();
        commands.build();
        let Some(found) = look(&commands, line) else { return "quoted".into() };
        let what = match found.wanted {
            None => "nothing".into(),
            Some(Wanted::Command) => "command".into(),
            Some(Wanted::Option) => "option".into(),
            Some(Wanted::Value(argument)) => argument.get_id().to_string(),
        };
        format!("{} {what} {}", found.command.get_name(), &line[found.start..])
    }

    #[test]
    fn what_the_last_word_may_be() {
        for (line, is) in [
            ("", "kelix command "),
            ("pu", "kelix command pu"),
            ("kelix pu", "kelix command pu"),
            ("put ", "put table "),
            ("put a\u{a0}b ", "put key "),
            ("put a\u{3000}", "put table a\u{3000}"),
            ("put peo", "put table peo"),
            ("put people k v ", "put nothing "),
            ("get people a b ", "get keys "),
            ("get people --pa", "get option --pa"),
            ("get people --path ", "get path "),
            ("get people --path=in", "get path in"),
            ("get people --path index ", "get keys "),
            ("get people --raw ", "get keys "),
            ("get people -- --pa", "get keys --pa"),
            ("table ", "table command "),
            ("table create ", "create table "),
            ("table list ", "list nothing "),
            ("help sc", "help command sc"),
            ("chase 'my people' ", "chase key "),
            ("chase 'my people", "quoted"),
            ("put people k --link to=", "put link to="),
        ] {
            assert_eq!(wanted(line), is, "{line}");
        }
    }
}
