//! Replies on their way out.
