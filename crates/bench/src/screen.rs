//! The display during a run: a screen on a terminal, otherwise one line a period.

mod draw;
mod lines;
mod signals;
mod state;
pub mod trend;

use std::io::{self, IsTerminal};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::Scenario;
use crate::outcome::{Period, Phase, Tally, Watcher};
pub use lines::Lines;
pub use signals::stop_on_signals;
use state::State;

/// The observer for this terminal: a screen, or without a terminal lines on standard error, so that standard output has
/// only the final tables. `stop` ends the run.
pub fn watcher(scenario: &Scenario, stop: &Arc<AtomicBool>) -> Box<dyn Watcher> {
    let screen = if has_terminal() { Screen::open(scenario, Arc::clone(stop)).ok() } else { None };
    match screen {
        Some(screen) => Box::new(screen),
        None => Box::new(Lines::new(io::stderr())),
    }
}

/// True if standard output is a terminal, and this process is in its foreground: in the background it must not draw.
fn has_terminal() -> bool {
    let out = io::stdout();
    out.is_terminal()
        && rustix::termios::tcgetpgrp(&out).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// A screen, drawn by its own thread. The terminal is restored when it is dropped, after a panic, and after signals if
/// [`stop_on_signals`] was called.
#[derive(Debug)]
pub struct Screen {
    state: Arc<Mutex<State>>,
    over: Arc<AtomicBool>,
    painter: Option<JoinHandle<()>>,
}

impl Screen {
    /// Takes over the terminal. `q` or Ctrl-C sets `stop`; a second one ends the program at once.
    pub fn open(scenario: &Scenario, stop: Arc<AtomicBool>) -> io::Result<Self> {
        // Also restores the terminal before a panic is reported.
        let terminal = ratatui::try_init()?;
        let state = Arc::new(Mutex::new(State::new(scenario)));
        let over = Arc::new(AtomicBool::new(false));
        end_at_panic(&over, &state);
        let painter = Painter { terminal, state: Arc::clone(&state), over: Arc::clone(&over), stop };
        let painter = std::thread::Builder::new().name("screen".into()).spawn(move || painter.paint());
        if painter.is_err() {
            ratatui::restore();
        }
        let painter = Some(painter?);
        signals::IS_SHOWN.store(true, Ordering::Relaxed);
        Ok(Self { state, over, painter })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher for Screen {
    fn turn(&mut self, server: &str, round: usize, rounds: usize) {
        self.state().turn(server, round, rounds);
    }

    fn phase(&mut self, phase: Phase) {
        self.state().phase(phase);
    }

    fn period(&mut self, period: &Period, so_far: &Tally) {
        self.state().period(period, so_far);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // At the end of its input, crossterm reads for ever.
        if let Some(painter) = self.painter.take().filter(|_| !signals::is_hung_up()) {
            let _ = painter.join();
        }
        ratatui::restore();
        signals::IS_SHOWN.store(false, Ordering::Relaxed);
    }
}

/// Nothing may be drawn over the report of a panic: waits until the painter has finished.
fn end_at_panic(over: &Arc<AtomicBool>, state: &Arc<Mutex<State>>) {
    const TRIES: usize = 50;
    let (over, state) = (Arc::clone(over), Arc::clone(state));
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        over.store(true, Ordering::Relaxed);
        // Not for ever: the thread that panics may hold the lock.
        for _ in 0..TRIES {
            if !matches!(state.try_lock(), Err(TryLockError::WouldBlock)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        report(panic);
    }));
}

struct Painter {
    terminal: DefaultTerminal,
    state: Arc<Mutex<State>>,
    over: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

impl Painter {
    /// How often it draws without input. Rarely, to take no CPU from the load.
    const STEP: Duration = Duration::from_millis(200);

    fn paint(mut self) {
        loop {
            let stopping = self.stop.load(Ordering::Relaxed);
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            // Checked while the state is locked: see `end_at_panic`.
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            // If the terminal is gone, the run continues without a display.
            if self.terminal.draw(|frame| draw::draw(frame, &state, stopping)).is_err() {
                return;
            }
            drop(state);
            match event::poll(Self::STEP)
                .and_then(|typed| if typed { event::read().map(Some) } else { Ok(None) })
            {
                Ok(Some(Event::Key(key))) if asks_to_stop(key) => {
                    if self.stop.swap(true, Ordering::Relaxed) {
                        signals::give_up(signals::EXIT_INTERRUPTED);
                    }
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}

fn asks_to_stop(key: KeyEvent) -> bool {
    let is_ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press
        && (is_ctrl_c || matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc))
}
