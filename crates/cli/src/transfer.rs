//! Moving all items of servers: the parts of `larder dump` and `larder load`.
//!
//! | module | contents |
//! |---|---|
//! | [`record`] | an item of a dump, and the format of dumps |
//! | [`source`] | a server's items, read while it serves |
//! | [`sink`] | servers that items are stored on |
//! | [`receipt`] | the file of items moved so far |
//! | [`resume`] | the file of an interrupted dump |
//! | [`progress`] | progress bars |
//! | [`tally`] | how much was read, how long it took, how fast it was |

pub(crate) mod progress;
pub(crate) mod receipt;
pub(crate) mod record;
pub(crate) mod resume;
pub(crate) mod sink;
pub(crate) mod source;
pub(crate) mod tally;

use larder_client::Address;

use crate::Failure;
use crate::target::Target;
use crate::ttl::unix_now_secs;
use crate::wire::Wire;

/// Seconds that a server's clock is ahead of ours; 0 if rounding can explain them.
fn clock_skew_secs(target: &Target, address: &Address) -> Result<i64, Failure> {
    let told = target.client_of(&[address.clone().into()])?.stats("").into_iter().next();
    let Some((_, stats)) = told else { return Ok(0) };
    let stats = stats.map_err(|error| Failure::of(address, &error))?;
    let time = stats.iter().find(|(name, _)| name == "time");
    let time_secs = time.and_then(|(_, value)| value.parse::<i64>().ok());
    let skew_secs = time_secs.map_or(0, |time_secs| time_secs.saturating_sub(unix_now_secs()));
    Ok(if skew_secs.unsigned_abs() <= 2 { 0 } else { skew_secs })
}

/// True if a server has the meta protocol.
fn speaks_meta(wire: &mut Wire) -> Result<bool, Failure> {
    wire.send(b"mn\r\n")?;
    let mut line = Vec::new();
    wire.line(&mut line)?;
    Ok(line == b"MN")
}
