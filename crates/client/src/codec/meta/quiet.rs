//! Answers to quiet requests: failures, and those to deletes that find nothing.

use super::{
    ErrorKind, ErrorReply, Kind, Outcome, Queue, Violation, ViolationKind, argument_of, failure, split_word,
};

/// The answer that a line is to a quiet request before the reply at the front: the inner `None` if nothing failed. The
/// outer `None`: it is none.
#[cold]
pub(super) fn answer<'i, T>(
    due: &mut Queue<T>,
    line: &'i [u8],
) -> Result<Option<Option<Outcome<'i>>>, Violation> {
    let (code, flags) = split_word(line);
    let opaque = argument_of(flags, b'O');
    let is_delete = opaque == Some(DELETE) && due.quiets().deletes > 0;
    let answer = match (failure(code), ErrorReply::of_line(line)) {
        // memcached and larderd suppress only success.
        (Some(Outcome::NotFound), _) if is_delete => None,
        (Some(outcome), _) if is_delete || opaque == Some(CHANGE) => Some(outcome),
        (None, Some(error)) => {
            may_be_quiet(due, &error)
                .then_some(())
                .ok_or_else(|| Violation::new(ViolationKind::Ambiguous, line))?;
            Some(Outcome::Error(error))
        }
        _ => return Ok(None),
    };
    due.quiets().answered(is_delete);
    Ok(Some(answer))
}

/// False if an error line may as well be the reply at the front.
fn may_be_quiet<T>(due: &mut Queue<T>, error: &ErrorReply<'_>) -> bool {
    match due.front().map(|front| front.kind) {
        None | Some(Kind::Noop | Kind::Version | Kind::Flush | Kind::FlushPrefix | Kind::Stats) => true,
        Some(Kind::Get | Kind::MultiGet | Kind::Touch) => error.kind == ErrorKind::TooLarge,
        Some(_) => false,
    }
}

/// The opaque of quiet changes.
pub(super) const CHANGE: &[u8] = b"q";
/// That of quiet deletes, which are answered if there is nothing to delete.
pub(super) const DELETE: &[u8] = b"d";
