//! The SQL conditions that select profiles by a filter or by their key.

use sqlx::QueryBuilder;

use super::{SqlDatabase, storable_text};
use infill_model::{ProfileFilter, ProfileKey};

/// Adds a filter's conditions to a query that already has a `WHERE`. Adds none for fields that the filter
/// leaves open, so that the database can use an index for the others.
pub(super) fn push_filter(query: &mut QueryBuilder<SqlDatabase>, filter: &ProfileFilter) {
    let ProfileFilter { user, name, node_type, exec_plan } = filter;
    let conditions = [
        (" AND owner = ", user.as_deref()),
        (" AND name = ", name.as_deref()),
        (" AND node_type = ", node_type.as_ref().map(|t| t.as_str())),
        (" AND exec_plan = ", exec_plan.as_ref().map(|p| p.0.as_str())),
    ];
    for (condition, value) in conditions {
        if let Some(value) = value {
            query.push(condition).push_bind(storable_text(value));
        }
    }
}

/// Adds the conditions that select one profile.
pub(super) fn push_key(query: &mut QueryBuilder<SqlDatabase>, key: &ProfileKey) {
    let ProfileKey { user, name, node_type, exec_plan, batch } = key;
    query.push(" AND owner = ").push_bind(storable_text(user));
    query.push(" AND name = ").push_bind(storable_text(name));
    query.push(" AND node_type = ").push_bind(storable_text(node_type.as_str()));
    query.push(" AND exec_plan = ").push_bind(storable_text(&exec_plan.0));
    query.push(" AND batch = ").push_bind(batch.word());
}
