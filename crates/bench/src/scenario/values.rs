//! Values: how long they are, and what is in them.

use serde::{Deserialize, Serialize};

use super::Sizes;

/// What is stored.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Values {
    /// Length of a value. Drawn by the key's number, so that a key keeps its length, unless `redraw`.
    pub bytes: Sizes,
    /// Draw a new length at each store.
    pub redraw: bool,
    /// What is in a value, where it is not verified.
    pub content: Content,
}

impl Default for Values {
    fn default() -> Self {
        Self { bytes: Sizes::Fixed(100), redraw: false, content: Content::Random }
    }
}

/// What is in a value.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// Bytes that do not compress.
    #[default]
    Random,
    /// Text that compresses to about a third.
    Text,
    /// These bytes, again and again.
    Repeated(String),
    /// A decimal number, for incr and decr.
    Number,
}
