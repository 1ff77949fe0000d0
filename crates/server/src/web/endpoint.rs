//! The listeners for operators, and what each of them may show and change.

use std::os::unix::fs::PermissionsExt as _;

use crate::access::ListenerAccess;
use crate::net::listeners::{Address, Listener};
use crate::startup::settings::Settings;

/// A listener, and how far its clients are trusted.
pub(super) struct AdminEndpoint {
    pub(super) listener: Listener,
    pub(super) access: ListenerAccess,
    /// Keys may be shown here.
    pub(super) shows_keys: bool,
    /// Clients may make changes here: they show a token or a certificate, or the mode of the Unix socket keeps others
    /// out. Being on this machine is not enough.
    pub(super) takes_changes: bool,
}

/// Makes endpoints of listeners.
pub(super) fn open(listeners: Vec<Listener>, settings: &Settings) -> Vec<AdminEndpoint> {
    let endpoint = |listener: Listener| {
        let access = ListenerAccess::of(&listener.address, &settings.admin, &settings.tls);
        // -X forbids showing keys.
        let shows_keys = settings.dump && !access.is_open;
        let takes_changes = access.is_authenticated || keeps_others_out(&listener, settings);
        AdminEndpoint { access, shows_keys, takes_changes, listener }
    };
    listeners.into_iter().map(endpoint).collect()
}

/// True of a Unix socket that only its owner and group can open. An abstract socket has no mode.
fn keeps_others_out(listener: &Listener, settings: &Settings) -> bool {
    let Address::Unix(path) = &listener.address else { return false };
    let mode = match listener.is_passed {
        true => path.metadata().map_or(OTHERS, |found| found.permissions().mode()),
        false => settings.unix_mode,
    };
    mode & OTHERS == 0
}

/// Write permission for others, which connecting requires.
const OTHERS: u32 = 0o002;
