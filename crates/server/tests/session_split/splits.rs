//! Conversations, split at every point.

use std::fmt::Write as _;

use larder_protocol::Dialect;
use larder_server::conn::session::Session;
use larder_server::startup::settings::Settings;

use crate::harness::{Client, Server};

impl Client {
    pub(crate) fn speaking(dialect: Dialect) -> Self {
        Self { session: Session::new(Some(dialect)), ..Self::default() }
    }
}

/// Plays a conversation in one piece, byte by byte and split at every point (of long ones: at some), each time with a
/// server of its own, and expects `replies` each time; `is_closed` at its end.
pub(crate) fn for_each_split(settings: &Settings, input: &[u8], replies: &[u8], is_closed: bool) {
    let told = |replies: &[u8]| replies.to_vec();
    for_each_split_told(settings, None, input, replies, is_closed, told);
}

/// The same in a dialect, for replies of which `told` is what does not depend on the pieces, nor on the run.
pub(crate) fn for_each_split_told(
    settings: &Settings,
    dialect: Option<Dialect>,
    input: &[u8],
    replies: &[u8],
    is_closed: bool,
    told: impl Fn(&[u8]) -> Vec<u8>,
) {
    let play = |pieces: &mut dyn Iterator<Item = &[u8]>, how: &str, uses_windows: bool| {
        let mut server = Server::new(settings.clone());
        let mut client = Client { uses_windows, session: Session::new(dialect), ..Client::default() };
        for piece in pieces {
            server.receive(&mut client, piece);
        }
        assert_same(&told(&client.replies), replies, how);
        assert_eq!(client.is_closed, is_closed, "{how}");
    };
    play(&mut std::iter::once(input), "whole", false);
    play(&mut input.chunks(input.len() / 20_000 + 1), "in small pieces", false);
    play(&mut input.chunks(16_000), "in windows", true);
    for at in (1..input.len()).step_by(input.len() / 100 + 1) {
        let (head, tail) = input.split_at(at);
        play(&mut [head, tail].into_iter(), &format!("split at {at}"), at % 2 == 0);
    }
}

/// Only what differs is made readable, which takes much longer than the comparison.
#[track_caller]
pub(crate) fn assert_same(replies: &[u8], expected: &[u8], how: &str) {
    assert!(replies == expected, "{how}: {}\ninstead of {}", show(replies), show(expected));
}

/// Replies, readable: runs of one byte shortened.
fn show(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for run in bytes.chunk_by(|a, b| a == b) {
        let send = run[0].escape_ascii().to_string();
        match run.len() {
            1..=9 => shown.push_str(&send.repeat(run.len())),
            n => write!(shown, "<{n}*{send}>").unwrap(),
        }
        if run.ends_with(b"\n") {
            shown.push('\n');
        }
    }
    shown
}
