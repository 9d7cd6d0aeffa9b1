//! Descriptions for the document, from doc comments.

use infill_api::{
    DEFAULT_ROUNDS, FORGET_USER_PURPOSE, LINK_PURPOSE, MAX_DAY_SECS, MAX_DELAYS, MAX_ENDED, MAX_EVENTS,
    MAX_HISTORY, MAX_IMPORTED, MAX_LANES, MAX_POLL_SECS, MAX_ROUNDS, MAX_TIMELINE_SECS, PROTOCOL,
    REVOKE_PURPOSE,
};
use infill_model::LAYERS_VERSION;

/// What a link in a doc comment stands for, to those who do not read the source.
///
/// # Panics
///
/// If a doc comment of the document has a link that is not here.
fn link_text(name: &str) -> String {
    match name {
        "DEFAULT_ROUNDS" => DEFAULT_ROUNDS.to_string(),
        "LAYERS_VERSION" => LAYERS_VERSION.to_string(),
        "MAX_DAY_SECS" => MAX_DAY_SECS.to_string(),
        "MAX_DELAYS" => MAX_DELAYS.to_string(),
        "MAX_ENDED" => MAX_ENDED.to_string(),
        "MAX_EVENTS" => MAX_EVENTS.to_string(),
        "MAX_HISTORY" => MAX_HISTORY.to_string(),
        "MAX_IMPORTED" => MAX_IMPORTED.to_string(),
        "MAX_LANES" => MAX_LANES.to_string(),
        "MAX_POLL_SECS" => MAX_POLL_SECS.to_string(),
        "MAX_ROUNDS" => MAX_ROUNDS.to_string(),
        "MAX_TIMELINE_SECS" => MAX_TIMELINE_SECS.to_string(),
        "FORGET_USER_PURPOSE" => format!("`{FORGET_USER_PURPOSE}`"),
        "LINK_PURPOSE" => format!("`{LINK_PURPOSE}`"),
        "REVOKE_PURPOSE" => format!("`{REVOKE_PURPOSE}`"),
        "PROTOCOL" => format!("protocol, now {PROTOCOL}"),
        "AgentEvent::Progress" => "`progress`".to_owned(),
        "bound_payload" => "that of the security scheme `munge`".to_owned(),
        "hello_payload" => "`infill1`, purpose, job and nonce".to_owned(),
        "BatchMode::Auto" => "`auto`".to_owned(),
        "crate::Capability::SealedSession" => "`sealed_session`".to_owned(),
        "crate::seal" => "see the security schemes".to_owned(),
        "NodeRow::runs" => "`NodeRow.runs`".to_owned(),
        "WebLink::ticket" => "`WebLink.ticket`".to_owned(),
        "AgentHello" | "ForgetRequest" | "ImportRequest" | "RevokeRequest" => format!("`{name}`"),
        _ => panic!("say in {} what [`{name}`] stands for in the document", file!()),
    }
}

/// A doc comment as a description, without links. In JSON, `None` is null.
pub(super) fn plain_text(comment: &str) -> String {
    let mut text = String::new();
    let mut rest = without_query(comment);
    while let Some((before, link)) = rest.split_once("[`") {
        let (name, after) = link.split_once("`]").expect("a link ends");
        text += before;
        text += &link_text(name);
        let target_end = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        rest = target_end.map_or(after, |(_, after)| after);
    }
    text += rest;
    let paragraphs: Vec<String> = text.split("\n\n").map(|lines| lines.replace('\n', " ")).collect();
    paragraphs.join("\n\n").replace(". `None`", ". Null").replace("`None`", "null").trim().to_owned()
}

/// A doc comment without the sentence that names the query which it answers: the document has no schema of a
/// query.
fn without_query(comment: &str) -> &str {
    let first = comment.split_once(". ").map_or(comment, |(first, _)| first);
    let names_query = first.starts_with("Answer to ") && first.contains("Query`]");
    if names_query { comment[first.len()..].trim_start_matches(['.', ' ']) } else { comment }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_become_words_and_numbers() {
        for (comment, text) in [
            ("At most [`MAX_ROUNDS`]\nof them.", "At most 1000 of them."),
            ("At most\n[`MAX_LANES`](super::MAX_LANES); `None` if", "At most 200; null if"),
            ("Nodes. `None`\n\nif", "Nodes. Null\n\nif"),
            ("Answer to a [`LanesQuery`]. It names no job.", "It names no job."),
            ("Answer to a [`LanesQuery`].", ""),
            ("Answer to `GET /v1/rounds`.", "Answer to `GET /v1/rounds`."),
        ] {
            assert_eq!(plain_text(comment), text);
        }
    }
}
