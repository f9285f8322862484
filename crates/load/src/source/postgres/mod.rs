//! PostgreSQL: the answers to queries, all of one snapshot, by `COPY (query) TO STDOUT`.
//!
//! A load opens one connection and one transaction, `repeatable read, read only`. The rows of a query come as
//! text, which `copy` splits in place. Around it is the runtime of `tokio-postgres`, in the caller's thread:
//! nothing runs beside it.

mod binding;
mod connection;
mod copy;
mod identity;
mod passwords;
#[cfg(test)]
mod rate;
mod tls;

use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::runtime::Runtime;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, CopyOutStream, Row, Statement};

use super::query::{bare, query_of};
use super::{Form, Forms, Origin, Sink, Source, choice};
use crate::batch::Batch;
use crate::changes::{Answer, State, wrong};
use crate::map::{Map, Relation};
use crate::problem::Problem;
use connection::Driver;
use copy::Columns;

/// A database, with a transaction from [`Source::begin`] on.
pub(crate) struct Database {
    runtime: Runtime,
    /// There until it takes leave.
    client: Option<Client>,
    driver: Driver,
}

/// What the session's texts depend on, what could end it, and what would hide rows without a word, as
/// `pg_dump` sets them: databases and roles may say otherwise for those who type. A setting that a release
/// does not have is left out; the address may ask for `row_security`.
const SETTINGS: &str = "\
    select set_config(known.name, wanted.value, false) from pg_settings known join (values \
    ('bytea_output', 'hex'), ('client_encoding', 'UTF8'), ('datestyle', 'ISO, YMD'), ('extra_float_digits', '3'), \
    ('intervalstyle', 'postgres'), ('timezone', 'UTC'), ('xmloption', 'content'), ('standard_conforming_strings', 'on'), \
    ('lc_monetary', 'C'), ('array_nulls', 'on'), ('transform_null_equals', 'off'), \
    ('statement_timeout', '0'), ('lock_timeout', '0'), ('transaction_timeout', '0'), \
    ('idle_in_transaction_session_timeout', '0'), ('idle_session_timeout', '0'), ('synchronize_seqscans', 'off'), ('row_security', 'off')) \
    wanted (name, value) on lower(known.name) = wanted.name \
    where known.name <> 'row_security' or known.source <> 'client'";

/// A table of columns: what they are called, and their forms.
pub(crate) const FORMS: &str = "\
    forms as ( \
        select a.attrelid, a.attnum, format_type(a.atttypid, a.atttypmod) || case when d.is_exact then '' else \
            format(' collate %I', c.collname) end as called, \
        case \
            when not d.is_exact then null \
            when b.typname in ('int2', 'int4', 'int8', 'oid') then 'int8' \
            when b.typname in ('text', 'varchar', 'name') then 'text' \
            when b.typname in ('bpchar', 'numeric') and a.atttypmod <> -1 then format_type(a.atttypid, a.atttypmod) \
            when b.typname in ('bool', 'uuid', 'bytea', 'date', 'time', 'timestamp', 'timestamptz', 'char', 'inet', 'cidr', \
                'macaddr', 'macaddr8', 'bit', 'varbit') or b.typtype = 'e' then format_type(b.oid, -1) end as form \
        from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid \
        left join pg_catalog.pg_type b on b.oid = case t.typtype when 'd' then t.typbasetype else t.oid end \
            and (b.typtype = 'e' or b.typnamespace = 'pg_catalog'::regnamespace) \
        left join pg_catalog.pg_collation c on c.oid = a.attcollation \
        cross join lateral (select coalesce(to_jsonb(c) ->> 'collisdeterministic', 'true') = 'true') d (is_exact))";

/// How long taking leave may take. A server that has more to send is left without.
const LEAVE: Duration = Duration::from_millis(200);

/// What an error of the database says.
pub(super) fn said(error: &tokio_postgres::Error) -> String {
    let Some(own) = error.as_db_error() else {
        let source = std::error::Error::source(error);
        return source.map_or(error.to_string(), |source| format!("{error}: {source}"));
    };
    let mut text = own.message().to_string();
    for more in [own.detail(), own.hint()].into_iter().flatten() {
        text += &format!(" ({more})");
    }
    if own.code() == &SqlState::INSUFFICIENT_PRIVILEGE && text.contains("row-level security") {
        text += "; load as a role that has BYPASSRLS, or add options=-c%20row_security%3Don to the address for the rows that it may see";
    }
    text
}

impl Database {
    /// Connects.
    pub fn connect(from: &Origin) -> Result<Database, Problem> {
        let runtime = kelix_fabric::descriptors::check_for_runtime()
            .and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build())
            .map_err(|source| Problem::Source(format!("cannot wait for a database: {source}")))?;
        let (client, driver) = connection::open(from, &runtime)?;
        let database = Database { runtime, client: Some(client), driver };
        database.execute(SETTINGS)?;
        Ok(database)
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("it has not taken leave")
    }

    fn execute(&self, statements: &str) -> Result<(), Problem> {
        let done = self.runtime.block_on(self.client().batch_execute(statements));
        done.map_err(|error| Problem::Source(format!("PostgreSQL refused: {}", said(&error))))
    }

    /// The rows of a small query.
    pub fn query(&self, query: &str) -> Result<Vec<Row>, Problem> {
        let rows = self.runtime.block_on(self.client().query(query, &[]));
        rows.map_err(|error| Problem::Source(format!("PostgreSQL refused: {}", said(&error))))
    }

    fn prepare(&self, query: &str) -> Result<Statement, tokio_postgres::Error> {
        // A statement that fails ends the transaction unless it was begun apart.
        self.runtime.block_on(async {
            self.client().batch_execute("savepoint prepared").await?;
            let statement = self.client().prepare(query).await;
            let back = "rollback to savepoint prepared; release savepoint prepared";
            self.client().batch_execute(back).await?;
            statement
        })
    }

    /// The state that a query tells.
    fn answer(&self, query: &str) -> Result<State, Problem> {
        let failed = |error: tokio_postgres::Error| match error.as_db_error() {
            Some(_) => wrong(format_args!("PostgreSQL refuses its query: {}", said(&error))),
            None => Problem::Source(format!("the query of changed failed: {}", said(&error))),
        };
        let statement = self.runtime.block_on(self.client().prepare(query)).map_err(failed)?;
        if let Some(text) = unfit(&statement) {
            return Err(wrong(text));
        }
        let mut stream = self.copy(query).map_err(failed)?;
        self.runtime.block_on(async {
            let mut answer = Answer::default();
            while let Some(data) = stream.next().await {
                answer.add(&data.map_err(failed)?);
            }
            Ok(answer.state())
        })
    }

    fn copy(&self, query: &str) -> Result<Pin<Box<CopyOutStream>>, tokio_postgres::Error> {
        // The end of a line ends a comment, which a query may end with.
        let copy = format!("copy ({query}\n) to stdout");
        self.runtime.block_on(self.client().copy_out(&copy)).map(Box::pin)
    }
}

/// Why a query cannot be copied from.
fn unfit(statement: &Statement) -> Option<&'static str> {
    match (statement.columns(), statement.params()) {
        ([], _) => Some("its query gives no rows"),
        (_, []) => None,
        _ => Some("its query has parameters ($1), for which there are no values"),
    }
}

impl Drop for Database {
    /// Takes leave, so that the server does not log a client that vanished.
    fn drop(&mut self) {
        drop(self.client.take());
        let driver = &mut self.driver;
        let _ = self.runtime.block_on(async { tokio::time::timeout(LEAVE, driver).await });
    }
}

impl Source for Database {
    fn state(&mut self, map: &Map) -> Result<Option<State>, Problem> {
        let Some(query) = &map.changed else { return Ok(None) };
        self.execute("begin read only")?;
        let answer = self.answer(bare(query));
        self.execute("rollback")?;
        answer.map(Some)
    }

    fn begin(&mut self) -> Result<(), Problem> {
        // The first statement takes the snapshot.
        self.execute("begin isolation level repeatable read, read only; select 1")
    }

    fn name(&self, _: &Relation, table: &str) -> String {
        table.to_string()
    }

    fn place(&self, _: &Relation, _: &str) -> &'static str {
        "row"
    }

    fn check(&self, relation: &Relation, _: &str) -> Result<(), String> {
        let query = query_of(relation)?;
        let statement =
            self.prepare(query).map_err(|error| format!("PostgreSQL refuses its query: {}", said(&error)))?;
        unfit(&statement).map_or(Ok(()), |text| Err(text.into()))
    }

    fn forms(&self, relation: &Relation) -> Result<Forms, Problem> {
        let query = query_of(relation).map_err(Problem::Source)?;
        let statement = self.prepare(query).map_err(|error| Problem::Source(said(&error)))?;
        let own = statement.columns().iter().filter_map(|column| {
            Some(((i64::from(column.table_oid()?), column.column_id()?), column.name()))
        });
        let own: Vec<((i64, i16), &str)> = own.collect();
        if own.is_empty() {
            return Ok(Forms::new());
        }
        let places: Vec<String> =
            own.iter().map(|((table, number), _)| format!("({table}, {number})")).collect();
        let rows = self.query(&format!(
            "with {FORMS} select attrelid::int8, attnum, called, form from forms where (attrelid, attnum) in ({})",
            places.join(", ")
        ))?;
        let form = |row: &Row| ((row.get(0), row.get(1)), Form { called: row.get(2), form: row.get(3) });
        let forms: HashMap<(i64, i16), Form> = rows.iter().map(form).collect();
        let known = |(place, name): ((i64, i16), &str)| Some((name.to_string(), forms.get(&place)?.clone()));
        Ok(own.into_iter().filter_map(known).collect())
    }

    fn rows(
        &mut self,
        relation: &Relation,
        table: &str,
        _: &[String],
        sink: &mut dyn Sink,
    ) -> Result<(), Problem> {
        let failed = |error: tokio_postgres::Error| {
            Problem::Source(format!("the query of {table} failed: {}", said(&error)))
        };
        let query = query_of(relation).map_err(Problem::Source)?;
        let statement = self.prepare(query).map_err(failed)?;
        let names: Vec<String> = statement.columns().iter().map(|column| column.name().to_string()).collect();
        if !sink.begin(&names, &choice(&names)) {
            return Ok(());
        }
        let bytes = statement.columns().iter().map(|column| *column.type_() == Type::BYTEA);
        let mut columns = Columns::new(bytes.collect());
        let mut stream = self.copy(query).map_err(failed)?;
        let mut batch = Batch::new(names.len());
        loop {
            let ended = self.runtime.block_on(fill(&mut stream, &mut columns, &mut batch)).map_err(failed)?;
            if !sink.take(&batch)? || ended {
                return Ok(());
            }
            batch.clear();
        }
    }
}

/// Fills a batch; whether there is no more.
async fn fill(
    stream: &mut Pin<Box<CopyOutStream>>,
    columns: &mut Columns,
    batch: &mut Batch,
) -> Result<bool, tokio_postgres::Error> {
    while !batch.is_full() {
        match stream.next().await {
            Some(data) => columns.add(&data?, batch),
            None => return Ok(true),
        }
    }
    Ok(false)
}
