//! `kelix stat --watch`: what happens between one look at the statistics and the next.
//!
//! On a terminal it is a screen that is drawn anew ([`crate::screen`]), which also waits for a server that
//! has gone. Elsewhere it is a line each time, and ends with the server.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::context::Context;
use crate::ending::Ending;
use crate::names::Names;
use crate::rates::{is_same_server, line_json, line_text};
use crate::stat::ask;
use crate::{Failure, screen};

/// How often it is looked whether somebody interrupts.
const LOOK_EACH: Duration = Duration::from_millis(50);

/// Lines between two headings.
const HEADING_EACH: u64 = 20;

/// Waits for so long. `true`: no longer, since it was told to end.
fn pause(context: &Context, ending: Option<&Ending>, every: Duration) -> bool {
    if let Some(ending) = ending {
        return ending.wait(every);
    }
    let began = Instant::now();
    while !context.is_interrupted() && began.elapsed() < every {
        std::thread::sleep(every.saturating_sub(began.elapsed()).min(LOOK_EACH));
    }
    context.is_interrupted()
}

fn lines(context: &Context, every: Duration, count: u64) -> Result<(), Failure> {
    let client = context.client()?;
    let mut before = ask(&client)?;
    for number in 0..count {
        if pause(context, None, every) {
            break;
        }
        let now = ask(&client)?;
        if is_same_server(&before, &now) {
            let mut out = std::io::stdout().lock();
            match context.json {
                true => writeln!(out, "{}", line_json(&before, &now))?,
                false => writeln!(out, "{}", line_text(&before, &now, number % HEADING_EACH == 0))?,
            }
            out.flush()?;
        }
        before = now;
    }
    Ok(())
}

fn draw(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The screen. It ends in good order when told to, and stays as it is, with the cursor below.
fn screens(context: &Context, every: Duration, count: u64) -> Result<(), Failure> {
    // In a shell it is the shell that is told.
    let ending = if context.is_of_shell() { None } else { Some(Ending::watch("stat")?) };
    let (client, mut names) = (context.client()?, Names::default());
    let mut look = || {
        let mut statistics = ask(&client)?;
        names.add_to(&mut statistics, || context.session());
        Ok::<Value, Failure>(statistics)
    };
    let (mut before, mut now) = (None, look()?);
    draw(screen::CLEAR)?;
    draw(&screen::drawn(None, &now, None, every))?;
    for _ in 0..count {
        if pause(context, ending.as_ref(), every) {
            break;
        }
        let gone = match look() {
            Ok(next) => {
                let last = std::mem::replace(&mut now, next);
                before = Some(last).filter(|last| is_same_server(last, &now));
                None
            }
            Err(failure) => Some(failure.to_string()),
        };
        draw(&screen::drawn(before.as_ref(), &now, gone.as_deref(), every))?;
    }
    draw("\n")
}

/// Goes on until so many were shown, or told to end.
pub(crate) fn watch(context: &Context, every: Duration, count: Option<u64>) -> Result<(), Failure> {
    let count = count.unwrap_or(u64::MAX);
    match std::io::stdout().is_terminal() && !context.json {
        true => screens(context, every, count),
        false => lines(context, every, count),
    }
}
