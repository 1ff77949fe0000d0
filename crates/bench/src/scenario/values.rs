//! Values: their length and content.

use serde::{Deserialize, Serialize};

use super::Sizes;

/// The values to store.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Values {
    /// Length of a value. Determined by the key's number, so that a key keeps its length, unless `redraw` is set.
    pub bytes: Sizes,
    /// Draw a new length at each store.
    pub redraw: bool,
    /// Content of a value that is not verified.
    pub content: Content,
}

impl Default for Values {
    fn default() -> Self {
        Self { bytes: Sizes::Fixed(100), redraw: false, content: Content::Random }
    }
}

/// The content of a value.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// Bytes that do not compress.
    #[default]
    Random,
    /// Text that compresses to about a third.
    Text,
    /// These bytes, repeated.
    Repeated(String),
    /// A decimal number, for incr and decr.
    Number,
}
