//! Features that a few lines and their replies show.
//!
//! In requests `KEY` is a key of this try, `LONG` one of 250 bytes, and `~` waits for the next reply. A dump may begin
//! with `OK` or not. In replies `*` is any rest of a line, `...` any lines up to the next given one, and `WAIT` lets
//! time pass.

use std::time::Duration;

use super::{Feature, Finding, Subject};
use crate::Failure;
use crate::wire::Wire;

/// Group, feature, requests, expected lines.
type Script = (&'static str, &'static str, &'static str, &'static [&'static str]);

pub(super) fn features(flush: bool) -> Vec<Feature> {
    let scripts = SCRIPTS.iter().chain(FLUSH_SCRIPTS.iter().filter(|_| flush));
    scripts
        .map(|&(group, name, requests, answers)| {
            Feature::new(group, name, move |subject| play(subject, requests, answers))
        })
        .collect()
}

const SCRIPTS: &[Script] = &[
    ("text", "version", "version\n", &["VERSION *"]),
    ("text", "get", "get KEY\n", &["END"]),
    ("text", "set", "set KEY 0 60 1\na\nget KEY\n", &["STORED", "VALUE KEY 0 1", "a", "END"]),
    (
        "text",
        "client flags of 32 bits",
        "set KEY 4294967295 60 1\na\nget KEY\n",
        &["STORED", "VALUE KEY 4294967295 1", "a", "END"],
    ),
    (
        "text",
        "get of many keys",
        "set KEY 0 60 1\na\nget KEY nokey KEY\n",
        &["STORED", "VALUE KEY 0 1", "a", "VALUE KEY 0 1", "a", "END"],
    ),
    ("text", "add", "set KEY 0 60 1\na\nadd KEY 0 60 1\nb\n", &["STORED", "NOT_STORED"]),
    (
        "text",
        "replace",
        "replace KEY 0 60 1\na\nset KEY 0 60 1\na\nreplace KEY 0 60 1\nb\n",
        &["NOT_STORED", "STORED", "STORED"],
    ),
    (
        "text",
        "append",
        "set KEY 3 60 1\na\nappend KEY 0 0 1\nb\nget KEY\n",
        &["STORED", "STORED", "VALUE KEY 3 2", "ab", "END"],
    ),
    (
        "text",
        "prepend",
        "set KEY 3 60 1\na\nprepend KEY 0 0 1\nb\nget KEY\n",
        &["STORED", "STORED", "VALUE KEY 3 2", "ba", "END"],
    ),
    ("text", "gets", "set KEY 0 60 1\na\ngets KEY\n", &["STORED", "VALUE KEY 0 1 *", "a", "END"]),
    (
        "text",
        "cas",
        "set KEY 0 60 1\na\ncas KEY 0 60 1 18446744073709551614\nb\ncas KEYx 0 60 1 1\nb\n",
        &["STORED", "EXISTS", "NOT_FOUND"],
    ),
    ("text", "incr", "set KEY 0 60 1\n9\nincr KEY 3\n", &["STORED", "12"]),
    (
        "text",
        "incr beyond 2^64 begins at 0",
        "set KEY 0 60 20\n18446744073709551615\nincr KEY 2\n",
        &["STORED", "1"],
    ),
    ("text", "decr stops at 0", "set KEY 0 60 1\n9\ndecr KEY 10\n", &["STORED", "0"]),
    ("text", "incr refuses text", "set KEY 0 60 1\na\nincr KEY 1\n", &["STORED", "CLIENT_ERROR *"]),
    ("text", "delete", "set KEY 0 60 1\na\ndelete KEY\ndelete KEY\n", &["STORED", "DELETED", "NOT_FOUND"]),
    ("text", "touch", "set KEY 0 60 1\na\ntouch KEY 50\ntouch KEYx 5\n", &["STORED", "TOUCHED", "NOT_FOUND"]),
    ("text", "gat", "set KEY 0 60 1\na\ngat 50 KEY\n", &["STORED", "VALUE KEY 0 1", "a", "END"]),
    ("text", "gats", "set KEY 0 60 1\na\ngats 50 KEY\n", &["STORED", "VALUE KEY 0 1 *", "a", "END"]),
    ("text", "noreply", "set KEY 0 60 1 noreply\na\nget KEY\n", &["VALUE KEY 0 1", "a", "END"]),
    (
        "text",
        "binary values",
        "set KEY 0 60 5\n\0\r\x7f\u{1}x\nget KEY\n",
        &["STORED", "VALUE KEY 0 5", "*", "END"],
    ),
    ("text", "keys of 250 bytes", "get LONG\n", &["END"]),
    ("text", "refuses keys of 251 bytes", "get LONGx\n", &["CLIENT_ERROR *"]),
    ("text", "keys in UTF-8", "set KEYé 0 60 1\na\nget KEYé\n", &["STORED", "VALUE KEYé 0 1", "a", "END"]),
    ("time to live", "negative: gone at once", "set KEY 0 -1 1\na\nget KEY\n", &["STORED", "END"]),
    (
        "time to live",
        "seconds, counted",
        "set KEY 0 2 1\na\n~get KEY\n~~~~get KEY\n",
        &["STORED", "VALUE KEY 0 1", "a", "END", "WAIT", "END"],
    ),
    (
        "time to live",
        "more than 30 days is a moment",
        "set KEY 0 2592001 1\na\nget KEY\n",
        &["STORED", "END"],
    ),
    (
        "time to live",
        "touch changes it",
        "set KEY 0 60 1\na\ntouch KEY -1\nget KEY\n",
        &["STORED", "TOUCHED", "END"],
    ),
    (
        "time to live",
        "append keeps it",
        "set KEY 0 1 1\na\n~append KEY 0 0 1\nb\n~~get KEY\n",
        &["STORED", "STORED", "WAIT", "END"],
    ),
    (
        "time to live",
        "incr keeps it",
        "set KEY 0 1 1\n5\n~incr KEY 1\n~~get KEY\n",
        &["STORED", "6", "WAIT", "END"],
    ),
    ("meta", "mn", "mn\n", &["MN"]),
    ("meta", "mg", "mg KEY v\n", &["EN"]),
    ("meta", "ms", "ms KEY 1 T60\na\nmg KEY v\n", &["HD", "VA 1", "a"]),
    ("meta", "md", "ms KEY 1 T60\na\nmd KEY\nmd KEY\n", &["HD", "HD", "NF"]),
    ("meta", "ma", "ms KEY 1 T60\n5\nma KEY v\n", &["HD", "VA 1", "6"]),
    ("meta", "me", "set KEY 0 60 1\na\nme KEY\n", &["STORED", "ME KEY *"]),
    ("meta", "remaining time (t)", "ms KEY 1 T60\na\nmg KEY t\n", &["HD", "HD t*"]),
    ("meta", "hit before, last access (h l)", "ms KEY 1 T60\na\nmg KEY h l\n", &["HD", "HD h0 l0"]),
    (
        "meta",
        "opaque, key, flags, size (O k f s)",
        "ms KEY 1 T60 F7\na\nmg KEY k f s O9\n",
        &["HD", "HD kKEY f7 s1 O9"],
    ),
    ("meta", "quiet (q)", "mg KEY v q\nmn\n", &["MN"]),
    (
        "meta",
        "modes (M)",
        "ms KEY 1 T60\na\nms KEY 1 ME\nb\nms KEY 1 MA\nc\nmg KEY v\n",
        &["HD", "NS", "HD", "VA 2", "ac"],
    ),
    ("meta", "auto-vivify and win (N W)", "mg KEY v N60\nmg KEY v\n", &["VA 0 W", "", "VA 0 Z", ""]),
    ("meta", "stale (I X)", "ms KEY 1 T60\na\nmd KEY I T30\nmg KEY v\n", &["HD", "HD", "VA 1 *", "a"]),
    (
        "meta",
        "arithmetic with a beginning (N J)",
        "ma KEY N60 J13 v\nma KEY v\n",
        &["VA 2", "13", "VA 2", "14"],
    ),
    (
        "meta",
        "keys in base64 (b)",
        "ms AAECAw== 1 b T5\na\nmg AAECAw== b v k\nmd AAECAw== b\n",
        &["HD", "VA 1 kAAECAw== b", "a", "HD"],
    ),
    ("meta", "compare (C)", "ms KEY 1 T60\na\nms KEY 1 C1\nb\n", &["HD", "EX"]),
    ("meta", "own CAS values (E)", "ms KEY 1 T60 E987654\na\nmg KEY c\n", &["HD", "HD c987654"]),
    ("statistics", "stats", "stats\n", &["STAT *", "...", "END"]),
    ("statistics", "stats settings", "stats settings\n", &["STAT *", "...", "END"]),
    (
        "statistics",
        "stats items",
        "set KEY 0 60 1\na\nstats items\n",
        &["STORED", "STAT items:*", "...", "END"],
    ),
    ("statistics", "stats slabs", "stats slabs\n", &["STAT *", "...", "END"]),
    ("statistics", "stats sizes", "stats sizes\n", &["STAT *", "...", "END"]),
    ("statistics", "stats conns", "stats conns\n", &["STAT *", "...", "END"]),
    ("statistics", "stats detail dump", "stats detail dump\n", &["...", "END"]),
    ("statistics", "stats cachedump", "stats cachedump 1 1\n", &["...", "END"]),
    ("statistics", "stats extstore", "stats extstore\n", &["STAT *", "...", "END"]),
    ("statistics", "stats proxy", "stats proxy\n", &["STAT *", "...", "END"]),
    (
        "administration",
        "lru_crawler metadump all",
        "set KEY 0 60 1\na\n~lru_crawler metadump all\n",
        &["STORED", "...", "key=*", "...", "END"],
    ),
    (
        "administration",
        "lru_crawler metadump hash",
        "set KEY 0 60 1\na\n~lru_crawler metadump hash\n",
        &["STORED", "...", "key=*", "...", "END"],
    ),
    (
        "administration",
        "lru_crawler mgdump",
        "set KEY 0 60 1\na\n~lru_crawler mgdump all\n",
        &["STORED", "...", "mg *", "...", "EN"],
    ),
    ("administration", "lru_crawler crawl", "lru_crawler crawl 1\n", &["OK"]),
    ("administration", "watch fetchers", "watch fetchers\n", &["OK"]),
    ("administration", "watch mutations", "watch mutations\n", &["OK"]),
    ("administration", "watch evictions", "watch evictions\n", &["OK"]),
    ("administration", "watch connevents", "watch connevents\n", &["OK"]),
    ("administration", "watch deletions", "watch deletions\n", &["OK"]),
];

const FLUSH_SCRIPTS: &[Script] =
    &[("text", "flush_all", "set KEY 0 60 1\na\nflush_all\nget KEY\n", &["STORED", "OK", "END"])];

/// Sends the requests on a new connection, and compares the replies.
fn play(subject: &Subject, requests: &str, answers: &[&str]) -> Result<Finding, Failure> {
    let key = subject.key();
    let finding = converse(subject, &key, requests, answers);
    for key in [&key, &format!("{key}é")] {
        subject.forget(key);
    }
    finding
}

fn converse(subject: &Subject, key: &str, requests: &str, answers: &[&str]) -> Result<Finding, Failure> {
    let fill = |text: &str| text.replace("LONG", &format!("{key:x<250}")).replace("KEY", key);
    let mut wire = Wire::open(&subject.target, &subject.address)?;
    wire.set_timeout(subject.patience())?;
    let mut answers = answers.iter().map(|answer| fill(answer));
    for part in fill(requests).split_inclusive('~') {
        wire.send(part.trim_end_matches('~').replace('\n', "\r\n").as_bytes())?;
        // A dump of keys may not be pipelined with anything else.
        if part.ends_with('~')
            && let Some(wrong) = mismatch(&mut wire, &mut answers)?
        {
            return Ok(Finding::no(wrong));
        }
    }
    while answers.len() > 0 {
        if let Some(wrong) = mismatch(&mut wire, &mut answers)? {
            return Ok(Finding::no(wrong));
        }
    }
    Ok(Finding::yes(""))
}

/// Reads the next reply. Returns an unexpected one.
fn mismatch(wire: &mut Wire, answers: &mut impl Iterator<Item = String>) -> Result<Option<String>, Failure> {
    let mut line = Vec::new();
    let Some(answer) = answers.next() else { return Ok(None) };
    let (answer, skips) = match &answer[..] {
        "..." => (answers.next().unwrap_or_default(), true),
        "WAIT" => {
            std::thread::sleep(EXPIRY);
            return Ok(None);
        }
        _ => (answer, false),
    };
    loop {
        wire.line(&mut line)?;
        let text = String::from_utf8_lossy(&line);
        let fits = match answer.strip_suffix('*') {
            Some(start) => text.starts_with(start),
            None => text == answer,
        };
        if fits {
            return Ok(None);
        }
        if !skips || text.contains("ERROR") || text.starts_with("BUSY") {
            return Ok(Some(text.escape_debug().to_string()));
        }
    }
}

/// After this an item with a TTL of two seconds has expired, whenever the server's clock ticks.
const EXPIRY: Duration = Duration::from_millis(3_200);
