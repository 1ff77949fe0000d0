//! A chart of recent values on a terminal. A spike does not flatten the rest of the chart.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Block, Sparkline, SparklineBar};

/// Draws the newest values in a box with a title, the last one at the right. Values above the scale are cut off and
/// marked, and the title names the highest value with its unit.
pub fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    values: &[u64],
    unit: fn(f64) -> String,
    color: Color,
) {
    let room = usize::from(area.width.saturating_sub(2));
    let shown = &values[values.len().saturating_sub(room)..];
    let (top, most) = (ceiling(shown), shown.iter().copied().max().unwrap_or_default());
    let cut = if most > top { format!("▲ up to {} ", unit(most as f64)) } else { String::new() };
    let block = Block::bordered().title(Line::from(format!(" {title} {cut}")).bold());
    let inside = block.inner(area);
    let bars = shown.iter().map(|&value| {
        let style = (value > top).then(|| Style::new().fg(Color::Red));
        SparklineBar::from(value).style(style)
    });
    let chart = Sparkline::default().block(block).data(bars).max(top.max(1)).style(Style::new().fg(color));
    frame.render_widget(chart, area);
    if inside.is_empty() {
        return;
    }
    for (x, _) in (inside.left()..inside.right()).zip(shown).filter(|&(_, &value)| value > top) {
        frame.buffer_mut()[(x, inside.top())].set_symbol("▲");
    }
}

/// The top of the scale: the greatest value, or less if a few values are so great that the others would look flat.
fn ceiling(values: &[u64]) -> u64 {
    let mut present: Vec<u64> = values.iter().copied().filter(|&value| value > 0).collect();
    present.sort_unstable();
    let most = present.last().copied().unwrap_or_default();
    if present.len() < VALUES_MIN {
        return most;
    }
    let usual = present[present.len() * 9 / 10];
    if most / SPIKE > usual { usual + usual / 5 } else { most }
}

const VALUES_MIN: usize = 20;
/// A spike is this many times higher than the 90th percentile.
const SPIKE: u64 = 3;

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::report::units::short;

    fn shown(values: &[u64]) -> String {
        let mut terminal = Terminal::new(TestBackend::new(42, 5)).expect("a terminal");
        let draw = |frame: &mut Frame<'_>| draw(frame, frame.area(), "gets", values, short, Color::Green);
        terminal.draw(draw).expect("drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn a_spike_is_cut_off_and_marked() {
        let mut values = vec![80; 40];
        // Three lines have 24 steps, and 80 of 96 fill twenty of them. The spike is two samples long.
        (values[20], values[21]) = (100_000, 9_000);
        let spiky = shown(&values);
        assert!(spiky.contains("gets ▲ up to 100 k"), "{spiky}");
        assert_eq!(spiky.matches('▲').count(), 3, "{spiky}");
        assert_eq!(spiky.matches('▄').count(), 38, "{spiky}");
        // Twice as much is not a spike, and a chart of few values is not cut.
        (values[20], values[21]) = (160, 160);
        assert!(!shown(&values).contains('▲'), "{}", shown(&values));
        assert_eq!(ceiling(&[1, 1, 1, 1000]), 1000);
        assert_eq!(ceiling(&[]), 0);
    }
}
