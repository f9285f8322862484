//! Latencies of the same tasks done in several ways.
//!
//! A task is done by every side in turn, several times; its time for a side is the median of these, so that
//! what the machine does meanwhile counts little. What is told is how the tasks' times are spread: 5th
//! percentile, mean and 95th.

use std::path::PathBuf;
use std::time::Instant;

use kelix_report::{Report, Row, Sense};

use crate::{Failure, say};

/// How often each side does a task.
const ROUNDS: usize = 5;

/// How an application's benchmark tells what it found.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct BenchArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Also write it into measurements.md and figures/ of this folder, as `kelix bench report` does
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

impl BenchArgs {
    /// Prints a report, and writes it where it was asked for. `command` is what makes it.
    pub fn tell(&self, report: &Report, command: &str) -> Result<(), Failure> {
        match self.json {
            true => say(format_args!("{}", report.json()))?,
            false => say(format_args!("{}", report.table().trim_end()))?,
        }
        match &self.into {
            Some(folder) => Ok(kelix_report::keep(folder, report, command)?),
            None => Ok(()),
        }
    }
}

/// Times of tasks by side, in nanoseconds.
pub struct Times {
    sides: Vec<Vec<f64>>,
}

/// What is wanted of mean and 95th percentile, in times.
#[derive(Clone, Copy, Default, Debug)]
pub struct Wanted {
    /// Of the mean.
    pub mean: Option<f64>,
    /// Of the 95th percentile.
    pub p95: Option<f64>,
}

impl Times {
    /// Lets every side do every task.
    pub fn take(
        tasks: usize,
        sides: usize,
        mut work: impl FnMut(usize, usize) -> Result<(), String>,
    ) -> Result<Times, String> {
        let mut times = vec![Vec::with_capacity(tasks); sides];
        let mut of_task = vec![Vec::with_capacity(ROUNDS); sides];
        for task in 0..tasks {
            kelix_report::progress::show(&format!("task {} of {tasks}", task + 1));
            for turn in 0..ROUNDS * sides {
                // Who goes first changes from task to task, and from round to round.
                let side = (task + turn / sides + turn) % sides;
                let began = Instant::now();
                work(side, task)?;
                of_task[side].push(began.elapsed().as_nanos() as f64);
            }
            for (times, of_task) in times.iter_mut().zip(&mut of_task) {
                of_task.sort_by(f64::total_cmp);
                times.push(of_task[ROUNDS / 2]);
                of_task.clear();
            }
        }
        kelix_report::progress::show("");
        times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
        Ok(Times { sides: times })
    }

    fn quantile(&self, side: usize, share: f64) -> f64 {
        let times = &self.sides[side];
        times[((times.len() - 1) as f64 * share).round() as usize]
    }

    /// The mean of a side's times.
    pub fn mean(&self, side: usize) -> f64 {
        self.sides[side].iter().sum::<f64>() / self.sides[side].len() as f64
    }

    /// Rows that say how many times less one side takes than another: `ID_p5`, `ID_mean`, `ID_p95`.
    pub fn rows(
        &self,
        id: &str,
        name: &str,
        (ours, other): (usize, usize),
        wanted: Wanted,
        note: &str,
    ) -> Vec<Row> {
        let tasks = self.sides[ours].len();
        let row = |what: &str, said: &str, of: &dyn Fn(usize) -> f64, wanted| Row {
            id: format!("{id}_{what}").into(),
            name: format!("{name}, {said}").into(),
            ours: of(ours) / 1e3,
            other: Some(of(other) / 1e3),
            unit: "us",
            ratio: of(other) / of(ours),
            wanted,
            sense: Sense::AtLeast,
            note: format!("{note}{tasks} tasks, each the median of {ROUNDS}"),
        };
        vec![
            row("p5", "5th percentile", &|side| self.quantile(side, 0.05), None),
            row("mean", "mean", &|side| self.mean(side), wanted.mean),
            row("p95", "95th percentile", &|side| self.quantile(side, 0.95), wanted.p95),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_does_each_task_equally_often() {
        let mut done = vec![[0; 2]; 3];
        let times = Times::take(3, 2, |side, task| {
            done[task][side] += 1;
            Ok(())
        });
        assert_eq!(done, vec![[ROUNDS; 2]; 3]);
        let rows = times.unwrap().rows("x", "x", (0, 1), Wanted { mean: Some(2.0), p95: None }, "");
        assert_eq!(rows.iter().map(|row| &row.id[..]).collect::<Vec<_>>(), ["x_p5", "x_mean", "x_p95"]);
        assert_eq!(rows[1].wanted, Some(2.0));
    }
}
