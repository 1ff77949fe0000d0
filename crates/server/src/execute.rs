//! What each command does.
