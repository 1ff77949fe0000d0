//! Placement of keys: beside what clients did, and its properties.

mod clients;
mod properties;
mod vectors;
