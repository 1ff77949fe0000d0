//! Password files, and checks against them. The verifiers were made with Python's hashlib from the password, salt and
//! count of RFC 7677's example.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use larder_auth::{
    ENTRIES_MAX, Exchange, LINE_BYTES_MAX, Outcome, Password, Secret, Table, Verifier, is_user, parse, render,
};
use sha2::{Digest as _, Sha256};

const PENCIL: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                      wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

fn table(file: &str) -> Table {
    Table::new(parse(file.as_bytes()).expect("the file is right"), Arc::new(Secret::new([7; 32])), true)
}

/// As a server does it.
fn check(table: &Table, user: &str, password: &str) -> bool {
    let (user, password) = (user.as_bytes(), password.as_bytes());
    table.check(user, password).unwrap_or_else(|| table.check_dearly(user, password))
}

#[test]
fn lines_are_read_as_memcached_documents_them() {
    let entries = parse(b"a:b\r\n\nc:d e:f\ng:h").expect("it is right");
    let read: Vec<_> = entries.iter().map(|entry| (&entry.user[..], &entry.password)).collect();
    let plain = |password: &[u8]| Password::Plain(password.to_vec());
    assert_eq!(read, [(&b"a"[..], &plain(b"b")), (b"c", &plain(b"d e:f")), (b"g", &plain(b"h"))]);
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_user() {
    let users = |file: &[u8]| -> Vec<_> {
        parse(file).expect("it is right").into_iter().map(|entry| entry.user).collect()
    };
    assert_eq!(users(b"\xef\xbb\xbfroot:pw\nb:pw\n"), [&b"root"[..], b"b"]);
    assert_eq!(users(b"root:pw\n\xef\xbb\xbfb:pw\n"), [&b"root"[..], b"\xef\xbb\xbfb"]);
}

#[test]
fn what_cannot_be_meant_is_refused_by_line_and_without_showing_it() {
    let long = format!("a:{}", "x".repeat(LINE_BYTES_MAX));
    let many = "a:b\n".repeat(ENTRIES_MAX + 1);
    for (file, message) in [
        ("a:b\nsecret", "line 2: no colon after the user"),
        (":secret", "line 1: an empty user or password"),
        ("secret:", "line 1: an empty user or password"),
        ("secret:\0", "line 1: a zero byte"),
        ("a:SCRAM-SHA-256$secret", "line 1: a verifier that cannot be read"),
        (&*long, "line 1: too long"),
        (&*many, "line 1025: too many entries"),
        ("\n\r\n", "it holds no entry"),
        ("", "it holds no entry"),
    ] {
        assert_eq!(parse(file.as_bytes()).expect_err(file).to_string(), message);
    }
}

#[test]
fn verifiers_are_written_as_they_are_read() {
    let verifier = Verifier::parse(PENCIL.as_bytes()).expect("it is one");
    assert_eq!(verifier.to_string(), PENCIL);
    let salt =
        [0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa, 0x81];
    assert_eq!(Verifier::derive(b"pencil", &salt, 4096), verifier);
    for (from, to) in [
        ("4096", "4095"),
        ("4096", "100001"),
        ("4096", "99999999999"),
        ("W22ZaJ0SNY7soEsUEjb6gQ==", ""),
        ("W22Z", "W22!"),
        ("=:wf", "=wf"),
        ("qY=:", "==:"),
        ("SHA-256", "SHA-1"),
    ] {
        let text = PENCIL.replacen(from, to, 1);
        assert_eq!(Verifier::parse(text.as_bytes()), None, "{text}");
    }
    let file = format!("user:{PENCIL}\nother:plain\n");
    assert_eq!(render(&parse(file.as_bytes()).expect("it is right")), file.as_bytes());
    assert!(!format!("{:?}", parse(file.as_bytes())).contains("plain\""));
}

#[test]
fn users_can_be_said_in_a_login() {
    assert!(is_user(b"user@example.org") && is_user("käse".as_bytes()));
    for user in [&b""[..], b"a b", b"a:b", b"a\n", b"a\0", &[b'x'; 129]] {
        assert!(!is_user(user));
    }
}

#[test]
fn plain_passwords_are_checked_at_once() {
    let table = table("a:one\na:two\nb:one:two three\n");
    for (user, password, is_right) in [
        ("a", "one", true),
        ("a", "two", true),
        ("a", "three", false),
        ("a", "", false),
        ("a", "on", false),
        ("ao", "ne", false),
        ("b", "one:two three", true),
        ("b", "one", false),
        ("c", "one", false),
        ("", "one", false),
    ] {
        assert_eq!(table.check(user.as_bytes(), password.as_bytes()), Some(is_right), "{user} {password}");
    }
}

#[test]
fn hashed_passwords_are_checked_dearly_until_they_were_right_once() {
    let table = table(&format!("user:{PENCIL}\nplain:one\n"));
    assert_eq!(table.check(b"user", b"pencil"), None);
    assert!(!check(&table, "user", "pen"));
    assert_eq!(table.check(b"user", b"pencil"), None);
    assert!(check(&table, "user", "pencil"));
    assert_eq!(table.check(b"user", b"pencil"), Some(true));
    // A wrong password never gets away cheaply, whoever is named.
    for user in ["user", "plain", "nobody"] {
        assert_eq!(table.check(user.as_bytes(), b"wrong"), None);
        assert!(!check(&table, user, "wrong"));
    }
    assert!(check(&table, "plain", "one"));
    assert!(!check(&table, "nobody", "pencil"));
}

#[test]
fn plain_exchanges() {
    let table = table(&format!("user:{PENCIL}\nplain:one\n"));
    let start = |mechanism: &str, message: &str| {
        let answer = |user: &[u8], password: &[u8]| {
            Some(table.check(user, password).unwrap_or_else(|| table.check_dearly(user, password)))
        };
        Exchange::default().start(&table, mechanism.as_bytes(), message.as_bytes(), answer)
    };
    for message in ["\0plain\0one", "plain\0plain\0one", "\0user\0pencil"] {
        assert_eq!(start("PLAIN", message), Outcome::Authenticated, "{message:?}");
    }
    let mut exchange = Exchange::default();
    let outcome = exchange.start(&table, b"PLAIN", b"\0plain\0one", |_, _| Some(true));
    assert_eq!((outcome, exchange.user()), (Outcome::Authenticated, &b"plain"[..]));
    for message in [
        "",
        "\0",
        "\0plain",
        "\0plain\0",
        "\0plain\0two",
        "plain\0one",
        "user\0plain\0one",
        "\0plain\0one\0",
        "\0\0one",
    ] {
        assert_eq!(start("PLAIN", message), Outcome::Failed, "{message:?}");
    }
    for mechanism in ["", "plain", "PLAIN ", "CRAM-MD5", "SCRAM-SHA-1", "SCRAM-SHA-256-PLUS"] {
        assert_eq!(start(mechanism, "\0plain\0one"), Outcome::Failed, "{mechanism}");
    }
    let not_now = Exchange::default().start(&table, b"PLAIN", b"\0plain\0one", |_, _| None);
    assert_eq!(not_now, Outcome::NotNow);
}

#[test]
fn nobody_can_be_told_from_somebody() {
    let table = table(&format!("user:{PENCIL}\nplain:one\n"));
    let challenge = |user: &str| {
        let first = format!("n,,n={user},r=abc");
        let mut exchange = Exchange::default();
        match exchange.start(&table, b"SCRAM-SHA-256", first.as_bytes(), |_, _| Some(true)) {
            Outcome::Challenge(challenge) => {
                // What follows fails in the same way.
                assert_eq!(exchange.step(b"SCRAM-SHA-256", b"c=biws,r=abc,p=AAAA"), Outcome::Failed);
                let (nonce, rest) = challenge.split_once(",s=").expect("it has a salt");
                assert!(nonce.starts_with("r=abc") && nonce.len() == 5 + 24, "{nonce}");
                rest.to_owned()
            }
            other => panic!("{other:?}"),
        }
    };
    let of_nobody = challenge("nobody");
    assert_eq!(of_nobody, challenge("nobody"));
    assert_ne!(of_nobody, challenge("nobody else"));
    assert_eq!(of_nobody.len(), challenge("plain").len());
    assert_eq!(of_nobody.len(), challenge("user").len());
}

/// The client's side of RFC 5802, section 3, from the server's first message to the client's final one.
fn client_final(password: &str, first_bare: &str, server_first: &str) -> String {
    let hmac = |key: &[u8], text: &str| -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key will do");
        mac.update(text.as_bytes());
        mac.finalize().into_bytes().into()
    };
    let mut attributes = server_first.split(',').map(|attribute| &attribute[2..]);
    let (nonce, salt) = (attributes.next().expect("r="), attributes.next().expect("s="));
    let iterations = attributes.next().expect("i=").parse().expect("it is a number");
    let mut salted = [0; 32];
    let salt = STANDARD.decode(salt).expect("it is base64");
    pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), &salt, iterations, &mut salted);
    let client_key = hmac(&salted, "Client Key");
    let without_proof = format!("c=biws,r={nonce}");
    let said = format!("{first_bare},{server_first},{without_proof}");
    let signature = hmac(&Sha256::digest(client_key), &said);
    let proof: Vec<u8> = client_key.iter().zip(signature).map(|(byte, mask)| byte ^ mask).collect();
    format!("{without_proof},p={}", STANDARD.encode(proof))
}

#[test]
fn scram_exchanges() {
    let table = table(&format!("user:{PENCIL}\nplain:one\nplain:two\n"));
    for (user, password, is_right) in [
        ("user", "pencil", true),
        ("plain", "one", true),
        ("user", "pen", false),
        ("plain", "two", false),
        ("nobody", "one", false),
    ] {
        let mut exchange = Exchange::default();
        let bare = format!("n={user},r=abc");
        let first = format!("n,,{bare}");
        let Outcome::Challenge(server_first) =
            exchange.start(&table, b"SCRAM-SHA-256", first.as_bytes(), |_, _| None)
        else {
            panic!("{user}: no challenge")
        };
        let last = client_final(password, &bare, &server_first);
        match exchange.step(b"SCRAM-SHA-256", last.as_bytes()) {
            Outcome::Challenge(proof) if is_right => assert!(proof.starts_with("v="), "{proof}"),
            other => assert!(!is_right && other == Outcome::Failed, "{user} {password}: {other:?}"),
        }
        let end = exchange.step(b"SCRAM-SHA-256", b"");
        assert_eq!(end == Outcome::Authenticated, is_right, "{user} {password}");
        assert_eq!(exchange.user(), if is_right { user.as_bytes() } else { b"" });
        // What was proved once is no ticket: the same proof does not fit another exchange.
        assert!(matches!(
            exchange.start(&table, b"SCRAM-SHA-256", first.as_bytes(), |_, _| None),
            Outcome::Challenge(_)
        ));
        assert_eq!(exchange.step(b"SCRAM-SHA-256", last.as_bytes()), Outcome::Failed);
    }
}

#[test]
fn steps_without_a_start_fail() {
    let table = table("plain:one");
    let mut exchange = Exchange::default();
    assert_eq!(exchange.step(b"SCRAM-SHA-256", b""), Outcome::Failed);
    assert_eq!(exchange.step(b"PLAIN", b"\0plain\0one"), Outcome::Failed);
    let mut started = || exchange.start(&table, b"SCRAM-SHA-256", b"n,,n=plain,r=abc", |_, _| None);
    assert!(matches!(started(), Outcome::Challenge(_)));
    assert!(matches!(started(), Outcome::Challenge(_)));
    // The empty message that ends an exchange does not do instead of a proof.
    assert_eq!(exchange.step(b"SCRAM-SHA-256", b""), Outcome::Failed);
    assert_eq!(exchange.step(b"SCRAM-SHA-256", b""), Outcome::Failed);
}
