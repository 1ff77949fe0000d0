//! Who may ask over HTTP: the options, the token and the host that the listeners for operators (`web`) and those for
//! items (`conn`) have in common.

mod host;
mod listener_access;
mod settings;
mod token;

pub use host::Hosts;
pub use listener_access::ListenerAccess;
pub use settings::HttpSettings;
pub use token::TokenFile;
