//! The terminal.

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};

use super::sample::{Fleet, Rates};
use super::table::{self, Column};
use crate::Failure;

/// Shows the fleet until somebody has seen enough.
pub(super) fn watch(fleet: &mut Fleet, interval: Duration, sort: Column) -> Result<(), Failure> {
    let refuse = |error: io::Error| Failure::Failed(format!("the terminal: {error}; --once needs none"));
    // Also makes a panic give the terminal back before it is reported.
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
        let mut title = vec![format!("larder top  {} servers", self.rates.len()).bold()];
        if silent > 0 {
            title.push(format!("  {silent} do not answer").fg(Color::Red).bold());
        }
        frame.render_widget(Line::from(title), head);

        let heading = Column::ALL.map(|column| {
            let style =
                if column == self.sort { Modifier::REVERSED | Modifier::BOLD } else { Modifier::BOLD };
            cell(column, column.heading().to_owned()).style(Style::new().add_modifier(style))
        });
        let rows = self.rates.iter().map(|server| {
            let mut cells: Vec<_> =
                Column::ALL.iter().map(|column| cell(*column, column.text(server))).collect();
            cells.push(Cell::from(server.trouble.clone().unwrap_or_default()));
            let style = if server.trouble.is_some() { Style::new().fg(Color::Red) } else { Style::new() };
            Row::new(cells).style(style)
        });
        let widths = Column::ALL.iter().map(|column| Constraint::Length(column.width()));
        let widths = widths.chain([Constraint::Min(0)]);
        frame.render_widget(Table::new(rows, widths).header(Row::new(heading)), body);
        frame.render_widget(Paragraph::new("< > sort   r reverse   q quit").dim(), foot);
    }
}

/// Names to the left, numbers to the right.
fn cell(column: Column, text: String) -> Cell<'static> {
    let alignment = if column == Column::Server { Alignment::Left } else { Alignment::Right };
    Cell::from(Text::from(text).alignment(alignment))
}
