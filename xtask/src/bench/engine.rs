//! The engine's own benches: no server, no socket.

use std::process::Stdio;

use larder_conformance::Result;
use serde_json::json;

use super::Measured;
use super::rows::Row;
use super::summary::Line;
use crate::shell;

/// Runs the bench of this name and passes on what it prints. Its last line is `figure: <number>`, larderd's for the
/// table.
pub(super) fn measure(name: &str, row: &Row) -> Result<Measured> {
    let mut cargo = shell::cargo(&["bench", "--quiet", "--package", "larder-engine", "--bench", name]);
    let output = cargo.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("the engine's bench {name} ended with {}", output.status).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut figure = None;
    for line in text.lines() {
        match line.strip_prefix("figure: ") {
            Some(number) => figure = Some(number.trim().parse::<f64>()?),
            None => println!("  {line}"),
        }
    }
    let figure = figure.ok_or_else(|| format!("the engine's bench {name} tells no figure"))?;
    let (unit, is_met) = match name {
        "pauses" => ("longest, us", figure <= 1000.0),
        _ => ("times one thread's rate", figure >= 1.9),
    };
    let line = Line {
        what: row.what.clone(),
        unit,
        memcached: None,
        larderd: figure,
        floor: None,
        interval: None,
        goal: row.goal.to_string(),
        is_met: Some(is_met),
    };
    Ok(Measured { figures: json!({ "figure": figure, "text": text }), lines: vec![line] })
}
