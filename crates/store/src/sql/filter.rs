//! Which profiles: the conditions of a filter, and of a key.

use sqlx::QueryBuilder;

use super::{SqlDatabase, storable_text};
use infill_model::{ProfileFilter, ProfileKey};

/// Adds a filter's conditions to a query that has one. What the filter leaves open is not asked for at all:
/// the database then finds by its index what is left.
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

/// Adds the conditions that name one profile.
pub(super) fn push_key(query: &mut QueryBuilder<SqlDatabase>, key: &ProfileKey) {
    let ProfileKey { user, name, node_type, exec_plan, batch } = key;
    query.push(" AND owner = ").push_bind(storable_text(user));
    query.push(" AND name = ").push_bind(storable_text(name));
    query.push(" AND node_type = ").push_bind(storable_text(node_type.as_str()));
    query.push(" AND exec_plan = ").push_bind(storable_text(&exec_plan.0));
    query.push(" AND batch = ").push_bind(batch.word());
}
