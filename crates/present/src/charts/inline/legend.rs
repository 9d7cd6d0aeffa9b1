//! Legends of figures within a page.

use super::SeriesColour;
use crate::charts::markup;

/// An entry of a legend.
pub(crate) struct LegendKey<'a> {
    /// The raw name; it is shortened and escaped.
    pub name: &'a str,
    /// The colour of its marks.
    pub colour: SeriesColour,
    /// Whether the figure shows its marks at first.
    pub is_shown: bool,
}

/// A legend that names the colours.
pub(crate) fn fixed_legend<'a>(keys: impl IntoIterator<Item = LegendKey<'a>>) -> String {
    keys.into_iter().map(|key| format!("<span class=\"swatch\">{}</span>\n", key_html(&key))).collect()
}

/// A legend whose entries show and hide the marks of the classes `s0`, `s1` and so on. `figure` is an id that
/// is unique within the page.
pub(crate) fn switch_legend<'a>(figure: &str, keys: impl IntoIterator<Item = LegendKey<'a>>) -> String {
    let mut html = String::new();
    for (i, key) in keys.into_iter().enumerate() {
        let checked = if key.is_shown { " checked" } else { "" };
        html += &format!(
            "<input type=\"checkbox\" class=\"k{i}\" id=\"{figure}-{i}\" autocomplete=\"off\"{checked}>\
             <label class=\"swatch\" for=\"{figure}-{i}\">{}</label>\n",
            key_html(&key)
        );
    }
    html
}

fn key_html(key: &LegendKey<'_>) -> String {
    format!("<b class=\"{}\"></b> {}", key.colour.class(), markup::label_html(key.name))
}
