//! Names beside their colours.

use super::Colour;
use crate::charts::markup;

/// A name of a legend.
pub(crate) struct Key<'a> {
    /// As it stands outside.
    pub name: &'a str,
    /// Its colour.
    pub colour: Colour,
    /// Whether the figure shows it at first.
    pub is_shown: bool,
}

/// Names that say what a colour means.
pub(crate) fn fixed<'a>(keys: impl IntoIterator<Item = Key<'a>>) -> String {
    let key = |key: Key<'_>| format!("<span class=\"swatch\">{}</span>\n", words(&key));
    keys.into_iter().map(key).collect()
}

/// Names that show and hide what the figure's style sheet knows by `s0`, `s1` and so on. `figure` tells the
/// page's figures apart.
pub(crate) fn switches<'a>(figure: &str, keys: impl IntoIterator<Item = Key<'a>>) -> String {
    let key = |(i, key): (usize, Key<'_>)| {
        let checked = if key.is_shown { " checked" } else { "" };
        format!(
            "<input type=\"checkbox\" class=\"k{i}\" id=\"{figure}-{i}\" autocomplete=\"off\"{checked}>\
             <label class=\"swatch\" for=\"{figure}-{i}\">{}</label>\n",
            words(&key)
        )
    };
    keys.into_iter().enumerate().map(key).collect()
}

fn words(key: &Key<'_>) -> String {
    format!("<b class=\"{}\"></b> {}", key.colour.class(), markup::label(key.name))
}
