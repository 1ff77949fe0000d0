//! Reads a table from TOML, with the line and the key of what is wrong.

use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::policy::{Durability, Keep, Policy, Rmw, Told, Users};
use crate::quotas::MEMORY_BYTES_MIN;
use crate::table::{NAMESPACES_MAX, Table};
use crate::{Error, units};

/// The longest prefix: the longest key.
const PREFIX_BYTES_MAX: usize = 250;
/// Sizes of items are those that `-I` takes.
const ITEM_BYTES: Range<u64> = 1 << 10..(1 << 30) + 1;
/// Disk below this holds nothing.
const DISK_BYTES_MIN: u64 = 1 << 20;
/// Ten years, as far as TTLs are useful.
const TTL_SECS_MAX: u64 = 3_650 * 86_400;

const ROOT_KEYS: &[&str] = &["default", "namespace"];
const POLICY_KEYS: &[&str] = &[
    "keep",
    "durability",
    "memory",
    "disk",
    "ttl_default",
    "ttl_max",
    "item_bytes_max",
    "read_only",
    "users",
    "replicate",
    "rmw",
    "home",
];
const USERS_KEYS: &[&str] = &["read", "write"];

pub(crate) fn table(text: &str, mut default: Policy) -> Result<Table, Error> {
    let source = Source { text };
    let root = DeTable::parse(text).map_err(|error| Error {
        line: source.line(error.span().unwrap_or_default().start),
        key: String::new(),
        reason: error.message().lines().collect::<Vec<_>>().join(", "),
    })?;
    let keep = default.keep;
    let mut namespaces = Vec::new();
    for (name, value) in root.get_ref() {
        let place = source.place(name.get_ref().as_ref(), name.span());
        match name.get_ref().as_ref() {
            "default" => default = policy(&place, value, default.clone(), true)?,
            "namespace" => {
                for (prefix, value) in entries(&place, value)? {
                    let place = place.quoted(prefix.get_ref(), prefix.span());
                    check_prefix(&place, prefix.get_ref().as_bytes())?;
                    if namespaces.len() == NAMESPACES_MAX {
                        return Err(place.wrong(format!("there are more than {NAMESPACES_MAX} namespaces")));
                    }
                    let prefix = prefix.get_ref().as_bytes().into();
                    let first = Policy { keep, ..Policy::default() };
                    namespaces.push((prefix, policy(&place, value, first, false)?));
                }
            }
            other => return Err(place.unknown(other, ROOT_KEYS)),
        }
    }
    Ok(Table::new(default, namespaces))
}

fn check_prefix(place: &Place<'_>, prefix: &[u8]) -> Result<(), Error> {
    if prefix.is_empty() {
        return Err(place.wrong("a prefix is not empty; all other keys are [default]"));
    }
    if prefix.len() > PREFIX_BYTES_MAX {
        return Err(place.wrong(format!("a prefix has at most {PREFIX_BYTES_MAX} bytes")));
    }
    if prefix.iter().any(|byte| *byte == b' ' || byte.is_ascii_control()) {
        return Err(place.wrong("a prefix has no spaces and no control characters"));
    }
    Ok(())
}

/// A policy that begins as `policy`.
fn policy(
    place: &Place<'_>,
    value: &Value<'_>,
    mut policy: Policy,
    is_default: bool,
) -> Result<Policy, Error> {
    let mut seen = BTreeSet::new();
    for (name, value) in entries(place, value)? {
        let name_span = name.span();
        let name = name.get_ref().as_ref();
        let place = place.below(name, name_span);
        match name {
            "keep" => policy.keep = one_of(&place, value, Keep::ALL, Keep::name)?,
            "durability" => {
                policy.durability = Some(one_of(&place, value, Durability::ALL, Durability::name)?);
            }
            "memory" if is_default => {
                return Err(place.wrong("the default namespace has what -m leaves beside the others"));
            }
            "memory" => {
                policy.memory_bytes = Some(size(&place, value, MEMORY_BYTES_MIN..MEMORY_BYTES_MAX + 1)?)
            }
            "disk" => policy.disk_bytes = Some(size(&place, value, DISK_BYTES_MIN..u64::MAX)?),
            "ttl_default" => policy.ttl_default_secs = Some(ttl(&place, value)?),
            "ttl_max" => policy.ttl_max_secs = Some(ttl(&place, value)?),
            "item_bytes_max" => policy.item_bytes_max = Some(size(&place, value, ITEM_BYTES)? as u32),
            "read_only" => policy.is_read_only = truth(&place, value)?,
            "users" => policy.users = users(&place, value)?,
            "replicate" => (policy.is_replicated, policy.told) = replicated(&place, value)?,
            "home" => policy.home = Some(site(&place, value)?),
            "rmw" => policy.rmw = Some(one_of(&place, value, Rmw::ALL, Rmw::name)?),
            other => return Err(place.unknown(other, POLICY_KEYS)),
        }
        seen.insert((name.to_owned(), place.line()));
    }
    // What fits together is known only now.
    let line_of = |key: &str| seen.iter().find(|(name, _)| name == key).map(|(_, line)| *line);
    let wrong = |key: &str, reason: &str| match line_of(key) {
        Some(line) => Err(Error { line, key: place.join(key), reason: reason.to_owned() }),
        None => Ok(()),
    };
    if policy.keep != Keep::Store {
        wrong("durability", "only with keep = \"store\"")?;
        wrong("disk", "only with keep = \"store\"")?;
    }
    if policy.is_replicated != Some(true) {
        wrong("rmw", "only with replicate = true")?;
    }
    match (policy.rmw, policy.home) {
        (Some(Rmw::HomeMaster), None) => wrong("rmw", "\"home\" needs home = N, the number of that site")?,
        (Some(Rmw::HomeMaster), Some(_)) => {}
        _ => wrong("home", "only with rmw = \"home\"")?,
    }
    if policy.told != Told::Nothing && policy.keep == Keep::Store {
        wrong("replicate", "with keep = \"store\" true or false is needed: the store tells everything")?;
    }
    if let (Some(default), Some(max)) = (policy.ttl_default_secs, policy.ttl_max_secs)
        && default > max
    {
        wrong("ttl_default", "more than ttl_max")?;
    }
    if let (Some(item), Some(memory)) = (policy.item_bytes_max, policy.memory_bytes)
        && u64::from(item) > memory / 2
    {
        wrong("item_bytes_max", "more than half of memory")?;
    }
    Ok(policy)
}

fn users(place: &Place<'_>, value: &Value<'_>) -> Result<Users, Error> {
    let mut users = Users::default();
    for (name, value) in entries(place, value)? {
        let place = place.below(name.get_ref(), name.span());
        match name.get_ref().as_ref() {
            "read" => users.read = Some(names(&place, value)?),
            "write" => users.write = Some(names(&place, value)?),
            other => return Err(place.unknown(other, USERS_KEYS)),
        }
    }
    Ok(users)
}

type Value<'i> = Spanned<DeValue<'i>>;

fn entries<'v, 'i>(place: &Place<'_>, value: &'v Value<'i>) -> Result<&'v DeTable<'i>, Error> {
    value.get_ref().as_table().ok_or_else(|| place.wrong("a table is needed"))
}

fn names(place: &Place<'_>, value: &Value<'_>) -> Result<Vec<String>, Error> {
    let wrong = || place.wrong("a list of user names is needed, as in [\"anna\", \"ben\"]");
    let array = value.get_ref().as_array().ok_or_else(wrong)?;
    array.iter().map(|name| name.get_ref().as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

fn truth(place: &Place<'_>, value: &Value<'_>) -> Result<bool, Error> {
    value.get_ref().as_bool().ok_or_else(|| place.wrong("true or false is needed"))
}

/// `true`, `false`, or what a cache tells the others.
fn replicated(place: &Place<'_>, value: &Value<'_>) -> Result<(Option<bool>, Told), Error> {
    match (value.get_ref().as_bool(), value.get_ref().as_str()) {
        (Some(is_replicated), _) => Ok((Some(is_replicated), Told::Nothing)),
        (_, Some("invalidations")) => Ok((None, Told::Invalidations)),
        (_, Some("values")) => Ok((None, Told::Values)),
        _ => Err(place.wrong("true, false, \"invalidations\" or \"values\" is needed")),
    }
}

/// The number of a site.
fn site(place: &Place<'_>, value: &Value<'_>) -> Result<u8, Error> {
    let number = number(value, |_| None).and_then(|number| u8::try_from(number).ok());
    number
        .filter(|number| *number != 0)
        .ok_or_else(|| place.wrong("the number of a site is needed, 1 to 255"))
}

fn one_of<T: Copy, const N: usize>(
    place: &Place<'_>,
    value: &Value<'_>,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> Result<T, Error> {
    let text = value.get_ref().as_str();
    all.into_iter().find(|one| text == Some(name(*one))).ok_or_else(|| {
        let names: Vec<_> = all.into_iter().map(|one| format!("\"{}\"", name(one))).collect();
        place.wrong(format!("one of {} is needed", names.join(", ")))
    })
}

/// Bounds as a half-open range.
fn size(place: &Place<'_>, value: &Value<'_>, bounds: Range<u64>) -> Result<u64, Error> {
    let bytes = number(value, units::bytes)
        .ok_or_else(|| place.wrong("a size is needed: a number of bytes, or as in \"64m\" (k, m, g, t)"))?;
    if bytes < bounds.start {
        return Err(place.wrong(format!("at least {} bytes are needed", bounds.start)));
    }
    if bytes >= bounds.end {
        return Err(place.wrong(format!("at most {} bytes are possible", bounds.end - 1)));
    }
    Ok(bytes)
}

fn ttl(place: &Place<'_>, value: &Value<'_>) -> Result<u32, Error> {
    let secs = number(value, units::secs)
        .ok_or_else(|| place.wrong("a time is needed: a number of seconds, or as in \"1h\" (s, m, h, d)"))?;
    if !(1..=TTL_SECS_MAX).contains(&secs) {
        return Err(place.wrong("1 second to 3650 days are possible; leave it out for no limit"));
    }
    Ok(secs as u32)
}

/// A number, or a text that `read` turns into one.
fn number(value: &Value<'_>, read: fn(&str) -> Option<u64>) -> Option<u64> {
    match value.get_ref() {
        DeValue::String(text) => read(text),
        DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix()).ok(),
        _ => None,
    }
}

/// The text, for the numbers of its lines.
#[derive(Clone, Copy)]
struct Source<'s> {
    text: &'s str,
}

impl<'s> Source<'s> {
    fn line(self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn place(self, key: &str, span: Range<usize>) -> Place<'s> {
        Place { source: self, path: key.to_owned(), at: span.start }
    }
}

/// A key of the text.
struct Place<'s> {
    source: Source<'s>,
    path: String,
    at: usize,
}

impl<'s> Place<'s> {
    fn line(&self) -> usize {
        self.source.line(self.at)
    }

    fn join(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    fn below(&self, key: &str, span: Range<usize>) -> Self {
        Place { source: self.source, path: self.join(key), at: span.start }
    }

    fn quoted(&self, key: &str, span: Range<usize>) -> Self {
        self.below(&format!("\"{}\"", key.escape_default()), span)
    }

    fn wrong(&self, reason: impl Into<String>) -> Error {
        Error { line: self.line(), key: self.path.clone(), reason: reason.into() }
    }

    fn unknown(&self, key: &str, known: &[&str]) -> Error {
        let distance = |other: &&&str| strsim::damerau_levenshtein(key, other);
        let near = known.iter().min_by_key(distance).filter(|near| distance(near) <= NEAR_MAX);
        self.wrong(match near {
            Some(near) => format!("no such key; did you mean {near}?"),
            None => format!("no such key; there are {}", known.join(", ")),
        })
    }
}

/// Keys that differ by more letters are not meant.
const NEAR_MAX: usize = 3;
/// More memory than a cache can have.
const MEMORY_BYTES_MAX: u64 = 1 << 41;

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<Table, Error> {
        super::table(text, Policy::default())
    }

    #[test]
    fn every_key_is_read() {
        let table = table(
            r#"
[default]
ttl_max = "30d"
item_bytes_max = "512k"

[namespace."session:"]
keep = "store"
durability = "interval"
memory = "64m"
disk = "2g"
ttl_default = 3600
ttl_max = "1d"
item_bytes_max = 4096
read_only = true
users = { read = ["anna", "ben"], write = [] }
replicate = true
rmw = "home"
home = 2

[namespace.page]
"#,
        )
        .expect("it is a table");
        let page = Policy::default();
        assert_eq!(table.policy(table.named(b"page").expect("it is there")), &page);
        assert_eq!(
            table.policy(0),
            &Policy { ttl_max_secs: Some(2_592_000), item_bytes_max: Some(524_288), ..Policy::default() }
        );
        let session = Policy {
            keep: Keep::Store,
            durability: Some(Durability::Interval),
            memory_bytes: Some(67_108_864),
            disk_bytes: Some(2_147_483_648),
            ttl_default_secs: Some(3_600),
            ttl_max_secs: Some(86_400),
            item_bytes_max: Some(4_096),
            is_read_only: true,
            users: Users { read: Some(vec!["anna".to_owned(), "ben".to_owned()]), write: Some(Vec::new()) },
            is_replicated: Some(true),
            told: Told::Nothing,
            home: Some(2),
            rmw: Some(Rmw::HomeMaster),
        };
        assert_eq!(table.policy(table.named(b"session:").expect("it is there")), &session);
        assert!(session.users.may_read(Some(b"ben")) && !session.users.may_write(Some(b"ben")));
        assert!(!session.users.may_read(None) && page.users.may_write(None));
    }

    /// As `--keep` has it; the section of the default namespace is that of the default namespace alone.
    #[test]
    fn where_items_are_kept_is_said_once_for_all() {
        let text = "[default]\nkeep = \"cache\"\n[namespace.a]\n[namespace.b]\nkeep = \"store\"\n";
        let over = Policy { keep: Keep::Warm, ttl_max_secs: Some(9), ..Policy::default() };
        let table = super::table(text, over.clone()).expect("it is a table");
        let keep = |prefix: &[u8]| table.policy(table.named(prefix).expect("it is there")).keep;
        assert_eq!((table.policy(0).keep, keep(b"a"), keep(b"b")), (Keep::Cache, Keep::Warm, Keep::Store));
        assert_eq!(table.policy(0).ttl_max_secs, Some(9));
        let error = super::table("[namespace.a]\ndurability = \"os\"", over).expect_err("it is warm");
        assert_eq!(error.to_string(), "line 2: namespace.\"a\".durability: only with keep = \"store\"");
    }

    #[test]
    fn errors_name_line_and_key() {
        let many: String = (0..64).map(|number| format!("[namespace.n{number}]\n")).collect();
        let long = format!("[namespace.{}]", "x".repeat(251));
        for (text, error) in [
            ("[default", "line 1: unclosed table, expected `]`"),
            ("\n\n[defualt]", "line 3: defualt: no such key; did you mean default?"),
            ("memory = 1", "line 1: memory: no such key; there are default, namespace"),
            ("default = 1", "line 1: default: a table is needed"),
            (
                "[namespace.a]\n\nmemroy = 1",
                "line 3: namespace.\"a\".memroy: no such key; did you mean memory?",
            ),
            (
                "[default]\nmemory = \"8m\"",
                "line 2: default.memory: the default namespace has what -m leaves beside the others",
            ),
            (
                "[namespace.a]\nmemory = \"8 m\"",
                "line 2: namespace.\"a\".memory: a size is needed: a number of bytes, or as in \"64m\" (k, m, g, t)",
            ),
            (
                "[namespace.a]\nmemory = 1000",
                "line 2: namespace.\"a\".memory: at least 1048576 bytes are needed",
            ),
            (
                "[namespace.a]\nmemory = \"3t\"",
                "line 2: namespace.\"a\".memory: at most 2199023255552 bytes are possible",
            ),
            (
                "[namespace.a]\nttl_max = \"soon\"",
                "line 2: namespace.\"a\".ttl_max: a time is needed: a number of seconds, or as in \"1h\" (s, m, h, d)",
            ),
            (
                "[namespace.a]\nttl_default = 0",
                "line 2: namespace.\"a\".ttl_default: 1 second to 3650 days are possible; leave it out for no limit",
            ),
            (
                "[namespace.a]\nttl_default = 9\nttl_max = 8",
                "line 2: namespace.\"a\".ttl_default: more than ttl_max",
            ),
            (
                "[namespace.a]\nmemory = \"1m\"\nitem_bytes_max = \"600k\"",
                "line 3: namespace.\"a\".item_bytes_max: more than half of memory",
            ),
            (
                "[namespace.a]\nitem_bytes_max = 9",
                "line 2: namespace.\"a\".item_bytes_max: at least 1024 bytes are needed",
            ),
            (
                "[namespace.a]\nkeep = \"disk\"",
                "line 2: namespace.\"a\".keep: one of \"cache\", \"warm\", \"store\" is needed",
            ),
            (
                "[namespace.a]\ndurability = \"os\"",
                "line 2: namespace.\"a\".durability: only with keep = \"store\"",
            ),
            ("[namespace.a]\ndisk = \"1g\"", "line 2: namespace.\"a\".disk: only with keep = \"store\""),
            ("[namespace.a]\nrmw = \"home\"", "line 2: namespace.\"a\".rmw: only with replicate = true"),
            (
                "[namespace.a]\nreplicate = true\nrmw = \"home\"",
                "line 3: namespace.\"a\".rmw: \"home\" needs home = N, the number of that site",
            ),
            ("[namespace.a]\nhome = 1", "line 2: namespace.\"a\".home: only with rmw = \"home\""),
            (
                "[namespace.a]\nhome = 256",
                "line 2: namespace.\"a\".home: the number of a site is needed, 1 to 255",
            ),
            (
                "[namespace.a]\nreplicate = \"sets\"",
                "line 2: namespace.\"a\".replicate: true, false, \"invalidations\" or \"values\" is needed",
            ),
            (
                "[namespace.a]\nkeep = \"store\"\nreplicate = \"values\"",
                "line 3: namespace.\"a\".replicate: with keep = \"store\" true or false is needed: the store tells \
                 everything",
            ),
            ("[namespace.a]\nread_only = 1", "line 2: namespace.\"a\".read_only: true or false is needed"),
            (
                "[namespace.a.users]\nreed = []",
                "line 2: namespace.\"a\".users.reed: no such key; did you mean read?",
            ),
            (
                "[namespace.a]\nusers.write = [1]",
                "line 2: namespace.\"a\".users.write: a list of user names is needed, as in [\"anna\", \"ben\"]",
            ),
            (
                "[namespace.\"\"]",
                "line 1: namespace.\"\": a prefix is not empty; all other keys are [default]",
            ),
            (
                "[namespace.\"a b\"]",
                "line 1: namespace.\"a b\": a prefix has no spaces and no control characters",
            ),
            ("[namespace.a]\n[namespace.a]", "line 2: duplicate key"),
        ] {
            assert_eq!(table(text).expect_err(text).to_string(), error);
        }
        assert!(table(&many).expect_err("64").to_string().contains("there are more than 63 namespaces"));
        assert!(table(&long).expect_err("251").to_string().ends_with("a prefix has at most 250 bytes"));
    }
}
