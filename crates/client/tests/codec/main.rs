//! The codec: what it sends, and that it does not matter how answers are cut.

mod binary;
mod meta;
mod talk;
mod text;
mod udp;
