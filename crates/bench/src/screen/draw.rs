//! Draws the state of a run.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Gauge, Paragraph, Row, Table, Wrap};

use super::state::State;
use super::trend;
use crate::outcome::{CommandTally, Period};
use crate::report::units::{count, latency, network, percent, short};
use crate::report::words;

pub(super) fn draw(frame: &mut Frame<'_>, state: &State, stopping: bool) {
    let commands = state.so_far.commands.len().max(1) as u16;
    let failed = u16::from(state.so_far.has_failed());
    let [heading, progress, failures, lines, table, costs, examples, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Length(failed),
        Constraint::Length(7),
        Constraint::Length(commands + 4),
        Constraint::Length(2),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_heading(frame, heading, state);
    draw_progress(frame, progress, state, stopping);
    draw_lines(frame, lines, state);
    draw_commands(frame, table, state);
    draw_costs(frame, costs, state);
    let text = format!("FAILED: {}", words::failures(&state.so_far));
    frame.render_widget(Line::from(text).white().on_red().bold(), failures);
    draw_examples(frame, examples, state);
    let help =
        if stopping { "once more: ends at once, without tables" } else { "q: stop, and print the tables" };
    frame.render_widget(Line::from(help).dim(), keys);
}

fn draw_heading(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let mut first = vec![Span::from(state.title.as_str()).bold()];
    if !state.turn.is_empty() {
        first.push(Span::from(format!("   {}", state.turn)));
    }
    let text = vec![Line::from(first), Line::from(state.load.as_str()).dim()];
    frame.render_widget(Paragraph::new(text), area);
}

fn draw_progress(frame: &mut Frame<'_>, area: Rect, state: &State, stopping: bool) {
    let (share, text) = state.progress();
    let text = if stopping { "stopping: waiting for the last answers".into() } else { text };
    let gauge = Gauge::default()
        .ratio(share)
        .label(text)
        .gauge_style(Style::new().fg(Color::Blue).bg(Color::DarkGray));
    frame.render_widget(gauge, area);
}

fn draw_lines(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let now = |history: &[u64], unit: fn(f64) -> String| {
        history.last().map_or_else(String::new, |&value| unit(value as f64))
    };
    let rate = format!("{} requests a second", now(&state.rates, short));
    trend::draw(frame, left, &rate, &state.rates, short, Color::Green);
    let p99 = format!("p99 {}", now(&state.p99s, latency));
    trend::draw(frame, right, &p99, &state.p99s, latency, Color::Yellow);
}

fn draw_commands(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let columns = columns(area.width);
    let aligned = |cells: [String; 8]| {
        let shown = columns.iter().filter_map(|&(place, _)| {
            let line = Line::from(cells.get(place)?.clone());
            Some(if place == 0 { line } else { line.right_aligned() })
        });
        Row::new(shown.collect::<Vec<_>>())
    };
    let heading = aligned(COLUMNS.map(|(name, ..)| name.to_owned())).style(Modifier::DIM);
    let period = state.last.as_ref();
    let secs = period.map_or(1.0, |period| period.secs);
    let none = CommandTally::new();
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (kind, so_far) in &state.so_far.commands {
        let now = period.and_then(|period| period.tally.commands.get(kind)).unwrap_or(&none);
        rows.push(aligned(cells(words::command(*kind), now, secs, so_far)));
    }
    if rows.len() > 1 {
        let now = period.map_or_else(CommandTally::new, |period| period.tally.all());
        rows.push(aligned(cells("all", &now, secs, &state.so_far.all())).bold());
    }
    let widths = columns.iter().map(|&(_, width)| Constraint::Length(width));
    let block = Block::bordered().title(" the last period ");
    frame.render_widget(Table::new(rows, widths).header(heading).block(block).column_spacing(1), area);
}

/// Heading, width, and which goes first when there is no room: the highest.
const COLUMNS: [(&str, u16, u8); 8] = [
    ("", 8, 0),
    ("/s", 10, 1),
    ("so far", 14, 7),
    ("hits", 8, 5),
    ("p50", 8, 2),
    ("p99", 8, 3),
    ("p99.9", 8, 6),
    ("max", 8, 4),
];

/// The columns that fit, by place and width. A cell that is cut would be a wrong number, so whole columns go.
fn columns(width: u16) -> Vec<(usize, u16)> {
    let room = width.saturating_sub(2);
    let fit = |rank_max: u8| -> Vec<(usize, u16)> {
        let shown = COLUMNS.iter().enumerate().filter(|(_, column)| column.2 <= rank_max);
        shown.map(|(place, column)| (place, column.1)).collect()
    };
    let fits =
        |columns: &Vec<(usize, u16)>| columns.iter().map(|column| column.1 + 1).sum::<u16>() <= room + 1;
    (0..COLUMNS.len() as u8).rev().map(fit).find(fits).unwrap_or_default()
}

/// Rate and latencies of the last period, and all requests until now.
fn cells(name: &str, now: &CommandTally, secs: f64, so_far: &CommandTally) -> [String; 8] {
    let at = |percentile| {
        let nanos = &now.latency_nanos;
        if nanos.is_empty() { "-".into() } else { latency(nanos.value_at_percentile(percentile) as f64) }
    };
    let asked = now.hits + now.misses;
    let hits = if asked > 0 { percent(now.hits as f64 / asked as f64) } else { "-".into() };
    [
        name.to_owned(),
        count((now.requests as f64 / secs.max(f64::MIN_POSITIVE)).round() as u64),
        count(so_far.requests),
        hits,
        at(50.0),
        at(99.0),
        at(99.9),
        at(100.0),
    ]
}

fn draw_costs(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let Some(Period { secs, tally, server_cpu_secs, .. }) = &state.last else { return };
    let secs = secs.max(f64::MIN_POSITIVE);
    let server = server_cpu_secs
        .map_or_else(|| "not to be seen from here".into(), |cpu| format!("{:.2} cores", cpu / secs));
    let rate = |bytes: u64| network(bytes as f64 / secs);
    let text = vec![
        Line::from(format!("server   {server}")),
        Line::from(format!(
            "network  {} sent, {} received",
            rate(tally.sent_bytes),
            rate(tally.received_bytes)
        )),
    ];
    frame.render_widget(Paragraph::new(text), area);
}

fn draw_examples(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let total = &state.so_far;
    let mut text: Vec<_> = total.examples.iter().map(|example| Line::from(example.as_str()).red()).collect();
    let counts = [
        (total.reconnects, "connections opened again"),
        (total.datagrams_lost, "datagrams without an answer"),
        (total.sent_late, "requests sent late, as no connection was free"),
        (total.client_late, "requests sent late by the load itself"),
    ];
    let counts = counts.into_iter().filter(|&(number, _)| number > 0);
    text.extend(counts.map(|(number, what)| Line::from(format!("{} {what}", count(number))).yellow()));
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::outcome::{Failure, Phase, Tally};
    use crate::scenario::{Kind, Scenario};

    /// What a terminal of that width shows of 60,000 gets that took 61 µs, after a failure.
    fn screen(width: u16, height: u16) -> String {
        let mut figures = CommandTally { requests: 60_000, hits: 60_000, ..CommandTally::new() };
        figures.latency_nanos.record_n(61_000, 60_000).expect("in range");
        let mut tally = Tally::default();
        tally.commands.insert(Kind::Get, figures);
        tally.failures.insert(Failure::WrongValue, 3);
        let mut state = State::new(&Scenario { name: "a scenario".into(), ..Scenario::default() });
        state.phase(Phase::Running);
        let period = Period { begins_secs: 0.0, secs: 1.0, tally, server_cpu_secs: None };
        state.period(&period, &period.tally);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("in memory");
        terminal.draw(|frame| draw(frame, &state, false)).expect("in memory");
        terminal.backend().to_string()
    }

    #[test]
    fn failures_and_figures_are_shown_whole_at_any_width() {
        for width in [200, 100, 80, 60, 40, 30] {
            let shown = screen(width, 24);
            assert!(shown.contains("FAILED: 3 wrong values") || width < 25, "{width}\n{shown}");
            assert!(shown.contains(" 60,000"), "{width}\n{shown}");
            // No cell is cut: where a latency stands, it stands whole.
            assert_eq!(shown.matches("1.0 µs").count(), shown.matches("61.0 µs").count(), "{width}\n{shown}");
        }
    }

    #[test]
    fn no_terminal_is_too_small() {
        for (width, height) in [(1, 1), (3, 2), (10, 5), (500, 3)] {
            screen(width, height);
        }
    }
}
