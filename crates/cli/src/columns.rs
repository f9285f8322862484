//! Tables in columns, as `kelix stat` prints them. What stands in them a server has told, which may be any:
//! its texts are cut, and no sequences for a terminal.

use serde_json::Value;

use crate::bytes::show_name;
use crate::units::show_mib;

/// Characters of a text at most: room for twenty holders of a generation.
const TEXT_CHARS_MAX: usize = 2000;

/// A column: its title, and where its value stands in the object of a row.
pub(crate) struct Column {
    pub title: &'static str,
    pub pointer: &'static str,
    pub form: Form,
    /// Whether a sum over the rows means something.
    pub sums: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Form {
    Count,
    Mib,
    Fraction,
    Text,
}

pub(crate) const fn column(title: &'static str, pointer: &'static str, form: Form) -> Column {
    Column { title, pointer, form, sums: true }
}

pub(crate) const fn label(title: &'static str, pointer: &'static str) -> Column {
    Column { title, pointer, form: Form::Count, sums: false }
}

fn show(value: &Value, form: Form) -> String {
    match (value.as_f64(), form) {
        (_, Form::Text) => show_name(value.as_str().unwrap_or("-")).chars().take(TEXT_CHARS_MAX).collect(),
        // A server of another release may tell less.
        (None, _) => "-".into(),
        (Some(value), Form::Count) => format!("{value:.0}"),
        (Some(value), Form::Mib) => show_mib(value as u64),
        (Some(value), Form::Fraction) => format!("{value:.2}"),
    }
}

/// A table with a row for each object, and one for their sum if there are several.
pub(crate) fn table(title: &str, columns: &[Column], rows: &[Value]) -> String {
    let value = |row: &Value, column: &Column| row.pointer(column.pointer).cloned().unwrap_or_default();
    let number = |row: &Value, column: &Column| value(row, column).as_f64();
    let mut lines: Vec<Vec<String>> = vec![columns.iter().map(|column| column.title.to_string()).collect()];
    for row in rows {
        lines.push(columns.iter().map(|column| show(&value(row, column), column.form)).collect());
    }
    if rows.len() > 1 && columns.iter().any(|column| column.sums) {
        let sum = |(index, column): (usize, &Column)| match (index, column.sums) {
            (0, _) => "all".to_string(),
            (_, true) => {
                show(&rows.iter().filter_map(|row| number(row, column)).sum::<f64>().into(), column.form)
            }
            (_, false) => String::new(),
        };
        lines.push(columns.iter().enumerate().map(sum).collect());
    }
    let width = |index: usize| lines.iter().map(|line| line[index].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = format!("{title}\n");
    for line in &lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        text += &format!("  {}\n", cells.join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned_and_summed() {
        let rows = [
            json!({"shard": 0, "memory": {"limit_bytes": 64 << 20}}),
            json!({"shard": 1, "memory": {"limit_bytes": 32 << 20}}),
        ];
        let columns = [label("shard", "/shard"), column("limit", "/memory/limit_bytes", Form::Mib)];
        assert_eq!(
            table("memory", &columns, &rows),
            "memory\n  shard  limit\n      0   64.0\n      1   32.0\n    all   96.0\n"
        );
    }
}
