//! larderd.
fn main() {}
