//! Password files, and the messages of clients that log in.

use std::sync::{Arc, OnceLock};

use larder_auth::{ENTRIES_MAX, Exchange, MECHANISMS, Outcome, Secret, Table, Verifier, parse, render};

/// A password file.
pub fn passwords(file: &[u8]) {
    let _ = Verifier::parse(file);
    let Ok(entries) = parse(file) else { return };
    assert!(entries.len() <= ENTRIES_MAX);
    assert!(entries.iter().all(|entry| !entry.user.is_empty() && !entry.user.contains(&b':')));
    assert_eq!(parse(&render(&entries)).as_ref(), Ok(&entries), "written and read again");
    let table = Table::new(entries, Arc::new(Secret::new([1; 32])), false);
    let _ = table.check(b"user", b"password");
}

/// A mechanism, selected by the first byte; then its first message, a line feed, and its second.
pub fn sasl(input: &[u8]) {
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE
        .get_or_init(|| Table::new(parse(b"user:password\n").unwrap(), Arc::new(Secret::new([1; 32])), true));

    let Some((mechanism, messages)) = input.split_first() else { return };
    let mut names = MECHANISMS.split(' ').map(str::as_bytes).collect::<Vec<_>>();
    names.push(messages);
    let mechanism = names[usize::from(*mechanism) % names.len()];
    let mut messages = messages.splitn(2, |byte| *byte == b'\n');
    let (first, second) = (messages.next().unwrap_or_default(), messages.next().unwrap_or_default());

    let mut exchange = Exchange::default();
    let check = |user: &[u8], password: &[u8]| table.check(user, password);
    if exchange.start(table, mechanism, first, check) == Outcome::Authenticated {
        assert!(mechanism == b"PLAIN" && first.ends_with(b"\0user\0password"));
        return;
    }
    // The server's part of the nonce cannot be guessed.
    assert!(!matches!(exchange.step(mechanism, second), Outcome::Authenticated));
    assert!(!matches!(exchange.step(mechanism, b""), Outcome::Authenticated));
}
