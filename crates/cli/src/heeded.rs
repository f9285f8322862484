//! Which of the options that all commands share each command heeds.
//!
//! Common options are defined once, at the program, so that they may stand anywhere on the command line. A
//! command lists in its help those that it heeds, and takes no others behind its name.

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, Id};

/// Options of clients that a mirror heeds, which is one of its primary's.
const OF_MIRRORS: [&str; 5] = ["token-file", "namespace", "retry", "fabric", "rdma-address"];

/// Those of them that a node of a cluster heeds.
const OF_NODES: [&str; 2] = ["token-file", "fabric"];

/// Whether a command heeds an option. The command is told by its names, outermost first.
pub(crate) fn heeds(command: &[&str], option: &str) -> bool {
    let of_server = option == "dir" || option.starts_with("tls-");
    match (command, option) {
        // Errors are printed so by all.
        (_, "json") => true,
        // A mirror has a limit of its own.
        (["serve"], _) => {
            of_server || ["cluster", "config", "max-lag"].contains(&option) || OF_MIRRORS.contains(&option)
        }
        (["demo"], _) => option == "dir",
        (["cluster"] | ["cluster", "start"], "fabric") => true,
        (["cluster"] | ["cluster", "status"], "token-file" | "tls-ca" | "tls-cert" | "tls-key") => true,
        (["cluster", ..], _) => ["cluster", "config"].contains(&option),
        (
            ["bench" | "completions" | "fabric" | "manual" | "map" | "namespaces" | "plan" | "syntax", ..],
            _,
        ) => false,
        (["config", "check" | "example"] | ["snapshot", "list" | "verify"], _) => false,
        _ => true,
    }
}

/// The options that all commands share.
fn common(program: &Command) -> Vec<Arg> {
    program.get_arguments().filter(|option| option.is_global_set()).cloned().collect()
}

/// Changes each command below another one. It is told by its names, outermost first.
fn change_each(command: Command, path: &[&str], change: &impl Fn(Command, &[&str]) -> Command) -> Command {
    command.mut_subcommands(|of| {
        let name = of.get_name().to_string();
        let path = [path, &[&name]].concat();
        change_each(change(of, &path), &path, change)
    })
}

/// Hides from the help of each command what the command does not heed.
pub(crate) fn hide_unheeded(program: Command) -> Command {
    let common = common(&program);
    change_each(program, &[], &|of, path| {
        let unheeded = common.iter().filter(|option| !heeds(path, option.get_long().unwrap_or_default()));
        of.args(unheeded.map(|option| option.clone().hide(true)))
    })
}

/// Gives each command the options that it heeds, and leaves none common: for what lists hidden options, too.
pub(crate) fn only_heeded(program: Command) -> Command {
    // What an option excludes has to be there, too, or nobody may ask for what the option excludes.
    let common: Vec<(Arg, Vec<Arg>)> = common(&program)
        .into_iter()
        .map(|option| {
            let excluded = program.get_arg_conflicts_with(&option).into_iter().cloned().collect();
            (option.global(false).conflicts_with(Resettable::<Id>::Reset), excluded)
        })
        .collect();
    change_each(program.mut_args(|option| option.global(false)), &[], &|of, path| {
        let is_heeded = |option: &Arg| heeds(path, option.get_long().unwrap_or_default());
        let own: Vec<_> = of.get_arguments().map(|option| option.get_id().clone()).collect();
        let heeded = common.iter().filter(|(option, _)| is_heeded(option) && !own.contains(option.get_id()));
        of.args(heeded.map(|(option, excluded)| {
            let excluded = excluded.iter().filter(|option| is_heeded(option));
            option.clone().conflicts_with_all(excluded.map(Arg::get_id))
        }))
    })
}

/// The command that a command line is about, by its names.
pub(crate) fn path(matches: &ArgMatches) -> Vec<&str> {
    let mut path = Vec::new();
    let mut next = matches.subcommand();
    while let Some((name, of)) = next {
        path.push(name);
        next = of.subcommand();
    }
    path
}

/// An option behind a command's name that the command does not heed, and what is to be said of that. Before
/// the name it may stand, as in an alias that says once and for all where the server is.
pub(crate) fn unheeded(program: &Command, matches: &ArgMatches, words: &[String]) -> Option<String> {
    let path = path(matches);
    let serves_alone = path == ["serve"] && !words.iter().any(|word| word.starts_with("--mirror-of"));
    let is_node = words.iter().any(|word| word.starts_with("--node"));
    let of_mirrors = |option: &str| OF_MIRRORS.contains(&option) && !(is_node && OF_NODES.contains(&option));
    let of_others = |option: &str| is_node && option == "dir" || serves_alone && of_mirrors(option);
    let heeds = |option: &str| heeds(&path, option) && !(path == ["serve"] && of_others(option));
    let name = words.iter().position(|word| path.first() == Some(&word.as_str()))?;
    let behind = |option: &str| {
        words[name..]
            .iter()
            .filter_map(|word| word.strip_prefix("--")?.strip_prefix(option))
            .any(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let common = common(program);
    let mut given = common
        .iter()
        .filter(|option| matches.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine));
    let option = given.find_map(|option| option.get_long().filter(|name| !heeds(name) && behind(name)))?;
    let command = path.join(" ");
    if is_node && option == "dir" {
        return Some("`kelix serve --node` is in the directory of its cluster: leave --dir out".into());
    }
    if serves_alone && of_mirrors(option) {
        return Some(format!("`kelix serve` heeds --{option} with --mirror-of only: leave it out"));
    }
    Some(format!(
        "`kelix {command}` heeds no --{option}: leave it out (kelix {command} --help lists what it takes)"
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// The help of a command, and the options that all commands share.
    fn each(command: &mut Command, path: &[String], look: &mut impl FnMut(&[String], String)) {
        for of in command.get_subcommands_mut() {
            let path = [path, &[of.get_name().to_string()]].concat();
            look(&path, of.render_long_help().to_string());
            each(of, &path, look);
        }
    }

    #[test]
    fn completions_offer_what_is_heeded() {
        let mut program = only_heeded(Cli::command());
        program.build();
        let plan = program.find_subcommand("plan").expect("a command");
        let has =
            |command: &Command, name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
        assert!(has(plan, "items") && has(plan, "json") && !has(plan, "retry") && !has(plan, "dir"));
        assert!(has(program.find_subcommand("get").expect("a command"), "retry") && has(&program, "retry"));
    }

    #[test]
    fn a_mirror_heeds_what_its_primary_asks_for() {
        let said = |words: &str| {
            let words: Vec<String> = words.split(' ').map(String::from).collect();
            let matches =
                Cli::command().get_matches_from(std::iter::once("kelix".to_string()).chain(words.clone()));
            unheeded(&Cli::command(), &matches, &words)
        };
        assert_eq!(said("serve --mirror-of a:1 --token-file word --namespace people --retry 5s"), None);
        let follows = "serve --mirror-of a:1 --fabric verbs --rdma-address 192.0.2.7";
        assert_eq!(said(follows), None);
        let options =
            ["--token-file word", "--namespace people", "--retry 5s", "--fabric tcp", "--rdma-address ::1"];
        for option in options {
            assert!(
                said(&format!("serve {option}")).is_some_and(|why| why.contains("with --mirror-of only"))
            );
        }
        assert!(
            said("serve --mirror-of a:1 --timeout 5s").is_some_and(|why| why.contains("heeds no --timeout"))
        );
    }

    #[test]
    fn the_help_of_each_command_lists_what_it_heeds() {
        let mut program = hide_unheeded(Cli::command()).disable_help_subcommand(true);
        program.build();
        let common = common(&program);
        let common: Vec<&str> = common.iter().filter_map(|option| option.get_long()).collect();
        let mut looked = 0;
        each(&mut program, &[], &mut |path, help| {
            // These explain something, and show no options.
            if !help.contains("Usage:") {
                return;
            }
            let names: Vec<&str> = path.iter().map(String::as_str).collect();
            for option in &common {
                let lists = help.lines().any(|line| {
                    line.trim_start().strip_prefix("--").and_then(|line| line.split(' ').next())
                        == Some(*option)
                });
                assert_eq!(lists, heeds(&names, option), "{path:?} --{option}:\n{help}");
                looked += 1;
            }
        });
        assert!(looked > 200, "{looked}");
    }
}
