//! The listeners for operators, and what each may show.

use crate::access::ListenerAccess;
use crate::net::listeners::Listener;
use crate::startup::settings::Settings;

/// A listener, and how far its clients are trusted.
pub(super) struct AdminEndpoint {
    pub(super) listener: Listener,
    pub(super) access: ListenerAccess,
    /// Keys may be shown here.
    pub(super) shows_keys: bool,
}

/// Makes endpoints of listeners.
pub(super) fn open(listeners: Vec<Listener>, settings: &Settings) -> Vec<AdminEndpoint> {
    let endpoint = |listener: Listener| {
        let access = ListenerAccess::of(&listener.address, &settings.admin, &settings.tls);
        // -X forbids showing keys.
        AdminEndpoint { access, shows_keys: settings.dump && !access.is_open, listener }
    };
    listeners.into_iter().map(endpoint).collect()
}
