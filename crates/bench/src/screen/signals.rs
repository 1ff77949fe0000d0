//! Ends a run when the system asks for it, without leaving a terminal broken.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// As shells have it: 128 and the signal's number.
pub(super) const EXIT_INTERRUPTED: i32 = 128 + SIGINT;

static HUNG_UP: AtomicBool = AtomicBool::new(false);
/// A screen has the terminal.
pub(super) static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// True after SIGHUP: the terminal is gone.
pub(super) fn is_hung_up() -> bool {
    HUNG_UP.load(Ordering::Relaxed)
}

/// From now on SIGINT, SIGTERM and SIGHUP set `stop`, so that a run ends and its tables are printed; a second one ends
/// the program at once.
pub fn stop_on_signals(stop: &Arc<AtomicBool>) -> io::Result<()> {
    let stop = Arc::clone(stop);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let wait = move || {
        for signal in signals.forever() {
            HUNG_UP.fetch_or(signal == SIGHUP, Ordering::Relaxed);
            if stop.swap(true, Ordering::Relaxed) {
                give_up(128 + signal);
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}

/// Gives the terminal back, if a screen has it, and ends the program. Nothing is written otherwise: a thread may hold
/// standard output, blocked in a write.
pub(super) fn give_up(code: i32) -> ! {
    if IS_SHOWN.load(Ordering::Relaxed) {
        ratatui::restore();
    }
    std::process::exit(code)
}
