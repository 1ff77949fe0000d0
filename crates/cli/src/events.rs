//! The events of a server's `watch`, for `larder watch`, `hotkeys` and `top`.

use std::time::Duration;

use clap::ValueEnum as _;
use larder_client::Address;

use crate::Failure;
use crate::target::Target;
use crate::wire::Wire;

/// A connection on which a server sends a line for each event.
pub(crate) struct Events {
    wire: Wire,
    line: Vec<u8>,
    /// `line` was returned.
    is_old: bool,
}

/// What there is to watch; the names are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Stream {
    /// Look-ups
    Fetchers,
    /// Stores
    Mutations,
    /// Deletions
    Deletions,
    /// Items that were evicted
    Evictions,
    /// Connections opened and closed
    Connevents,
    /// Searches for expired items
    Sysevents,
    /// Conflicts between sites, and what becomes of the other sites (larderd)
    Replication,
}

impl Events {
    /// Connects and begins to watch. Fails if the server does not allow it (`-W`).
    pub(crate) fn open(target: &Target, address: &Address, streams: &[Stream]) -> Result<Self, Failure> {
        let mut wire = Wire::open(target, address)?;
        let names = streams.iter().filter_map(Stream::to_possible_value);
        let words: String = names.map(|name| format!(" {}", name.get_name())).collect();
        wire.send(format!("watch{words}\r\n").as_bytes())?;
        let mut line = Vec::new();
        wire.line(&mut line)?;
        if line != b"OK" {
            let line = line.escape_ascii();
            return Err(Failure::Failed(format!("{address}: it does not show its events: {line}")));
        }
        wire.set_timeout(POLL)?;
        Ok(Self { wire, line, is_old: true })
    }

    /// The next event; `None`: none came for a fifth of a second.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        if std::mem::take(&mut self.is_old) {
            self.line.clear();
        }
        self.is_old = self.wire.poll_line(&mut self.line)?;
        Ok(self.is_old.then_some(&self.line))
    }
}

/// The value of a word `name=value` of an event.
pub(crate) fn word<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    line.split(|byte| *byte == b' ').find_map(|word| word.strip_prefix(name)?.strip_prefix(b"="))
}

/// Events that the server left out before this line, because they were read too slowly.
pub(crate) fn skipped(line: &[u8]) -> Option<u64> {
    std::str::from_utf8(word(line, b"skipped")?).ok()?.parse().ok()
}

const POLL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_events_are_found() {
        let line = b"ts=1.5 gid=3 type=item_get key=a%20b status=found clsid=1";
        assert_eq!(word(line, b"key"), Some(&b"a%20b"[..]));
        assert_eq!(word(line, b"id"), None);
        assert_eq!(skipped(line), None);
        assert_eq!(skipped(b"skipped=17"), Some(17));
    }
}
