//! Moving all items of servers: what `larder dump` and `larder load` are made of.
//!
//! | module | what it is |
//! |---|---|
//! | [`record`] | an item on its way, and the file that holds many |
//! | [`source`] | a server's items, read while it serves |
//! | [`sink`] | servers that take items |
//! | [`receipt`] | what has been moved so far |
//! | [`resume`] | a file that a dump was interrupted in |
//! | [`progress`] | how far it is |

pub(crate) mod progress;
pub(crate) mod receipt;
pub(crate) mod record;
pub(crate) mod resume;
pub(crate) mod sink;
pub(crate) mod source;

use larder_client::Address;

use crate::Failure;
use crate::target::Target;
use crate::ttl::unix_now_secs;
use crate::wire::Wire;

/// Seconds by which a server's clock is before ours; 0 if it is less than rounding makes.
fn clock_skew_secs(target: &Target, address: &Address) -> Result<i64, Failure> {
    let told = target.client_of(&[address.clone().into()])?.stats("").into_iter().next();
    let Some((_, stats)) = told else { return Ok(0) };
    let stats = stats.map_err(|error| Failure::of(address, &error))?;
    let time = stats.iter().find(|(name, _)| name == "time");
    let time_secs = time.and_then(|(_, value)| value.parse::<i64>().ok());
    let skew_secs = time_secs.map_or(0, |time_secs| time_secs - unix_now_secs());
    Ok(if skew_secs.abs() <= 2 { 0 } else { skew_secs })
}

/// Whether a server speaks the meta protocol.
fn speaks_meta(wire: &mut Wire) -> Result<bool, Failure> {
    wire.send(b"mn\r\n")?;
    let mut line = Vec::new();
    wire.line(&mut line)?;
    Ok(line == b"MN")
}
