//! Escapes and shortens text from outside (names of jobs, nodes and files) for HTML and for figures.

/// The longest label of a figure, in characters.
const LONGEST_LABEL: usize = 24;

/// Escapes a text for the content or an attribute of HTML. Control characters other than newlines become `?`.
pub fn escape_html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() && c != '\n' => safe.push('?'),
            c => safe.push(c),
        }
    }
    safe
}

/// A label of a figure: shortened and escaped.
pub(crate) fn label_html(text: &str) -> String {
    escape_html(&shorten_label(text))
}

/// Shortens a text to the longest label, with `…` at its end. The result is not escaped.
pub(crate) fn shorten_label(text: &str) -> String {
    let mut short: String = text.chars().take(LONGEST_LABEL).collect();
    if text.chars().nth(LONGEST_LABEL).is_some() {
        short.pop();
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "</script><script>alert(1)//";

    #[test]
    fn html_has_no_tags() {
        assert_eq!(escape_html(EVIL), "&lt;/script&gt;&lt;script&gt;alert(1)//");
        assert_eq!(escape_html("a&\"b'\u{7}\n"), "a&amp;&quot;b&#39;?\n");
    }

    #[test]
    fn labels_are_short() {
        assert_eq!(label_html("vgg-1"), "vgg-1");
        assert_eq!(label_html(&"x".repeat(24)), "x".repeat(24));
        assert_eq!(label_html(&"ä".repeat(25)), format!("{}…", "ä".repeat(23)));
        assert_eq!(label_html("<b>x"), "&lt;b&gt;x");
    }
}
