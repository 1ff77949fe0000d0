//! One page of HTML with everything in it: no script, style, font or picture comes from elsewhere, so it can be mailed.

mod chart;
mod comparison;
mod escape;
mod parts;
mod run;
mod scale;
mod search;
mod several;
mod sweep;
mod time;

use crate::Outcome;
use crate::compare::Comparison;
use crate::search::Search;
use crate::sweep::Sweep;
use escape::escape;

/// What of a run or of several: with several, the rates and latencies of all come first, side by side.
pub fn outcomes(outcomes: &[Outcome]) -> String {
    match outcomes {
        [] => page("larder bench", "<p>There was no run.</p>"),
        [outcome] => page(&run::title(outcome), &run::section(outcome)),
        several => page("larder bench", &several::section(several)),
    }
}

/// Servers side by side.
pub fn comparison(comparison: &Comparison) -> String {
    page(&comparison::title(comparison), &comparison::section(comparison))
}

/// The same load with one thing changed step by step.
pub fn sweep(sweep: &Sweep) -> String {
    page(&sweep::title(sweep), &sweep::section(sweep))
}

/// The way to the highest rate that keeps a latency.
pub fn search(search: &Search) -> String {
    page(&search::title(search), &search::section(search))
}

fn page(title: &str, body: &str) -> String {
    const STYLE: &str = include_str!("html/style.css");
    const SCRIPT: &str = include_str!("html/hover.js");
    let version = env!("CARGO_PKG_VERSION");
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}\
         <footer>Made by larder bench {version}. This page needs nothing but itself.</footer>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}
