//! Prometheus's text format, as a slow reading of its definition takes it.

use std::collections::HashSet;

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|char| char.is_ascii_alphanumeric() || char == '_')
}

/// Takes `name="value"` off; a value has three escapes and no end of line.
fn take_label(text: &str) -> Option<&str> {
    let (name, value) = text.split_once("=\"")?;
    let mut chars = value.char_indices();
    loop {
        match chars.next()? {
            (at, '"') => return is_name(name).then(|| &value[at + 1..]),
            (_, '\\') if !matches!(chars.next()?.1, '\\' | '"' | 'n') => return None,
            (_, '\n' | '\r') => return None,
            _ => {}
        }
    }
}

/// The name of a sample's metric.
fn sample(line: &str) -> Option<&str> {
    let (name, mut rest) = line.split_at(line.find(['{', ' '])?);
    if let Some(labels) = rest.strip_prefix('{') {
        rest = take_label(labels)?;
        while let Some(more) = rest.strip_prefix(',') {
            rest = take_label(more)?;
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.strip_prefix(' ')?;
    (is_name(name) && value.parse::<f64>().is_ok()).then_some(name)
}

/// Panics where a line is none of the format, a metric is not said what it is before its samples, or
/// something stands there twice.
pub fn check(text: &str) {
    assert!(text.ends_with('\n'), "the last line has no end");
    let (mut metric, mut known, mut samples) = (String::new(), HashSet::new(), HashSet::new());
    for line in text.split_terminator('\n') {
        if let Some(help) = line.strip_prefix("# HELP ") {
            metric = help.split(' ').next().unwrap_or_default().to_string();
            assert!(is_name(&metric) && known.insert(metric.clone()), "{line:?}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let told = [" counter", " gauge"].map(|kind| format!("{metric}{kind}"));
            assert!(told.iter().any(|told| told == kind), "{line:?} behind {metric}");
        } else {
            assert!(sample(line) == Some(&metric), "{line:?} of {metric}");
            let of = line.rsplit_once(' ').map(|(of, _)| of);
            assert!(samples.insert(of), "{line:?} is there twice");
        }
    }
}
