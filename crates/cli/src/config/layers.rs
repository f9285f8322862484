//! What is in force: options from the command line, the environment and the file, in this order.
//!
//! An option that the command line leaves out is added to it, before it is read, as the environment or the
//! file say. So values have one syntax, wherever they come from, and all that is checked of options is
//! checked of these. What is added and refused is blamed on where it comes from.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::file::{File, Values, nearest};
use super::options::{Kind, Section, key, variable};
use crate::Failure;
use crate::heeded::{self, heeds};

/// Where an option comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    CommandLine,
    Variable(String),
    File(PathBuf, usize),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::CommandLine => f.write_str("command line"),
            Origin::Variable(name) => write!(f, "${name}"),
            Origin::File(path, line) => write!(f, "{}, line {line}", path.display()),
        }
    }
}

/// An option that is set.
pub(crate) struct Given<'p> {
    pub option: &'p Arg,
    /// `None`: a flag that is off.
    pub values: Option<Values>,
    pub origin: Origin,
}

impl Given<'_> {
    /// The argument that says the same on the command line.
    fn argument(&self) -> Option<OsString> {
        let values = self.values.as_ref()?;
        let mut argument = OsString::from(format!("--{}", key(self.option)));
        for (index, value) in values.iter().enumerate() {
            argument.push(if index == 0 { "=" } else { "," });
            argument.push(value);
        }
        Some(argument)
    }
}

/// Reads a variable. Empty ones count as not set.
fn variable_values(option: &Arg) -> Result<Option<Given<'_>>, Failure> {
    let name = variable(option);
    let Some(value) = std::env::var_os(&name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let switch = match value.to_str() {
        Some("1" | "true" | "yes" | "on") => Some(true),
        Some("0" | "false" | "no" | "off") => Some(false),
        _ => None,
    };
    let values = match (Kind::of(option), switch) {
        (Kind::Flag, None) => {
            let context = format!("${name} is \"{}\", and has to be true or false", value.to_string_lossy());
            return Err(Failure::usage("read the environment", context));
        }
        (Kind::Texts, Some(on)) | (Kind::Flag, Some(on)) => on.then(Vec::new),
        _ => Some(vec![value]),
    };
    Ok(Some(Given { option, values, origin: Origin::Variable(name) }))
}

fn exclude_each_other(program: &Command, one: &Arg, other: &Arg) -> bool {
    let excludes = |one: &Arg, other: &Arg| {
        one.is_global_set()
            && program.get_arg_conflicts_with(one).iter().any(|excluded| excluded.get_id() == other.get_id())
    };
    excludes(one, other) || excludes(other, one)
}

/// The options of a section that are set, each as the first of command line, environment and file says. One
/// that excludes another is left out if that is said earlier. In the environment the later one of two counts:
/// $KELIX_SERVER is preferred to $KELIX_DIR.
pub(crate) fn given<'p>(
    program: &'p Command,
    section: Section,
    typed: Option<&ArgMatches>,
    file: Option<&File>,
) -> Result<Vec<Given<'p>>, Failure> {
    let options = section.options(program);
    let mut given: Vec<Given<'p>> = Vec::new();
    for option in &options {
        let typed = typed.filter(|typed| {
            typed.try_contains_id(option.get_id().as_str()).unwrap_or(false)
                && typed.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine)
        });
        if let Some(typed) = typed {
            let raw = typed.get_raw(option.get_id().as_str()).into_iter().flatten();
            let values = raw.map(OsString::from).collect();
            let values = if Kind::of(option) == Kind::Flag { Vec::new() } else { values };
            given.push(Given { option, values: Some(values), origin: Origin::CommandLine });
        }
    }
    let is_free = |given: &[Given<'_>], option: &Arg| {
        let mut others = given.iter().map(|given| given.option);
        !others.any(|other| other.get_id() == option.get_id() || exclude_each_other(program, option, other))
    };
    for option in options.iter().rev() {
        if let (true, Some(set)) = (is_free(&given, option), variable_values(option)?) {
            given.push(set);
        }
    }
    let earlier = given.len();
    let has_token = std::env::var_os("KELIX_TOKEN").is_some_and(|token| !token.is_empty());
    for (path, entry) in
        file.into_iter().flat_map(|file| file.entries.iter().map(|entry| (&file.path, entry)))
    {
        let option = options.iter().find(|option| entry.section == section && key(option) == entry.key);
        let Some(option) = option.filter(|option| is_free(&given[..earlier], option)) else { continue };
        // That variable is the same in another form.
        if !(has_token && entry.key == "token-file") {
            let origin = Origin::File(path.clone(), entry.line);
            given.push(Given { option, values: entry.values.clone(), origin });
        }
    }
    given.sort_by_key(|given| options.iter().position(|option| option.get_id() == given.option.get_id()));
    Ok(given)
}

/// What is known of the command line before what it leaves out is added. `None`: it asks for help, or for a
/// version.
pub(crate) fn look(program: &Command, words: &[OsString]) -> Option<ArgMatches> {
    program.clone().ignore_errors(true).try_get_matches_from(words).ok()
}

/// The file that the command line names.
pub(crate) fn named_file(typed: &ArgMatches) -> Option<&Path> {
    typed.get_one::<PathBuf>("config").map(PathBuf::as_path)
}

/// A command line with what is added to it.
pub(crate) struct Completed<'p> {
    pub words: Vec<OsString>,
    pub added: Vec<Given<'p>>,
}

/// Variables of the program's that are no option's.
const OTHER_VARIABLES: [&str; 2] = ["KELIX_CONFIG", "KELIX_TOKEN"];

/// Warnings of variables whose names differ in one letter from that of an option's: such a slip would be
/// passed over silently. Variables that differ in more are left alone, since other programs have some, too.
pub(crate) fn unknown_variables(program: &Command, names: impl Iterator<Item = String>) -> Vec<String> {
    let options = Section::ALL.into_iter().flat_map(|section| section.options(program));
    let known: Vec<String> = options.map(variable).chain(OTHER_VARIABLES.map(String::from)).collect();
    let unknown = names.filter(|name| name.starts_with("KELIX_") && !known.contains(name));
    let told = unknown.filter_map(|name| {
        let near = nearest(&name, known.iter().map(String::as_str), 1)?;
        Some(format!("kelix: ${name} is no option's and counts for nothing; perhaps ${near} is meant"))
    });
    told.collect()
}

/// Adds to a command line what it leaves out.
pub(crate) fn complete(program: &Command, words: Vec<OsString>) -> Result<Completed<'_>, Failure> {
    let nothing = |words| Ok(Completed { words, added: Vec::new() });
    let Some(typed) = look(program, &words) else { return nothing(words) };
    let Some((name, of_command)) = typed.subcommand() else { return nothing(words) };
    let Some(section) = Section::of_command(name) else { return nothing(words) };
    let file = File::in_force(program, named_file(&typed))?;
    let given = given(program, section, Some(of_command), file.as_ref())?;
    let path = heeded::path(&typed);
    let added = given.into_iter().filter(|given| given.origin != Origin::CommandLine);
    let added = added.filter(|given| !given.option.is_global_set() || heeds(&path, key(given.option)));
    let added = added.collect();
    Ok(add(words, added))
}

/// Adds options: those of all commands before the command, its own behind it.
pub(super) fn add(mut words: Vec<OsString>, added: Vec<Given<'_>>) -> Completed<'_> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (common, own): (Vec<_>, Vec<_>) = added.iter().partition(|given| given.option.is_global_set());
    words.splice(end..end, own.iter().filter_map(|given| given.argument()));
    words.splice(1..1, common.iter().filter_map(|given| given.argument()));
    Completed { words, added }
}

impl Completed<'_> {
    /// Blames a refusal on where the option comes from that is refused, if it was added.
    pub fn blame(&self, error: &clap::Error) -> Option<Failure> {
        let of = |given: &&Given<'_>, text: &str| {
            let rest = text.strip_prefix("--").and_then(|text| text.strip_prefix(key(given.option)));
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c == '-' || c.is_alphanumeric()))
        };
        let refused: Vec<&str> = [ContextKind::InvalidArg, ContextKind::PriorArg]
            .into_iter()
            .filter_map(|kind| match error.get(kind)? {
                ContextValue::String(text) => Some(vec![text.as_str()]),
                ContextValue::Strings(texts) => Some(texts.iter().map(String::as_str).collect()),
                _ => None,
            })
            .flatten()
            .collect();
        let blamed = refused.iter().find_map(|text| self.added.iter().find(|given| of(given, text)))?;
        let text = error.render().to_string();
        let what = text.split("\n\n").next().unwrap_or_default();
        let what = what.strip_prefix("error: ").unwrap_or(what).trim();
        let context = format!("{}: {}: {what}", blamed.origin, key(blamed.option));
        Some(Failure::usage("read the configuration", context))
    }

    /// A hint for a refusal that is about how options go together, where some of these options were added.
    pub fn hint(&self, error: &clap::Error) -> Option<&'static str> {
        let added = self.added.iter().any(|given| given.values.is_some() && !given.option.is_global_set());
        (added && error.kind() == ErrorKind::MissingRequiredArgument)
            .then_some("kelix: some options come from the environment or a file: see kelix config")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_in_a_variable_is_told() {
        let program = crate::program();
        let told = |name: &str| unknown_variables(&program, std::iter::once(name.to_string()));
        for (slip, meant) in
            [("KELIX_MEMROY", "$KELIX_MEMORY"), ("KELIX_DIRS", "$KELIX_DIR"), ("KELIX_TOKE", "$KELIX_TOKEN")]
        {
            let told = told(slip);
            assert!(told.len() == 1 && told[0].contains(slip) && told[0].contains(meant), "{told:?}");
        }
        for other in ["KELIX_MEMORY", "KELIX_CONFIG", "KELIX_TOKEN", "KELIX_TEST_SCALE", "MEMROY"] {
            assert_eq!(told(other), Vec::<String>::new(), "{other}");
        }
    }
}
