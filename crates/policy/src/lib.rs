//! Namespaces: a namespace is a prefix of keys with a policy. The longest prefix of a key that names a namespace wins;
//! all other keys belong to the default namespace.
//!
//! ```
//! use larder_policy::Table;
//!
//! let table = Table::parse(
//!     r#"
//!     [default]
//!     ttl_max = "30d"
//!
//!     [namespace."session:"]
//!     memory = "64m"
//!     ttl_default = "1h"
//!     "#,
//! )?;
//! let session = table.find(b"session:7");
//! assert_eq!(table.policy(session).memory_bytes, Some(64 << 20));
//! assert_eq!(table.find(b"page:7"), larder_policy::DEFAULT);
//! # Ok::<(), larder_policy::Error>(())
//! ```
//!
//! Pure: no I/O, no clock.

mod error;
mod policy;
mod quotas;
mod read;
mod table;
mod units;

pub use error::Error;
pub use policy::{Durability, Keep, Policy, Rmw, Told, Users};
pub use quotas::{MEMORY_BYTES_MIN, QuotaError};
pub use table::{DEFAULT, NAMESPACES_MAX, Table};
