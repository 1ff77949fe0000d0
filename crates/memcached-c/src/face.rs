//! The functions of the C interface. Their manual is libmemcached's; comments here say only what it does not.

mod allocators;
mod analysis;
pub(crate) mod behaviors;
mod buckets;
pub(crate) mod callbacks;
pub(crate) mod clients;
mod dump;
mod errors;
mod fetches;
mod hashes;
mod hashkit;
mod lists;
mod numbers;
mod pools;
mod results;
mod sasl;
pub(crate) mod servers;
mod statistics;
mod stores;
mod utilities;
mod versions;

pub(crate) use pools::Pool;

use crate::abi::{Memc, Return, Session};
use crate::core::Options;

/// Begins a request of a client: a query of its own.
fn query(memc: &Memc) -> Option<(Session<'_>, Options)> {
    let session = memc.session()?;
    let query_id = &session.settings.query_id;
    query_id.set(query_id.get().wrapping_add(1));
    let options = Options::of(session.settings);
    Some((session, options))
}

/// Begins something that is no query.
pub(crate) fn session(memc: &Memc) -> Option<(Session<'_>, Options)> {
    let session = memc.session()?;
    let options = Options::of(session.settings);
    Some((session, options))
}

/// A number as `strtoul` reads it, without a sign, and as far as it can be counted.
pub(crate) fn number(text: &[u8]) -> u64 {
    let digits = text.trim_ascii_start().iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum: u64, digit| sum.saturating_mul(10).saturating_add((digit - b'0').into()))
}

/// Remembers an error of a client.
pub(crate) fn fail(memc: &Memc, code: Return, text: &str) -> Return {
    match session(memc) {
        Some((mut session, options)) => session.core.fail(&options, code, text),
        None => code,
    }
}
