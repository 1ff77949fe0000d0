//! A histogram as text: HDR's V2 form, deflated, in base64, as HdrHistogram's own logs have it. For
//! `#[serde(with = ..)]`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer as From, Serializer as Into};

/// Why a text is no histogram, in words.
pub type Wrong = String;

/// A histogram as text.
pub fn encode(histogram: &Histogram<u64>) -> Result<String, Wrong> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).map_err(|error| error.to_string())?;
    Ok(STANDARD.encode(bytes))
}

/// The histogram that a text stands for.
pub fn decode(text: &str) -> Result<Histogram<u64>, Wrong> {
    let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|error| error.to_string())
}

/// For serde.
pub fn serialize<S: Into>(histogram: &Histogram<u64>, into: S) -> Result<S::Ok, S::Error> {
    into.serialize_str(&encode(histogram).map_err(S::Error::custom)?)
}

/// For serde.
pub fn deserialize<'de, D: From<'de>>(from: D) -> Result<Histogram<u64>, D::Error> {
    decode(&String::deserialize(from)?).map_err(D::Error::custom)
}
