//! The shell at a terminal: the prompt, and what was typed before.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use kelix::Address;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use signal_hook::consts::SIGINT;

use super::completion::Assistant;
use super::line::{Ended, Shell};
use crate::Failure;
use crate::context::{Context, plural, say};

/// Lines that are remembered.
const LINES_MAX: usize = 10_000;

/// The file of lines that were typed before. `None`: there is no home to keep it in.
fn history_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("kelix/history"))
}

fn editor(context: &Context) -> Result<Editor<Assistant, FileHistory>, Failure> {
    let cannot = |error: ReadlineError| failure(&error);
    let config = Config::builder().completion_type(CompletionType::List).history_ignore_space(true);
    let config = config.max_history_size(LINES_MAX).map_err(cannot)?;
    let mut editor = Editor::with_config(config.build()).map_err(cannot)?;
    editor.set_helper(Some(Assistant::new(context.clone())));
    Ok(editor)
}

fn failure(error: &ReadlineError) -> Failure {
    let source = std::io::Error::other(error.to_string());
    Failure::io("shell", "cannot use the terminal", &source)
}

/// Reads what was typed before. That it cannot be is told once, and is no reason not to begin.
fn open_history(editor: &mut Editor<Assistant, FileHistory>) -> Option<PathBuf> {
    let file = history_file()?;
    let folder = file.parent()?;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let loaded = match editor.load_history(&file) {
        Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        loaded => loaded.map_err(|error| error.to_string()),
    };
    if let Err(error) = made.map_err(|error| error.to_string()).and(loaded) {
        say(&format!("kelix: nothing is remembered of what is typed: {}: {error}", file.display()));
        return None;
    }
    Some(file)
}

fn remember(editor: &mut Editor<Assistant, FileHistory>, file: Option<&Path>, line: &str) {
    if let (Ok(true), Some(file)) = (editor.add_history_entry(line), file) {
        // A full disk is not worth a word behind each command.
        let _ = editor.append_history(file);
    }
}

/// The first line: where the shell is, and how one gets out.
fn greet(context: &Context) -> Result<(), Failure> {
    let tables = context.session()?.tables()?.len() as u64;
    let place = match &context.address {
        Address::Directory(directory) => directory.display().to_string(),
        Address::Tcp(address) => address.clone(),
    };
    say(&format!(
        "connected to {place}, {}; help lists the commands, exit or Ctrl-D leaves",
        plural(tables, "table")
    ));
    Ok(())
}

fn prompt(context: &Context) -> String {
    match &context.namespace[..] {
        "" | "default" => "kelix> ".into(),
        namespace => format!("kelix {}> ", crate::bytes::show_name(namespace)),
    }
}

/// Reads and runs lines until there is no more.
pub(super) fn run(shell: &mut Shell) -> Result<(), Failure> {
    greet(&shell.context)?;
    let mut editor = editor(&shell.context)?;
    let history = open_history(&mut editor);
    let interruption = shell.context.kept.clone().unwrap_or_default();
    signal_hook::flag::register(SIGINT, interruption.interruption().clone())
        .map_err(|error| Failure::io("shell", "cannot watch for signals", &error))?;
    loop {
        let line = match editor.readline(&prompt(&shell.context)) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(failure(&error)),
        };
        remember(&mut editor, history.as_deref(), &line);
        interruption.interruption().store(false, Ordering::Relaxed);
        match shell.run(&line, None) {
            Ended::Leave => return Ok(()),
            Ended::Failed(code) if code == crate::Exit::NoServer as u8 => {
                say("kelix: the next command connects again");
            }
            Ended::Done | Ended::Failed(_) => {}
        }
        if let Some(assistant) = editor.helper_mut() {
            assistant.follow(&shell.context);
        }
    }
}
