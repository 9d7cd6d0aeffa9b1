//! Names beside their colours.

use super::SeriesColour;
use crate::charts::markup;

/// A name of a legend.
pub(crate) struct LegendKey<'a> {
    /// As it stands outside.
    pub name: &'a str,
    /// Its colour.
    pub colour: SeriesColour,
    /// Whether the figure shows it at first.
    pub is_shown: bool,
}

/// Names that say what a colour means.
pub(crate) fn fixed_legend<'a>(keys: impl IntoIterator<Item = LegendKey<'a>>) -> String {
    keys.into_iter()
        .map(|key: LegendKey<'_>| format!("<span class=\"swatch\">{}</span>\n", key_html(&key)))
        .collect()
}

/// Names that show and hide what the figure's style sheet knows by `s0`, `s1` and so on. `figure` tells the
/// page's figures apart.
pub(crate) fn switch_legend<'a>(figure: &str, keys: impl IntoIterator<Item = LegendKey<'a>>) -> String {
    let key = |(i, key): (usize, LegendKey<'_>)| {
        let checked = if key.is_shown { " checked" } else { "" };
        format!(
            "<input type=\"checkbox\" class=\"k{i}\" id=\"{figure}-{i}\" autocomplete=\"off\"{checked}>\
             <label class=\"swatch\" for=\"{figure}-{i}\">{}</label>\n",
            key_html(&key)
        )
    };
    keys.into_iter().enumerate().map(key).collect()
}

fn key_html(key: &LegendKey<'_>) -> String {
    format!("<b class=\"{}\"></b> {}", key.colour.class(), markup::label_html(key.name))
}
