//! Bars drawn with characters.

use std::fmt::Write;

/// Characters that fill one to seven eighths of a cell.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// A foreground colour of the terminal, as the parameter of its escape sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalColour(pub u8);

/// The terminal's cyan.
pub const CYAN: TerminalColour = TerminalColour(36);
/// The terminal's yellow.
pub const YELLOW: TerminalColour = TerminalColour(33);
/// The terminal's red.
pub const RED: TerminalColour = TerminalColour(31);
/// The terminal's green.
pub const GREEN: TerminalColour = TerminalColour(32);

/// A part of a stacked bar.
#[derive(Clone, Copy, Debug)]
pub struct BarPart {
    /// Its share of the whole bar, from 0 to 1.
    pub share: f64,
    /// The character that fills it, which distinguishes it from its neighbours where there are no colours.
    pub fill: char,
    /// The colour of these characters.
    pub colour: TerminalColour,
}

/// The text in a colour if `wanted`, else as it is. Blanks are never coloured.
pub fn colour_text(text: &str, colour: TerminalColour, wanted: bool) -> String {
    if wanted && !text.trim().is_empty() {
        format!("\u{1b}[{}m{text}\u{1b}[0m", colour.0)
    } else {
        text.to_owned()
    }
}

/// A bar over a share of `cells` cells, to an eighth of a cell, without the blanks after it. A share above 0
/// is always visible.
pub fn draw_bar(share: f64, cells: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * cells as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let mut text = "█".repeat(eighths / 8);
    text.extend((eighths % 8).checked_sub(1).and_then(|i| EIGHTHS.get(i)));
    text
}

/// A bar of parts one after the other, at most `cells` cells long. Each part ends at the cell boundary
/// nearest to its true end.
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
