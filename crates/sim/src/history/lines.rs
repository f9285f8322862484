//! Histories as files, so that checkers other than ours can judge them.
//!
//! A file has one operation a line, in any order, each a JSON object of numbers and short strings:
//!
//! ```text
//! {"call":10,"client":1,"found":4,"key":7,"op":"get","return":20}
//! {"call":11,"client":2,"key":7,"op":"put","return":21,"value":5}
//! {"call":12,"client":3,"key":7,"op":"delete","return":22,"was_there":true}
//! {"call":13,"client":1,"expected":5,"found":4,"key":7,"op":"cas","outcome":"mismatch","return":23,"value":6}
//! {"call":14,"client":2,"expected":4,"key":7,"op":"cas","outcome":"done","return":24,"value":null}
//! {"call":15,"client":3,"key":7,"op":"put","return":null,"value":8}
//! ```
//!
//! | member | of | what |
//! |---|---|---|
//! | `client`, `key` | all | numbers |
//! | `call`, `return` | all | nanoseconds of one clock, in the simulator virtual ones; `return` is null if the outcome is unknown |
//! | `op` | all | `get`, `put`, `delete` or `cas` (compare-and-set) |
//! | `found` | get, mismatch | the number of the value that was there, null for absence |
//! | `value` | put, cas | the number of the value written, null for a delete (cas) |
//! | `expected` | cas | the number of the value that had to be there, null for absence |
//! | `was_there` | delete | whether it was, null if the outcome is unknown |
//! | `outcome` | cas | `done` or `mismatch`, null if it is unknown |
//!
//! What these mean is said at [`Operation`]: keys start absent, no two operations write the same value, and
//! an operation of unknown outcome may take effect at any time after its call, or never.

use serde_json::{Value, json};

use super::{Action, CompareOutcome, Operation, ValueId};

/// The file of a history.
pub fn write(history: &[Operation]) -> String {
    history.iter().map(|operation| line(operation) + "\n").collect()
}

/// The history of a file. `Err`: which line is wrong, and what with it.
pub fn read(file: &str) -> Result<Vec<Operation>, String> {
    let numbered = file.lines().enumerate();
    numbered.map(|(index, line)| parse(line).map_err(|what| format!("line {}: {what}", index + 1))).collect()
}

fn line(operation: &Operation) -> String {
    let mut object = match operation.action {
        Action::Get { found } => json!({"op": "get", "found": number(found)}),
        Action::Put { value } => json!({"op": "put", "value": value.0}),
        Action::Delete { was_there } => json!({"op": "delete", "was_there": was_there}),
        Action::CompareAndSet { expected, value, outcome } => {
            let mut object = json!({"op": "cas", "expected": number(expected), "value": number(value)});
            object["outcome"] = match outcome {
                None => Value::Null,
                Some(CompareOutcome::Done) => json!("done"),
                Some(CompareOutcome::Mismatch(found)) => {
                    object["found"] = json!(number(found));
                    json!("mismatch")
                }
            };
            object
        }
    };
    object["client"] = json!(operation.client);
    object["key"] = json!(operation.key);
    object["call"] = json!(operation.called_ns);
    object["return"] = json!(operation.returned_ns);
    object.to_string()
}

fn number(value: Option<ValueId>) -> Option<u64> {
    value.map(|value| value.0)
}

fn parse(line: &str) -> Result<Operation, String> {
    let object: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let member = |name: &str| object.get(name).ok_or(format!("no {name}"));
    let optional = |name: &str| match member(name)? {
        Value::Null => Ok(None),
        value => value.as_u64().map(Some).ok_or(format!("{name} is no number")),
    };
    let required = |name: &str| optional(name)?.ok_or(format!("{name} is null"));
    let value = |name: &str| Ok::<_, String>(optional(name)?.map(ValueId));
    let action = match member("op")?.as_str() {
        Some("get") => Action::Get { found: value("found")? },
        Some("put") => Action::Put { value: ValueId(required("value")?) },
        Some("delete") => match member("was_there")? {
            Value::Null => Action::Delete { was_there: None },
            Value::Bool(was_there) => Action::Delete { was_there: Some(*was_there) },
            _ => return Err("was_there is neither true nor false".to_string()),
        },
        Some("cas") => {
            let outcome = match member("outcome")? {
                Value::Null => None,
                Value::String(text) if text == "done" => Some(CompareOutcome::Done),
                Value::String(text) if text == "mismatch" => Some(CompareOutcome::Mismatch(value("found")?)),
                other => return Err(format!("no outcome is called {other}")),
            };
            Action::CompareAndSet { expected: value("expected")?, value: value("value")?, outcome }
        }
        _ => return Err("op is not one of get, put, delete and cas".to_string()),
    };
    let client = u32::try_from(required("client")?).map_err(|_| "client is too large".to_string())?;
    let (key, called_ns, returned_ns) = (required("key")?, required("call")?, optional("return")?);
    Ok(Operation { client, key, called_ns, returned_ns, action })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of the module's documentation.
    const LINES: &str = r#"{"call":10,"client":1,"found":4,"key":7,"op":"get","return":20}
{"call":11,"client":2,"key":7,"op":"put","return":21,"value":5}
{"call":12,"client":3,"key":7,"op":"delete","return":22,"was_there":true}
{"call":13,"client":1,"expected":5,"found":4,"key":7,"op":"cas","outcome":"mismatch","return":23,"value":6}
{"call":14,"client":2,"expected":4,"key":7,"op":"cas","outcome":"done","return":24,"value":null}
{"call":15,"client":3,"key":7,"op":"put","return":null,"value":8}
{"call":16,"client":1,"key":7,"op":"delete","return":null,"was_there":null}
{"call":17,"client":2,"expected":null,"key":7,"op":"cas","outcome":null,"return":null,"value":9}
{"call":18,"client":3,"found":null,"key":18446744073709551615,"op":"get","return":28}
"#;

    #[test]
    fn lines_say_what_was_done() {
        let history = read(LINES).expect("these are lines of the format");
        assert_eq!(write(&history), LINES);
        let shown: Vec<String> = history.iter().map(|operation| operation.to_string()).collect();
        assert_eq!(
            shown[..5],
            [
                "10..20 client 1 key 7: get -> v4",
                "11..21 client 2 key 7: put v5",
                "12..22 client 3 key 7: delete -> was there",
                "13..23 client 1 key 7: compare-and-set v5 to v6 -> mismatch, found v4",
                "14..24 client 2 key 7: compare-and-set v4 to absent -> done",
            ]
        );
        assert_eq!(shown[5], "15..? client 3 key 7: put v8");
        assert_eq!(shown[8], "18..28 client 3 key 18446744073709551615: get -> absent");
    }

    #[test]
    fn what_is_no_operation_is_refused() {
        for (line, what) in [
            ("", "EOF"),
            ("[]", "no op"),
            (r#"{"op":"swap"}"#, "op is not one of"),
            (r#"{"op":"get"}"#, "no found"),
            (r#"{"op":"put","value":null}"#, "value is null"),
            (r#"{"op":"put","value":-1}"#, "value is no number"),
            (r#"{"op":"delete","was_there":1}"#, "was_there is neither"),
            (r#"{"op":"put","value":1,"client":4294967296}"#, "client is too large"),
            (r#"{"op":"cas","outcome":"perhaps"}"#, "no outcome is called \"perhaps\""),
        ] {
            let error = parse(line).expect_err("it is no operation");
            assert!(error.contains(what), "{line}: {error}");
        }
        let error = read(&format!("{LINES}nonsense\n")).expect_err("its last line is no operation");
        assert!(error.starts_with("line 10: "), "{error}");
    }
}
