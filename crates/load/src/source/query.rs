//! Queries of relations, as maps have them for databases.

use crate::map::Relation;

/// A query as it is written in a map, without the end that a shell wants.
pub(super) fn bare(query: &str) -> &str {
    query.trim().trim_end_matches(';').trim_end()
}

/// The query of a relation.
pub(super) fn query_of(relation: &Relation) -> Result<&str, String> {
    match relation {
        Relation::Query(query) => Ok(bare(query)),
        Relation::Unsaid => Err("it does not say where its rows are; say query".into()),
        Relation::File(_) => Err("the source is a database, which has no files; say query".into()),
        Relation::Elements(_) => Err("elements are for maps of OpenStreetMap; say query".into()),
    }
}
