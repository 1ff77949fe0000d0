//! The terminal.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use larder_bench::report::units;
use larder_bench::screen::trend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};
use ratatui::{DefaultTerminal, Frame};

use super::hot::HotKeys;
use super::sample::{Fleet, Rates};
use super::table::{self, Column};
use crate::Failure;
use crate::hotkeys::sample::Hot;
use crate::output::readable;
use crate::target::Target;

/// Shows the fleet until the user quits.
pub(super) fn watch(
    fleet: &mut Fleet,
    target: &Target,
    interval: Duration,
    sort: Column,
) -> Result<(), Failure> {
    let refuse = |error: io::Error| Failure::Failed(format!("the terminal: {error}; --once needs none"));
    // Also restores the terminal before a panic is reported.
    let mut terminal = ratatui::try_init().map_err(refuse)?;
    let screen = Screen { rates: fleet.look(), ..Screen::new(target, sort) };
    let watched = screen.run(&mut terminal, fleet, interval);
    ratatui::restore();
    watched.map_err(refuse)
}

struct Screen<'t> {
    target: &'t Target,
    rates: Vec<Rates>,
    /// Recent totals, the newest last.
    totals: VecDeque<Rates>,
    sort: Column,
    is_reversed: bool,
    /// While hot keys are shown.
    hot_keys: Option<HotKeys>,
    hot: Vec<Hot>,
    /// Why hot keys are not known.
    troubles: Vec<String>,
    shows_help: bool,
}

impl<'t> Screen<'t> {
    fn new(target: &'t Target, sort: Column) -> Self {
        Self {
            target,
            rates: Vec::new(),
            totals: VecDeque::new(),
            sort,
            is_reversed: false,
            hot_keys: None,
            hot: Vec::new(),
            troubles: Vec::new(),
            shows_help: false,
        }
    }

    fn run(
        mut self,
        terminal: &mut DefaultTerminal,
        fleet: &mut Fleet,
        interval: Duration,
    ) -> io::Result<()> {
        let mut next_look = Instant::now() + interval;
        loop {
            table::sort(&mut self.rates, self.sort, self.is_reversed);
            terminal.draw(|frame| self.draw(frame))?;
            if event::poll(next_look.saturating_duration_since(Instant::now()))? {
                if let Event::Key(key) = event::read()?
                    && key.kind == KeyEventKind::Press
                    && !self.press(key)
                {
                    return Ok(());
                }
            } else {
                self.look(fleet);
                next_look = Instant::now() + interval;
            }
        }
    }

    fn look(&mut self, fleet: &mut Fleet) {
        self.rates = fleet.look();
        self.totals.push_back(Rates::total(&self.rates));
        if self.totals.len() > TOTALS_MAX {
            self.totals.pop_front();
        }
        if let Some(hot_keys) = &self.hot_keys {
            (self.hot, self.troubles) = hot_keys.look(HOT_KEYS_MAX);
        }
    }

    /// Reacts to a key; false: the user quits.
    fn press(&mut self, key: KeyEvent) -> bool {
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if with_control => return false,
            _ if self.shows_help => self.shows_help = false,
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('>') | KeyCode::Right => self.step(1),
            KeyCode::Char('<') | KeyCode::Left => self.step(Column::ALL.len() - 1),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('k') => self.toggle_hot_keys(),
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            _ => {}
        }
        true
    }

    fn toggle_hot_keys(&mut self) {
        (self.hot, self.troubles) = (Vec::new(), Vec::new());
        self.hot_keys = match self.hot_keys.take() {
            Some(_) => None,
            None => match HotKeys::start(self.target) {
                Ok(hot_keys) => Some(hot_keys),
                Err(failure) => {
                    self.troubles.push(failure.message().to_owned());
                    None
                }
            },
        };
    }

    fn step(&mut self, columns: usize) {
        let at = Column::ALL.iter().position(|column| *column == self.sort).unwrap_or(0);
        self.sort = Column::ALL[(at + columns) % Column::ALL.len()];
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let height = usize::from(frame.area().height);
        // Heading, total and servers come first; what is left is for the rest.
        let rows = 1 + self.rates.len() + usize::from(self.rates.len() > 1);
        let room = height.saturating_sub(rows + 2);
        let hot = if self.hot_keys.is_some() { (HOT_KEYS_MAX + 1).min(room) } else { 0 };
        let trends = if room - hot >= TRENDS_LINES { TRENDS_LINES } else { 0 };
        let lines = |lines: usize| Constraint::Length(u16::try_from(lines).unwrap_or(u16::MAX));
        let [head, body, keys, lower, foot] =
            Layout::vertical([lines(1), Constraint::Min(1), lines(hot), lines(trends), lines(1)])
                .areas(frame.area());
        frame.render_widget(self.title(), head);
        self.draw_table(frame, body);
        self.draw_hot_keys(frame, keys);
        // The help would cover half of a chart and its title.
        if !self.shows_help {
            self.draw_trends(frame, lower);
        }
        frame
            .render_widget(Paragraph::new("< > sort   r reverse   k hot keys   ? help   q quit").dim(), foot);
        if self.shows_help {
            draw_help(frame);
        }
    }

    fn title(&self) -> Line<'static> {
        let silent = self.rates.iter().filter(|server| server.trouble.is_some()).count();
        let count =
            |n: usize, one: &str, several: &str| format!("{n} {}", if n == 1 { one } else { several });
        let mut title = vec![format!("larder top  {}", count(self.rates.len(), "server", "servers")).bold()];
        if silent > 0 {
            let silent = count(silent, "does not answer", "do not answer");
            title.push(format!("  {silent}").fg(Color::Red).bold());
        }
        Line::from(title)
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect) {
        let names = table::names(&self.rates);
        let columns = table::fitting(area.width.into(), names, self.sort);
        let heading = columns.iter().map(|column| {
            let text = column.pad(column.heading(), names).bold();
            if *column == self.sort { text.reversed() } else { text }
        });
        let cells = |server: &Rates| {
            columns.iter().map(|column| column.pad(&column.text(server), names)).collect::<String>()
        };
        let total = (self.rates.len() > 1).then(|| Line::from(cells(&Rates::total(&self.rates))).bold());
        let servers = self.rates.iter().map(|server| match server.why() {
            Some(why) => {
                Line::from(format!("{}  {why}", Column::Server.pad(&server.server, names))).fg(Color::Red)
            }
            None => Line::from(cells(server)),
        });
        let lines: Vec<Line<'_>> =
            [Line::from_iter(heading)].into_iter().chain(total).chain(servers).collect();
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn draw_hot_keys(&self, frame: &mut Frame<'_>, area: Rect) {
        let gets = self.totals.back().map_or(0.0, |total| total.gets);
        let heading = format!("{:>8} {:>8}  HOT KEY", "GET/s", "SHARE").bold();
        let hot = self.hot.iter().map(|hot| {
            let (rate, share) = (units::short(gets * hot.share), units::percent(hot.share));
            Line::from(format!("{rate:>8} {share:>8}  {}", readable(&hot.key)))
        });
        let troubles = self.troubles.iter().map(|why| Line::from(why.as_str()).fg(Color::Red));
        let waiting = (self.hot.is_empty() && self.troubles.is_empty())
            .then(|| Line::from("         waiting for look-ups").dim());
        let lines: Vec<Line<'_>> =
            [Line::from(heading)].into_iter().chain(troubles).chain(waiting).chain(hot).collect();
        frame.render_widget(Paragraph::new(lines), area);
    }

    /// Rates and latencies of all servers together.
    fn draw_trends(&self, frame: &mut Frame<'_>, area: Rect) {
        let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
        let gets: Vec<u64> = self.totals.iter().map(|total| (total.gets + total.sets) as u64).collect();
        let now = |values: &[u64], unit: fn(f64) -> String| {
            values.last().map_or_else(String::new, |&value| unit(value as f64))
        };
        let title = format!("gets and sets a second {}", now(&gets, units::short));
        trend::draw(frame, left, &title, &gets, units::short, Color::Green);
        let p99s: Vec<u64> = self
            .totals
            .iter()
            .map(|total| total.quantile_micros(0.99).map_or(0, |micros| (micros * 1000.0) as u64))
            .collect();
        if p99s.iter().any(|&nanos| nanos > 0) {
            let title = format!("p99 {}", now(&p99s, units::latency));
            return trend::draw(frame, right, &title, &p99s, units::latency, Color::Yellow);
        }
        // memcached reports no service times.
        let hits: Vec<u64> = self
            .totals
            .iter()
            .map(|total| total.hit_ratio().map_or(0, |ratio| (ratio * 1000.0) as u64))
            .collect();
        let percent = |permille: f64| units::percent(permille / 1000.0);
        let title = format!("hit ratio {}", now(&hits, percent));
        trend::draw(frame, right, &title, &hits, percent, Color::Cyan);
    }
}

fn draw_help(frame: &mut Frame<'_>) {
    let lines: Vec<Line<'_>> = HELP.lines().map(Line::from).collect();
    let [_, middle, _] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(HELP_COLUMNS), Constraint::Fill(1)])
            .areas(frame.area());
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let [_, area, _] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(height), Constraint::Fill(1)])
            .areas(middle);
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" Help ")), area);
}

const HELP: &str = "\
< >      choose the column to sort by
r        reverse the order
k        show or hide hot keys; costs the servers time
q        quit

GET/s SET/s EVICT/s   requests and evictions a second
HIT %     share of the looked-up keys that were found
IN/s OUT/s            bytes a second from and to clients
MEMORY    used, of the limit (-m)
P50 P99   service times since the last sample (larderd)
ANSWER    time that the server took to answer `stats`
▲         in a chart: a value too high for its scale";
const HELP_COLUMNS: u16 = 60;
const HOT_KEYS_MAX: usize = 10;
const TRENDS_LINES: usize = 5;
/// More than a terminal has columns.
const TOTALS_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    #[test]
    fn help_stands_alone_on_a_small_terminal() {
        let arguments =
            <Target as clap::Args>::augment_args(clap::Command::new("top")).get_matches_from(["top"]);
        let target = Target::from_arg_matches(&arguments).expect("defaults");
        let mut screen = Screen::new(&target, Column::Server);
        screen.rates = vec![Rates { server: "cache-1:11211".into(), ..Rates::default() }];
        let mut shown = |shows_help| {
            screen.shows_help = shows_help;
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
            terminal.draw(|frame| screen.draw(frame)).expect("drawn");
            terminal.backend().to_string()
        };
        let (plain, help) = (shown(false), shown(true));
        assert!(plain.contains("gets and sets a second") && !plain.contains("Help"), "{plain}");
        assert!(help.contains("Help") && help.contains("cache-1:11211"), "{help}");
        // Two charts, or the help.
        let boxes = |shown: &str| shown.matches('┌').count();
        assert_eq!((boxes(&plain), boxes(&help)), (2, 1), "{help}");
    }
}
