//! Who may ask by HTTP: the options, the token and the host that the listeners for operators (`web`) and those for
//! items (`conn`) have in common.

mod host;
mod settings;
mod token;

pub use host::Hosts;
pub use settings::HttpSettings;
pub use token::TokenFile;
