//! Tries what the server does to itself after it has taken its names, since each of these steps may fail. The thread
//! that tries them ends: a user, system calls and files that it has given up are still the process's.

use std::thread;

use crate::startup::options::{EXIT_OS_ERROR, Refusal};
use crate::startup::privileges::Target;

/// Becomes the user, if there is one, and then confines itself. Call it while there is one thread, before names are
/// taken. Errors: those of the steps.
pub fn rehearse(
    user: Option<&Target>,
    confine: impl FnOnce() -> Result<(), Refusal> + Send,
) -> Result<(), Refusal> {
    thread::scope(|scope| {
        let steps = move || {
            user.map_or(Ok(()), Target::assume_in_thread)?;
            confine()
        };
        let thread = thread::Builder::new()
            .spawn_scoped(scope, steps)
            .map_err(|error| Refusal::new(EXIT_OS_ERROR, format!("failed to start: {error}")))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
