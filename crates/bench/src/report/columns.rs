//! Rows of text in columns: the first flush left, the others flush right.

use std::io::{self, Write};

/// A table that is as wide as its cells.
#[derive(Debug, Default)]
pub struct Columns {
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// With its first row.
    pub fn headed(heading: &[&str]) -> Self {
        let mut columns = Self::default();
        columns.row(heading.iter().map(|&cell| cell.to_owned()).collect());
        columns
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Writes it, two spaces between columns.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        for row in &self.rows {
            let mut line = String::new();
            for (place, cell) in row.iter().enumerate() {
                let width = self.width(place);
                if place == 0 {
                    line += &format!("{cell:<width$}");
                } else {
                    line += &format!("  {cell:>width$}");
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Its rows, the heading first.
    pub(crate) fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    fn width(&self, place: usize) -> usize {
        self.rows.iter().filter_map(|row| row.get(place)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}
