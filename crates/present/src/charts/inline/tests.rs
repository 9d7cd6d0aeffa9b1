//! Tests of the coordinates and numbers of figures within a page.

use super::*;

fn series(name: &str, colour: usize, values: &[f64]) -> RowSeries {
    RowSeries { name: name.to_owned(), colour: SeriesColour::Of(colour), values: values.to_vec() }
}

fn rows(marks: RowMarks, series: Vec<RowSeries>) -> RowFigure<'static> {
    let names = vec!["<first>".to_owned(), "second".to_owned()];
    RowFigure { id: "r", title: "A & B", row: "policy", values: "share, %", sign: " %", names, series, marks }
}

/// The values of an attribute in all elements of a name.
fn all<'a>(html: &'a str, element: &str, attribute: &str) -> Vec<&'a str> {
    let open = format!("<{element}");
    let name = format!(" {attribute}=\"");
    let tags = html.split(open.as_str()).skip(1).filter_map(|rest| Some(rest.split_once('>')?.0));
    tags.filter(|tag| tag.starts_with(' '))
        .filter_map(|tag| Some(tag.split_once(name.as_str())?.1.split_once('"')?.0))
        .collect()
}

fn titles(html: &str) -> Vec<&str> {
    html.split("<title>").skip(1).filter_map(|rest| Some(rest.split_once("</title>")?.0)).collect()
}

#[test]
fn ticks_are_round_and_have_few_digits() {
    let words = |scale: FigureScale| {
        scale.labelled_ticks().into_iter().map(|(_, word)| word).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(words(FigureScale::around_values([7.0, 100.0])), "0 20 40 60 80 100");
    assert_eq!(words(FigureScale::around_values([-3.0, 11.0])), "-4 -2 0 2 4 6 8 10 12");
    assert_eq!(words(FigureScale::around_values([3.4e9])), "0 0.5G 1.0G 1.5G 2.0G 2.5G 3.0G 3.5G");
    assert_eq!(words(FigureScale::around_values([81_000.0])), "0 20k 40k 60k 80k 100k");
    assert_eq!(words(FigureScale::around_values([0.3])), "0 0.05 0.10 0.15 0.20 0.25 0.30");
    assert_eq!(words(FigureScale::from_zero_to(7.0)), "0 1 2 3 4 5 6 7");
    assert_eq!(words(FigureScale::from_zero_to(30.7)), "0 5 10 15 20 25 30");
    for nothing in [
        FigureScale::around_values([]),
        FigureScale::around_values([f64::NAN, 0.0]),
        FigureScale::from_zero_to(0.0),
    ] {
        assert!(nothing.labelled_ticks().len() > 1 && nothing.share_of(0.0) == 0.0, "{nothing:?}");
    }
    let scale = FigureScale::around_values([-10.0, 30.0]);
    assert_eq!([-10.0, 0.0, 30.0, 99.0, f64::NAN].map(|x| scale.share_of(x)), [0.0, 0.25, 1.0, 1.0, 0.0]);
}

#[test]
fn tables_have_all_digits_of_large_numbers() {
    let words = [0.0, 12_345.678, 0.001_234_56, -99.987, f64::NAN, 1e9, -1234.0, 999.96].map(exact_number);
    assert_eq!(words, ["0", "12,346", "0.001235", "-99.99", "0", "1,000,000,000", "-1,234", "1,000"]);
}

#[test]
fn the_bars_of_a_single_series_have_numbers() {
    let html = rows(RowMarks::Bars, vec![series("", 0, &[100.0, 10.0])]).to_html();
    assert_eq!(all(&html, "rect", "width"), ["100%", "10%"]);
    assert_eq!(titles(&html), ["&lt;first&gt;: 100 %", "second: 10 %"]);
    assert!(html.contains(">100.0 %</text>") && html.contains(">10.0 %</text>"), "{html}");
    assert_eq!(html.matches("class=\"end\"").count(), 1, "the number of the short bar is outside of it");
    assert!(!html.contains("class=\"swatch\"") && html.contains("aria-label=\"A &amp; B\""), "{html}");
}

#[test]
fn bars_are_separate_or_stacked() {
    let two = || vec![series("x", 1, &[10.0, 40.0]), series("y", 2, &[30.0, f64::NAN])];
    let beside = rows(RowMarks::Bars, two()).to_html();
    assert_eq!(all(&beside, "rect", "x"), ["0%"; 4]);
    assert_eq!(all(&beside, "rect", "width"), ["25%", "100%", "75%", "0%"]);
    assert_eq!(all(&beside, "rect", "y"), ["5", "37", "16", "48"]);
    let stacked = rows(RowMarks::Stacked, two()).to_html();
    assert_eq!(all(&stacked, "rect", "x"), ["0%", "0%", "25%", "100%"]);
    assert_eq!(all(&stacked, "rect", "width"), ["25%", "100%", "75%", "0%"]);
    assert_eq!(stacked.matches("class=\"swatch\"").count(), 2);
    let less = rows(RowMarks::Stacked, vec![series("x", 1, &[30.0, 20.0]), series("y", 2, &[-10.0, 10.0])]);
    assert_eq!(
        all(&less.to_html(), "rect", "x"),
        ["25%", "25%", "0%", "75%"],
        "negative values lie on the left of 0"
    );
    let table = less.to_table();
    assert_eq!(table.heads, ["policy", "x", "y"]);
    assert_eq!(table.rows, [["<first>", "30 %", "-10 %"], ["second", "20 %", "10 %"]]);
    assert!(table.to_html().contains("<td>&lt;first&gt;</td><td>30 %</td>"), "{}", table.to_html());
}

#[test]
fn dots_can_be_switched_off() {
    let html =
        rows(RowMarks::Dots, vec![series("x", 1, &[10.0, 40.0]), series("y", 13, &[30.0, 0.0])]).to_html();
    assert_eq!(all(&html, "circle", "cx"), ["25%", "100%", "75%", "0%"]);
    assert_eq!(all(&html, "circle", "cy"), ["7", "21", "7", "21"]);
    assert_eq!(all(&html, "input", "id"), ["r-0", "r-1"]);
    assert!(html.contains("<g class=\"c1 s1\">"), "colours repeat: {html}");
    let style = figure_style(2);
    assert!(style.contains(".k1:not(:checked) ~ .chart .s1 { display: none; }") && !style.contains(".k2"));
    assert!(style.contains(".c11 {") && !style.contains(".c12") && !style.contains("url("));
}

fn line(name: &str, is_shown: bool, points: &[(f64, f64)]) -> StepLine {
    StepLine {
        name: name.to_owned(),
        colour: SeriesColour::Grey,
        is_filled: name == "filled",
        is_shown,
        points: points.to_vec(),
    }
}

fn steps(lines: Vec<StepLine>) -> StepFigure<'static> {
    StepFigure { id: "s", title: "Steps", times: "hours", end: 10.0, values: "nodes", lines }
}

#[test]
fn lines_go_in_steps_and_some_are_hidden_at_first() {
    let points = [(0.0, 50.0), (2.5, 100.0), (5.0, 100.0), (5.001, 99.99), (7.5, 0.0), (10.0, 0.0)];
    let html = steps(vec![line("filled", true, &points), line("other", false, &points)]).to_html();
    assert_eq!(
        all(&html, "path", "d"),
        ["M0 1000v-500h500v-500h1000v1000h500V1000z", "M0 500h500v-500h1000v1000h500"]
    );
    assert_eq!(html.matches(" checked>").count(), 1);
    assert!(html.contains("id=\"s-0\" autocomplete=\"off\" checked>"), "{html}");
    let nothing = steps(vec![line("none", true, &[])]);
    assert!(nothing.to_html().contains("d=\"\"") && nothing.to_table(5.0).rows.len() == 2);
}

#[test]
fn the_table_of_lines_has_means() {
    let points = [(0.0, 50.0), (2.0, 100.0), (5.0, 8.0), (9.0, 8.0)];
    let table = steps(vec![line("x", true, &points)]).to_table(4.0);
    assert_eq!(table.heads, ["hours", "x"]);
    assert_eq!(table.rows, [["0–4", "75"], ["4–8", "31"], ["8–10", "4"]]);
}

fn cells(cells: Vec<Vec<Option<usize>>>) -> RasterFigure<'static> {
    let kind = |name: &str, colour| CellKind { name: name.to_owned(), colour };
    RasterFigure {
        title: "Cells",
        times: "days",
        end: 7.0,
        row: "node",
        names: (1..=cells.len()).map(|i| format!("n<{i}>")).collect(),
        cells,
        kinds: vec![kind("idle", SeriesColour::Grey), kind("job & co", SeriesColour::Of(0))],
        is_named: true,
    }
}

#[test]
fn adjacent_cells_are_one_stroke() {
    let idle = Some(0);
    let job = Some(1);
    let html = cells(vec![vec![idle, idle, None, job, idle], vec![None, job, job, job, None]]).to_html();
    assert_eq!(all(&html, "path", "d"), ["M0 0h2m2 0h1", "M3 0h1", "M1 1h3"]);
    assert_eq!(titles(&html), ["n&lt;1&gt;: idle", "n&lt;1&gt;: job &amp; co", "n&lt;2&gt;: job &amp; co"]);
    assert!(
        html.contains("viewBox=\"0 -.5 5 2\"") && html.matches("class=\"swatch\"").count() == 2,
        "{html}"
    );
    assert_eq!(html.matches("<g ").count(), html.matches("</g>").count());
    let unnamed = RasterFigure { is_named: false, ..cells(vec![]) };
    assert!(!unnamed.to_html().contains("class=\"swatch\""));
}

#[test]
fn many_rows_fit_a_sheet_and_only_some_are_named() {
    let html = cells(vec![vec![None]; 128]).to_html();
    assert_eq!(all(&html, "svg", "height"), ["640", "100%"]);
    assert_eq!((1..=128).filter(|i| html.contains(&format!(">n&lt;{i}&gt;</text>"))).count(), 43);
}
