//! Draws the state of a run.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Gauge, Paragraph, Row, Sparkline, Table, Wrap};

use super::state::State;
use crate::outcome::{CommandTally, Period};
use crate::report::units::{count, latency, network, percent, short};
use crate::report::words;

pub(super) fn draw(frame: &mut Frame<'_>, state: &State, stopping: bool) {
    let commands = state.so_far.commands.len().max(1) as u16;
    let [heading, progress, lines, table, costs, failures, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
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
    draw_failures(frame, failures, state);
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
    let rate = format!(" {} requests a second ", now(&state.rates, short));
    sparkline(frame, left, rate, &state.rates, Color::Green);
    let p99 = format!(" p99 {} ", now(&state.p99s, latency));
    sparkline(frame, right, p99, &state.p99s, Color::Yellow);
}

fn sparkline(frame: &mut Frame<'_>, area: Rect, title: String, history: &[u64], colour: Color) {
    let room = usize::from(area.width.saturating_sub(2));
    let shown = &history[history.len().saturating_sub(room)..];
    let block = Block::bordered().title(Line::from(title).bold());
    frame.render_widget(Sparkline::default().block(block).data(shown).style(Style::new().fg(colour)), area);
}

fn draw_commands(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let heading = Row::new(HEADING.map(|cell| Line::from(cell).right_aligned())).style(Modifier::DIM);
    let period = state.last.as_ref();
    let row = |name: &str, now: &CommandTally, so_far: &CommandTally| {
        let cells = cells(name, now, period.map_or(1.0, |period| period.secs), so_far);
        Row::new(cells.into_iter().enumerate().map(|(place, cell)| {
            let line = Line::from(cell);
            if place == 0 { line } else { line.right_aligned() }
        }))
    };
    let none = CommandTally::new();
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (kind, so_far) in &state.so_far.commands {
        let now = period.and_then(|period| period.tally.commands.get(kind)).unwrap_or(&none);
        rows.push(row(words::command(*kind), now, so_far));
    }
    if rows.len() > 1 {
        let now = period.map_or_else(CommandTally::new, |period| period.tally.all());
        rows.push(row("all", &now, &state.so_far.all()).bold());
    }
    let mut widths = vec![Constraint::Length(8), Constraint::Length(10), Constraint::Length(14)];
    widths.extend([Constraint::Length(9); 5]);
    let block = Block::bordered().title(" the last period ");
    frame.render_widget(Table::new(rows, widths).header(heading).block(block).column_spacing(1), area);
}

const HEADING: [&str; 8] = ["", "/s", "so far", "hits", "p50", "p99", "p99.9", "max"];

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

fn draw_failures(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let total = &state.so_far;
    let mut text = Vec::new();
    if total.has_failed() {
        text.push(Line::from(format!("FAILED: {}", words::failures(total))).red().bold());
        text.extend(total.examples.iter().map(|example| Line::from(format!("  {example}")).red()));
    }
    let counts = [
        (total.reconnects, "connections opened again"),
        (total.datagrams_lost, "datagrams without an answer"),
        (total.sent_late, "requests sent late"),
    ];
    let counts = counts.into_iter().filter(|&(number, _)| number > 0);
    text.extend(counts.map(|(number, what)| Line::from(format!("{} {what}", count(number))).yellow()));
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), area);
}
