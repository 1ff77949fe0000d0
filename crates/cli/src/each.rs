//! Shared by `larder touch`, `rm` and `exist`: a yes or no for each key.

use larder_client::{Client, Error};

use crate::Failure;
use crate::target::{Target, failure_about};
use crate::troubles::Troubles;

/// Sends a request for each key. Reports keys that were not found; one of them is a failure.
pub(crate) fn key(
    tool: &'static str,
    target: &Target,
    keys: &[String],
    ask: impl Fn(&mut Client, &str) -> Result<bool, Error>,
) -> Result<(), Failure> {
    let mut client = target.client()?;
    let mut troubles = Troubles::of(tool);
    for key in keys {
        match ask(&mut client, key) {
            Ok(true) => {}
            Ok(false) => troubles.report(&Failure::Failed(format!("{key}: not found"))),
            Err(error) => troubles.report(&failure_about(&client, key, &error)),
        }
    }
    troubles.end()
}
