//! `kelix table`: the tables of a server.

use std::io::Write;

use serde_json::json;

use crate::Failure;
use crate::bytes::show_name;
use crate::context::{Context, create_table};

/// Make and list tables
#[derive(clap::Subcommand)]
pub(crate) enum TableCommand {
    /// Make a table
    ///
    /// Does nothing if the table exists. `kelix put` makes the tables it needs by itself.
    #[command(after_long_help = "Example:\n  kelix table create people")]
    Create {
        /// Its name: 1 to 255 bytes, without /
        table: String,
    },
    /// List the tables, one a line, in the order of their making
    #[command(after_long_help = "Example:\n  kelix table list --json")]
    List,
}

pub(crate) fn run(context: &Context, command: &TableCommand) -> Result<(), Failure> {
    let mut session = context.session()?;
    match command {
        TableCommand::Create { table } => {
            let id = create_table(&mut session, "table create", table)?.id().0;
            if context.json { context.print_json(&json!({"table": table, "id": id})) } else { Ok(()) }
        }
        TableCommand::List => {
            let tables = session.tables()?;
            if context.json {
                return context.print_json(&json!({"tables": tables}));
            }
            let mut out = std::io::stdout().lock();
            for table in tables {
                writeln!(out, "{}", show_name(&table))?;
            }
            Ok(out.flush()?)
        }
    }
}
