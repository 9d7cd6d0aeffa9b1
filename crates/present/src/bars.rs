//! Bars of characters.

use std::fmt::Write;

/// Eighths of a cell, from one to seven.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// A colour of the terminal, as its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalColour(pub u8);

/// Cyan.
pub const CYAN: TerminalColour = TerminalColour(36);
/// Yellow.
pub const YELLOW: TerminalColour = TerminalColour(33);
/// Red.
pub const RED: TerminalColour = TerminalColour(31);
/// Green.
pub const GREEN: TerminalColour = TerminalColour(32);

/// A part of a stacked bar.
#[derive(Clone, Copy, Debug)]
pub struct BarPart {
    /// Its share of the whole bar.
    pub share: f64,
    /// What it is filled with, so that it is told from its neighbours without colours too.
    pub fill: char,
    /// Its colour.
    pub colour: TerminalColour,
}

/// The text in a colour, if colours are wanted.
pub fn colour_text(text: &str, colour: TerminalColour, wanted: bool) -> String {
    if wanted && !text.trim().is_empty() {
        format!("\u{1b}[{}m{text}\u{1b}[0m", colour.0)
    } else {
        text.to_owned()
    }
}

/// A bar over a share of so many cells, to an eighth of a cell, without the blanks after it. What is more
/// than nothing is seen.
pub fn draw_bar(share: f64, cells: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * cells as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let mut text = "█".repeat(eighths / 8);
    text.extend((eighths % 8).checked_sub(1).and_then(|i| EIGHTHS.get(i)));
    text
}

/// A bar of parts, one behind the other, at most so many cells long. Parts end at the cell next to their true
/// end.
pub fn draw_stacked_bar(parts: &[BarPart], cells: usize, colours: bool) -> String {
    let mut text = String::new();
    let mut sum = 0.0;
    let mut filled = 0usize;
    for part in parts {
        sum += part.share.max(0.0);
        let end = (sum.min(1.0) * cells as f64).round() as usize;
        let cells: String = std::iter::repeat_n(part.fill, end.saturating_sub(filled)).collect();
        let _ = write!(text, "{}", colour_text(&cells, part.colour, colours));
        filled = filled.max(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_drawn_to_an_eighth() {
        let all = [0.0, 0.001, 0.5, 0.53125, 1.0, 7.0, -1.0, f64::NAN].map(|share| draw_bar(share, 4));
        assert_eq!(all, ["", "▏", "██", "██▏", "████", "████", "", ""]);
    }

    #[test]
    fn parts_never_exceed_the_bar() {
        let part = |share, fill| BarPart { share, fill, colour: RED };
        let draw = |parts: &[BarPart]| draw_stacked_bar(parts, 10, false);
        assert_eq!(draw(&[part(0.5, '#'), part(0.04, '+'), part(0.02, 'x'), part(0.44, '.')]), "#####x....");
        assert_eq!(draw(&[part(0.9, '#'), part(0.9, '+')]), "#########+");
        assert_eq!(draw(&[part(-0.3, '#'), part(f64::NAN, '+'), part(0.2, '.')]), "..");
    }

    #[test]
    fn colours_are_codes_around_the_same_characters() {
        let parts =
            [BarPart { share: 0.5, fill: '#', colour: CYAN }, BarPart { share: 0.0, fill: '+', colour: RED }];
        assert_eq!(draw_stacked_bar(&parts, 4, true), "\u{1b}[36m##\u{1b}[0m");
        assert_eq!(colour_text("  ", CYAN, true), "  ");
    }
}
