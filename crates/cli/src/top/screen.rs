//! The terminal.

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};

use super::sample::{Fleet, Rates};
use super::table::{self, Column};
use crate::Failure;

/// Shows the fleet until the user quits.
pub(super) fn watch(fleet: &mut Fleet, interval: Duration, sort: Column) -> Result<(), Failure> {
    let refuse = |error: io::Error| Failure::Failed(format!("the terminal: {error}; --once needs none"));
    // Also restores the terminal before a panic is reported.
    let mut terminal = ratatui::try_init().map_err(refuse)?;
    let watched =
        Screen { rates: fleet.look(), sort, is_reversed: false }.run(&mut terminal, fleet, interval);
    ratatui::restore();
    watched.map_err(refuse)
}

struct Screen {
    rates: Vec<Rates>,
    sort: Column,
    is_reversed: bool,
}

impl Screen {
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
                {
                    let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
                    match key.code {
                        KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                        KeyCode::Char('c') if with_control => return Ok(()),
                        KeyCode::Char('>') | KeyCode::Right => self.step(1),
                        KeyCode::Char('<') | KeyCode::Left => self.step(Column::ALL.len() - 1),
                        KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
                        _ => {}
                    }
                }
            } else {
                self.rates = fleet.look();
                next_look = Instant::now() + interval;
            }
        }
    }

    fn step(&mut self, columns: usize) {
        let at = Column::ALL.iter().position(|column| *column == self.sort).unwrap_or(0);
        self.sort = Column::ALL[(at + columns) % Column::ALL.len()];
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
                .areas(frame.area());
        let silent = self.rates.iter().filter(|server| server.trouble.is_some()).count();
        let count =
            |n: usize, one: &str, several: &str| format!("{n} {}", if n == 1 { one } else { several });
        let mut title = vec![format!("larder top  {}", count(self.rates.len(), "server", "servers")).bold()];
        if silent > 0 {
            let silent = count(silent, "does not answer", "do not answer");
            title.push(format!("  {silent}").fg(Color::Red).bold());
        }
        frame.render_widget(Line::from(title), head);

        let names = table::names(&self.rates);
        let columns = table::fitting(body.width.into(), names, self.sort);
        let heading = columns.iter().map(|column| {
            let text = column.pad(column.heading(), names).bold();
            if *column == self.sort { text.reversed() } else { text }
        });
        let lines = self.rates.iter().map(|server| match &server.trouble {
            Some(why) => {
                Line::from(format!("{}  {why}", Column::Server.pad(&server.server, names))).fg(Color::Red)
            }
            None => Line::from(
                columns.iter().map(|column| column.pad(&column.text(server), names)).collect::<String>(),
            ),
        });
        let lines: Vec<Line<'_>> = [Line::from_iter(heading)].into_iter().chain(lines).collect();
        frame.render_widget(Paragraph::new(lines), body);
        frame.render_widget(Paragraph::new("< > sort   r reverse   q quit").dim(), foot);
    }
}
