//! A conversation of which both sides are known.

use larder_client::codec::{Event, Outcome, Pipeline, Violation, ViolationKind};

/// Answers `input` in pieces that end at `cuts`, and at its end.
pub(crate) fn events(
    mut pipeline: Pipeline<u32>,
    input: &[u8],
    cuts: &[usize],
) -> Result<Vec<String>, Violation> {
    let mut events = Vec::new();
    let mut taken = 0;
    for &cut in cuts.iter().chain([&input.len()]) {
        let mut rest = &input[taken..cut];
        while let Some(event) = pipeline.receive(&mut rest)? {
            events.push(name(&event));
        }
        taken = cut - rest.len();
    }
    assert_eq!(taken, input.len(), "it wants more than the whole input");
    assert!(pipeline.is_empty(), "not everything is answered");
    Ok(events)
}

/// Checks what a pipeline makes of `input`, whole, in two pieces cut anywhere, and byte by byte.
#[track_caller]
pub(crate) fn expect_events(make: impl Fn() -> Pipeline<u32>, input: &[u8], expected: &[&str]) {
    let whole = events(make(), input, &[]).expect("it is as the protocol says");
    assert_eq!(whole, expected);
    for cut in 1..input.len() {
        let cut_once = events(make(), input, &[cut]).expect("it is as the protocol says");
        assert_eq!(cut_once, expected, "cut after {cut}");
    }
    let all: Vec<usize> = (1..input.len()).collect();
    assert_eq!(events(make(), input, &all).expect("it is as the protocol says"), expected);
}

/// Checks that `input` breaks the protocol, however it is cut.
#[track_caller]
pub(crate) fn expect_violation(make: impl Fn() -> Pipeline<u32>, input: &[u8], kind: ViolationKind) {
    for cut in 0..input.len() {
        let violation = events(make(), input, &[cut]).expect_err("it is against the protocol");
        assert_eq!(violation.kind, kind, "{violation}, cut after {cut}");
    }
}

fn name(event: &Event<'_, u32>) -> String {
    match event {
        Event::Value(value) => format!(
            "value {} {:?} flags {} cas {:?} [{}]",
            value.index,
            text(value.bytes),
            value.client_flags,
            value.cas,
            text(value.meta_flags)
        ),
        Event::KeyFailed(error) => format!("key failed {error}"),
        Event::Stat(name, value) => format!("stat {}={}", text(name), text(value)),
        Event::QuietFailed(outcome) => format!("quiet {}", name_outcome(outcome)),
        Event::Done(tag, outcome) => format!("{tag} {}", name_outcome(outcome)),
    }
}

fn name_outcome(outcome: &Outcome<'_>) -> String {
    match outcome {
        Outcome::Error(error) => format!("{:?}: {error}", error.kind),
        Outcome::Version(version) => format!("version {}", text(version)),
        outcome => format!("{outcome:?}"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
