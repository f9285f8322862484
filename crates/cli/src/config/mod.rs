//! `kelix config`: options that are set by the environment and by a file, and which of them are in force.
//!
//! ```text
//! command line  >  $KELIX_<OPTION>  >  file  >  default
//! ```

mod file;
mod layers;
mod options;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Arg, Command};
use serde_json::{Value, json};

use crate::Failure;
use crate::context::{Context, plural};
use file::File;
pub(crate) use file::{line_of, nearest};
use layers::{Given, Origin};
pub(crate) use layers::{complete, unknown_variables};
use options::{Default, Kind, Section, key, variable};

/// Tell which options are in force, and where each comes from
///
/// Every option of `kelix serve`, and those about where the server is and who is trusted, may also be set by
/// a variable, KELIX_ and the option's name (KELIX_VIEW_LEASE for --view-lease; empty counts as not set), and
/// in a file. An option on the command line is preferred to its variable, that to the file, and that to the
/// default.
///
/// The file is that of --config or $KELIX_CONFIG, else the first that exists of $XDG_CONFIG_HOME/kelix.toml
/// (~/.config/kelix.toml) and /etc/kelix.toml. It is written in TOML: what is below [serve] is for `kelix
/// serve`, what is below [client] for the commands that need a server. A key that is not known, or a value of
/// another kind, is an error of every command that reads the file.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = "\
Examples:
  kelix config
  kelix config example > ~/.config/kelix.toml
  kelix config check /etc/kelix.toml
  KELIX_MEMORY=4G kelix config --json | jq .serve.memory")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: Option<ConfigCommand>,
}

#[derive(clap::Subcommand)]
enum ConfigCommand {
    /// Print a file with all options, their defaults and what they mean
    Example,
    /// Read a file, and tell the first thing that is wrong with it
    Check {
        /// The file
        file: PathBuf,
    },
}

pub(crate) fn run(context: &Context, program: &Command, args: &ConfigArgs) -> Result<(), Failure> {
    match &args.command {
        None => show(context, program),
        Some(ConfigCommand::Example) => {
            Ok(std::io::stdout().lock().write_all(example(program).as_bytes())?)
        }
        Some(ConfigCommand::Check { file }) => check(context, program, file),
    }
}

/// The values of an option, as they are shown.
fn shown(option: &Arg, values: Option<&Vec<OsString>>) -> String {
    match values {
        None => "false".into(),
        Some(values) if values.is_empty() && Kind::of(option) != Kind::Text => "true".into(),
        Some(values) => {
            let values: Vec<_> = values.iter().map(|value| value.to_string_lossy()).collect();
            values.join(",")
        }
    }
}

/// Refuses values that no command would take.
fn check_values(program: &Command, section: Section, given: Vec<Given<'_>>) -> Result<(), Failure> {
    let command = if section == Section::Serve { "serve" } else { "stat" };
    let completed = layers::add(vec!["kelix".into(), command.into()], given);
    let Err(error) = program.clone().try_get_matches_from(&completed.words) else { return Ok(()) };
    Err(completed.blame(&error).unwrap_or_else(|| {
        let text = error.render().to_string();
        let what = text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let what = what.strip_prefix("error: ").unwrap_or(&what);
        Failure::usage("read the configuration", format!("[{}]: {what}", section.name()))
    }))
}

fn show(context: &Context, program: &Command) -> Result<(), Failure> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let typed = layers::look(program, &words);
    let file = File::in_force(program, typed.as_ref().and_then(layers::named_file))?;
    let path = file.as_ref().map(|file| file.path.display().to_string());
    let mut object = json!({ "file": path });
    let mut text = match &path {
        Some(path) => format!("file: {path}\n"),
        None => {
            let places: Vec<_> = file::usual_places().iter().map(|path| path.display().to_string()).collect();
            format!("no file: {}\n", places.join(", "))
        }
    };
    for section in Section::ALL {
        let given = layers::given(program, section, typed.as_ref(), file.as_ref())?;
        let rows: Vec<Row<'_>> =
            section.options(program).into_iter().map(|option| Row::of(option, &given)).collect();
        object[section.name()] = rows.iter().map(|row| (key(row.option).to_string(), row.json())).collect();
        text += &format!("\n[{}]\n{}", section.name(), table(&rows));
        check_values(program, section, given)?;
    }
    if context.json {
        return context.print_json(&object);
    }
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

/// An option, and what it is.
struct Row<'p> {
    option: &'p Arg,
    value: Option<String>,
    origin: Option<Origin>,
}

impl<'p> Row<'p> {
    fn of(option: &'p Arg, given: &[Given<'_>]) -> Row<'p> {
        if let Some(given) = given.iter().find(|given| given.option.get_id() == option.get_id()) {
            let value = Some(shown(option, given.values.as_ref()));
            return Row { option, value, origin: Some(given.origin.clone()) };
        }
        let value = match Default::of(option) {
            Default::Value(value) | Default::Words(value) => Some(value),
            Default::None => None,
        };
        Row { option, value, origin: None }
    }

    fn json(&self) -> Value {
        match &self.origin {
            None => json!({"value": self.value, "from": "default"}),
            Some(Origin::CommandLine) => json!({"value": self.value, "from": "command line"}),
            Some(Origin::Variable(name)) => {
                json!({"value": self.value, "from": "environment", "variable": name})
            }
            Some(Origin::File(path, line)) => {
                json!({"value": self.value, "from": "file", "file": path.display().to_string(), "line": line})
            }
        }
    }
}

fn table(rows: &[Row<'_>]) -> String {
    let cells = rows.iter().map(|row| {
        let origin = row.origin.as_ref().map_or("default".to_string(), Origin::to_string);
        [key(row.option).to_string(), row.value.clone().unwrap_or_else(|| "-".into()), origin]
    });
    let cells: Vec<[String; 3]> = cells.collect();
    let width = |column: usize| cells.iter().map(|cell| cell[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    cells.iter().map(|[key, value, from]| format!("  {key:first$}  {value:second$}  {from}\n")).collect()
}

fn check(context: &Context, program: &Command, path: &Path) -> Result<(), Failure> {
    let file = File::read(program, path)?;
    for section in Section::ALL {
        let options = section.options(program);
        let entries = file.entries.iter().filter(|entry| entry.section == section);
        let given = entries.filter_map(|entry| {
            let option = options.iter().copied().find(|option| key(option) == entry.key)?;
            let origin = Origin::File(path.to_path_buf(), entry.line);
            Some(Given { option, values: entry.values.clone(), origin })
        });
        check_values(program, section, given.collect())?;
    }
    let count = file.entries.len() as u64;
    if context.json {
        return context.print_json(&json!({"file": path.display().to_string(), "options": count}));
    }
    Ok(writeln!(std::io::stdout(), "{}: {}, and nothing wrong", path.display(), plural(count, "option"))?)
}

/// Longest line of the example.
const WIDTH: usize = 110;

/// A file with all options, none of them set.
fn example(program: &Command) -> String {
    let mut text = "\
# Options of Kelix, for --config FILE, $KELIX_CONFIG, ~/.config/kelix.toml or /etc/kelix.toml. A line that begins with #
# counts for nothing: what is behind it is the default, or stands for a value. An option on the command line is preferred to its
# variable, that to this file. `kelix config` tells what is in force.
"
    .to_string();
    for section in Section::ALL {
        let whose = if section == Section::Serve { "kelix serve" } else { "the commands that need a server" };
        text += &format!("\n# For {whose}.\n[{}]\n", section.name());
        for option in section.options(program) {
            text += "\n";
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            help.lines().for_each(|line| text += &comment(line));
            let values = option.get_possible_values();
            if !values.is_empty() && Kind::of(option) != Kind::Flag {
                let names: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
                text += &format!("# One of: {}\n", names.join(", "));
            }
            text += &format!("# ${}\n#{} = {}\n", variable(option), key(option), example_value(option));
        }
    }
    text
}

/// A comment, in lines that are not too long.
fn comment(line: &str) -> String {
    let (mut text, mut width) = (String::from("#"), 1);
    for word in line.split(' ') {
        if width + 1 + word.len() > WIDTH {
            text += "\n#";
            width = 1;
        }
        text += " ";
        text += word;
        width += 1 + word.len();
    }
    text + "\n"
}

/// The default of an option as the file has it, or what stands for a value.
fn example_value(option: &Arg) -> String {
    match (Default::of(option), Kind::of(option)) {
        (Default::Value(value), Kind::Flag | Kind::Number) => value,
        (Default::Value(value), _) => format!("\"{value}\""),
        (_, Kind::Number) => "0".into(),
        _ => {
            let names = option.get_value_names().unwrap_or_default();
            format!("\"{}\"", names.first().map_or("VALUE", |name| name.as_str()))
        }
    }
}
