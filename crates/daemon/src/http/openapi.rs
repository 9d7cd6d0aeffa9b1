//! The description of these routes in OpenAPI, for programs that read them.

#[cfg(test)]
mod descriptions;
#[cfg(test)]
pub(crate) mod document;
#[cfg(test)]
mod operations;
#[cfg(test)]
mod schemas;
#[cfg(test)]
mod security;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod validation;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

/// The document, which the tests of the routes write.
const DOCUMENT: &str = include_str!("../../../../docs/reference/openapi.json");

/// `GET /v1/openapi.json`.
pub(crate) async fn get_document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT)
}
