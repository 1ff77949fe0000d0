//! Progress bars on standard error, if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that counts items.
pub(crate) fn items(total: Option<u64>, quiet: bool) -> ProgressBar {
    bar(
        total,
        quiet,
        "{bar:32} {human_pos} of {human_len} items  {per_sec}  {eta} left",
        "{human_pos} items  {per_sec}",
    )
}

/// A bar that counts the bytes of a file.
pub(crate) fn bytes(total: Option<u64>, quiet: bool) -> ProgressBar {
    bar(
        total,
        quiet,
        "{bar:32} {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left",
        "{bytes}  {bytes_per_sec}",
    )
}

fn bar(total: Option<u64>, quiet: bool, known: &str, unknown: &str) -> ProgressBar {
    let draw = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(5) };
    let bar = ProgressBar::with_draw_target(total, draw);
    let style = ProgressStyle::with_template(if total.is_some() { known } else { unknown });
    // The templates are constant: if one were wrong, the default bar would be shown.
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}
