//! The table at the end, one line a figure.

use std::fmt::{self, Write as _};

use super::goal::{Figures, Goal};

/// One line of the table.
pub(super) struct Line {
    pub(super) what: String,
    /// Of the figures.
    pub(super) unit: &'static str,
    pub(super) memcached: Option<f64>,
    pub(super) larderd: f64,
    pub(super) floor: Option<f64>,
    /// The ends of the interval of larderd's ratio to the floor's, where rounds allow one; else to memcached's.
    pub(super) interval: Option<(f64, f64)>,
    pub(super) goal: String,
    pub(super) is_met: Option<bool>,
}

impl Line {
    /// A line whose goal is judged by its figures.
    pub(super) fn judged(what: &str, unit: &'static str, figures: Figures, goal: Goal) -> Self {
        Self {
            what: what.to_owned(),
            unit,
            memcached: Some(figures.memcached).filter(|figure| figure.is_finite()),
            larderd: figures.larderd,
            floor: Some(figures.floor).filter(|figure| figure.is_finite()),
            interval: None,
            goal: goal.to_string(),
            is_met: goal.is_met(figures),
        }
    }

    fn verdict(&self) -> &'static str {
        match self.is_met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.what, short(self.larderd), self.unit)?;
        if let Some(floor) = self.floor {
            write!(f, ", {:.2} of the floor", self.larderd / floor)?;
        }
        if let Some(memcached) = self.memcached {
            write!(f, ", {:.2} of memcached's", self.larderd / memcached)?;
        }
        write!(f, "; goal: {}: {}", self.goal, self.verdict())
    }
}

/// All lines as a Markdown table.
pub(super) fn markdown(lines: &[Line]) -> String {
    let mut text = String::from(
        "| what | unit | memcached | larderd | floor | of memcached | of the floor | goal | |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for line in lines {
        let figure = |figure: Option<f64>| figure.map(short).unwrap_or_default();
        let of =
            |base: Option<f64>| base.map(|base| format!("{:.2}", line.larderd / base)).unwrap_or_default();
        let interval =
            line.interval.map(|(low, high)| format!(" ({low:.2} - {high:.2})")).unwrap_or_default();
        let (in_memcached, in_floor) =
            if line.floor.is_some() { (String::new(), interval) } else { (interval, String::new()) };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {}{in_memcached} | {}{in_floor} | {} | {} |",
            line.what,
            line.unit,
            figure(line.memcached),
            short(line.larderd),
            figure(line.floor),
            of(line.memcached),
            of(line.floor),
            line.goal,
            line.verdict(),
        );
    }
    text
}

/// Three digits, or all of a large number.
fn short(figure: f64) -> String {
    let decimals = match figure.abs() {
        0.0..1.0 => 3,
        1.0..10.0 => 2,
        10.0..1000.0 => 1,
        _ => 0,
    };
    format!("{figure:.decimals$}")
}
