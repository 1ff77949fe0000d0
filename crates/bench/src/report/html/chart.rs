//! A line chart as SVG. Colours come from the page's style by the place of a series; values are told on hover.

use std::fmt::Write;

use super::escape::escape;
use super::scale::{Axis, Scale};

/// Size of the drawing; the page stretches it. Small, so that its letters can be read on a phone.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 250.0;
/// Room for numbers and labels around the plot.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 42.0;

/// Lines over a common x axis.
#[derive(Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    /// What a reader has to know to read it, if anything.
    pub(super) note: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
}

/// A line.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: String,
    /// By rising x.
    pub(super) points: Vec<(f64, f64)>,
    pub(super) dashed: bool,
}

impl Series {
    pub(super) fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { name: name.into(), points: points.into_iter().collect(), dashed: false }
    }

    pub(super) fn dashed(mut self) -> Self {
        self.dashed = true;
        self
    }
}

impl Chart {
    /// A `<figure>`. Empty if there is nothing to draw.
    pub(super) fn draw(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        if points().count() == 0 {
            return String::new();
        }
        let x = self.x.fit(points().map(|point| point.0), LEFT, WIDTH - RIGHT);
        let y = self.y.fit(points().map(|point| point.1), HEIGHT - BOTTOM, TOP);
        let mut svg = String::new();
        self.frame(&x, &y, &mut svg);
        for (place, series) in self.series.iter().enumerate() {
            line(place, series, &x, &y, &mut svg);
        }
        self.hover(&x, &mut svg);
        let note = if self.note.is_empty() {
            String::new()
        } else {
            format!("<p class=\"note\">{}</p>", escape(&self.note))
        };
        format!(
            "<figure><figcaption>{}</figcaption>{}<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">{svg}</svg>{note}</figure>\n",
            escape(&self.title),
            self.legend(),
            escape(&self.title),
        )
    }

    fn frame(&self, x: &Scale, y: &Scale, svg: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for (tick, text) in y.ticks() {
            let (at, text) = (y.place(tick), escape(&text));
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
            );
            let _ = write!(svg, "<text class=\"y\" x=\"{}\" y=\"{:.1}\">{text}</text>", LEFT - 6.0, at + 4.0);
        }
        for (tick, text) in x.ticks() {
            let (at, text) = (x.place(tick), escape(&text));
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>"
            );
            let _ = write!(svg, "<text class=\"x\" x=\"{at:.1}\" y=\"{}\">{text}</text>", bottom + 16.0);
        }
        let middle = (LEFT + right) / 2.0;
        let _ = write!(
            svg,
            "<text class=\"x label\" x=\"{middle}\" y=\"{}\">{}</text>",
            HEIGHT - 6.0,
            escape(self.x.label)
        );
    }

    fn legend(&self) -> String {
        if self.series.len() < 2 {
            return String::new();
        }
        let mut html = String::from("<ul class=\"legend\">");
        for (place, series) in self.series.iter().enumerate() {
            let dashed = if series.dashed { " dashed" } else { "" };
            let _ = write!(html, "<li class=\"s{}{dashed}\">{}</li>", place % COLOURS, escape(&series.name));
        }
        html + "</ul>"
    }

    /// An invisible strip for every x, which tells all values there.
    fn hover(&self, x: &Scale, svg: &mut String) {
        let mut places: Vec<f64> =
            self.series.iter().flat_map(|series| series.points.iter().map(|point| point.0)).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        for (number, &at) in places.iter().enumerate() {
            let middle = |other: Option<&f64>, edge: f64| {
                other.map_or(edge, |&other| (x.place(other) + x.place(at)) / 2.0)
            };
            let left = middle(number.checked_sub(1).and_then(|before| places.get(before)), LEFT);
            let right = middle(places.get(number + 1), WIDTH - RIGHT);
            let mut text = format!("{} {}", self.x.label, (self.x.format)(at));
            for series in &self.series {
                if let Some(point) = series.points.iter().find(|point| point.0 == at) {
                    let _ = write!(text, "\n{}: {}", series.name, (self.y.format)(point.1));
                }
            }
            let _ = write!(
                svg,
                "<g class=\"hit\"><rect x=\"{left:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{}\"/>\
                 <line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/><title>{}</title></g>",
                (right - left).max(0.0),
                HEIGHT - BOTTOM - TOP,
                escape(&text),
                at = x.place(at),
                bottom = HEIGHT - BOTTOM,
            );
        }
    }
}

/// Colours that the style has; more series begin again.
const COLOURS: usize = 8;

fn line(place: usize, series: &Series, x: &Scale, y: &Scale, svg: &mut String) {
    let dashed = if series.dashed { " dashed" } else { "" };
    let mut path = String::new();
    for &(at, value) in &series.points {
        let command = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{command}{:.1} {:.1}", x.place(at), y.place(value));
    }
    let _ = write!(svg, "<path class=\"s{}{dashed}\" d=\"{path}\"/>", place % COLOURS);
    if series.points.len() <= MARKED_POINTS_MAX {
        for &(at, value) in &series.points {
            let (at, value) = (x.place(at), y.place(value));
            let _ = write!(
                svg,
                "<circle class=\"s{}\" cx=\"{at:.1}\" cy=\"{value:.1}\" r=\"2.5\"/>",
                place % COLOURS
            );
        }
    }
}

/// Lines of few points show where these are.
const MARKED_POINTS_MAX: usize = 20;
