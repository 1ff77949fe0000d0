//! A client of memcached's protocols.
//!
//! ```
//! use larder_client::{Client, Distribution, Servers};
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let servers: Servers = "10.0.1.1, 10.0.1.2:11212:3".parse()?;
//! let mut client = Client::builder().servers(servers).distribution(Distribution::Ketama).build();
//! client.set("colour", "green", 3600)?;
//! let found = client.get("colour")?.map(|item| item.value);
//! assert_eq!(found.as_deref(), Some(&b"green"[..]));
//!
//! let many = client.multi_get(&["colour", "shape"]);
//! assert_eq!(many.items.iter().flatten().count(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`client`] | asks any number of servers, and waits: for tools and plain programs |
//! | `async_client` | asks them for many tasks at once, on tokio: for services (feature `tokio`) |
//! | `udp` | which of its requests go over UDP, and what is done about losses (feature `tokio`) |
//! | [`codec`] | requests to bytes and bytes to answers, for the text, meta and binary protocols; no I/O |
//! | [`address`] | where a server listens |
//! | [`server`] | a list of servers, from `MEMCACHED_SERVERS` for instance |
//! | [`discovery`] | where lists of servers come from |
//! | [`placement`] | which server a key belongs to, as other clients place it; no I/O |
//! | [`policy`] | where requests go while servers are away; no I/O |
//! | [`stream`] | a connection: TCP, TLS, unix socket |
//! | [`value`] | values as clients of PHP, Java, Python and Ruby keep them; values larger than an item |
//! | [`login`] | name and password |
//! | [`ttl`] | how long an item lives |
//! | [`error`] | what can go wrong |

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod address;
#[cfg(feature = "tokio")]
pub mod async_client;
mod check;
pub mod client;
pub mod codec;
pub mod discovery;
pub mod error;
pub mod login;
pub mod placement;
pub mod policy;
pub mod server;
mod split_mix;
pub mod stream;
pub mod ttl;
#[cfg(feature = "tokio")]
pub mod udp;
pub mod value;

pub use address::Address;
#[cfg(feature = "tokio")]
pub use async_client::AsyncClient;
pub use client::Client;
pub use codec::{Pipeline, Protocol};
pub use error::Error;
pub use login::Login;
pub use placement::{Distribution, Placement};
pub use policy::FailurePolicy;
pub use server::{Server, Servers};
pub use stream::{Stream, Tls};
pub use ttl::Ttl;
#[cfg(feature = "tokio")]
pub use udp::Udp;

/// The programs of the page are tested.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../README.md")]
struct Readme;
