//! bytes <-> Command/Reply.
