//! A figure of the page with its caption and table.

use std::fmt::Write;

use infill_present::charts::inline::NumberTable;
use infill_present::charts::markup;

/// A figure of the page.
pub(crate) struct PageFigure {
    /// What it shows.
    pub title: &'static str,
    /// How to read it; text, not HTML.
    pub caption: String,
    /// Its legend and drawing, as HTML.
    pub drawing: String,
    /// Its numbers, unless the drawing shows them.
    pub table: Option<NumberTable>,
}

impl PageFigure {
    /// The figure as HTML.
    pub fn to_html(&self) -> String {
        let mut text = String::with_capacity(self.drawing.len() + 512);
        let title = markup::escape_html(self.title);
        let caption = markup::escape_html(&self.caption);
        let table = self.table.as_ref().map_or_else(String::new, NumberTable::to_html);
        let _ = write!(
            text,
            "<figure>\n<h2>{title}</h2>\n{}<figcaption>{caption}</figcaption>\n{table}</figure>\n",
            self.drawing
        );
        text
    }
}
