//! How often a request may still be sent again.

use super::reply::Failure;
use crate::Error;

/// How often a request may still be sent again.
#[derive(Debug)]
pub(super) struct Attempts {
    left: u32,
    is_read: bool,
    /// Servers that are not asked again.
    pub failed: Vec<usize>,
    /// What came of the last of them.
    pub last: Option<Error>,
}

impl Attempts {
    pub(super) fn new(retries: u32, is_read: bool) -> Self {
        Self { left: retries, is_read, failed: Vec::new(), last: None }
    }

    /// As many for a part of the request.
    pub(super) fn continued(&self) -> Self {
        Self { left: self.left, is_read: self.is_read, failed: self.failed.clone(), last: None }
    }

    /// What to tell of a failure; `Ok`: the request may be sent again.
    pub(super) fn again(&mut self, failure: Failure) -> Result<(), Error> {
        let error = self.certain(failure)?;
        let may_pass =
            matches!(error, Error::Closed | Error::Io(_) | Error::Violation(_) | Error::Interrupted(_));
        if !may_pass || self.left == 0 {
            return Err(error);
        }
        self.left -= 1;
        Ok(())
    }

    /// The same; `Ok`: the request may be sent to another server.
    pub(super) fn elsewhere(&mut self, server: usize, failure: Failure) -> Result<(), Error> {
        self.last = Some(self.certain(failure)?);
        self.failed.push(server);
        Ok(())
    }

    /// The error of what can be repeated. `Err`: a change may have been made.
    fn certain(&self, failure: Failure) -> Result<Error, Error> {
        let Failure { error, was_sent, .. } = failure;
        if was_sent && !self.is_read { Err(Error::Unknown(Box::new(error))) } else { Ok(error) }
    }
}
