//! Entity tags: the CAS value of an item in quotes (RFC 9110, sections 8.8.3 and 13.1).

use super::HttpRefusal;
use crate::number;

/// What has to hold of the item that a GET or HEAD finds. The list of tags is kept beside it, which takes less room in
/// [`super::HttpForm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    None,
    /// If-Match: the item has one of the tags, or the list is `*`.
    Match,
    /// If-None-Match: it has none of them.
    NoneMatch,
}

/// The one tag that a change may name in If-Match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    /// `*`: any item.
    Any,
    /// The item with this CAS value.
    Cas(u64),
}

impl Tag {
    /// Errors: more than one tag, or one that no item has.
    pub(super) fn parse(value: &[u8]) -> Result<Self, HttpRefusal> {
        if value == b"*" {
            return Ok(Self::Any);
        }
        let is_weak = value.starts_with(b"W/");
        let quoted = value.strip_prefix(b"W/").unwrap_or(value);
        let opaque = quoted.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        let opaque = opaque.filter(|opaque| !opaque.contains(&b'"')).ok_or(HttpRefusal::BadCondition)?;
        match number::parse_u64(opaque) {
            // Each number is written in one way. A weak tag never matches (RFC 9110, section 8.8.3.2).
            Some(cas) if cas != 0 && !is_weak && !opaque.starts_with(b"0") => Ok(Self::Cas(cas)),
            _ => Err(HttpRefusal::ForeignTag),
        }
    }
}

/// True if the tag of `cas` is in the list, or the list is `*`. Weak tags count where `takes_weak`.
pub(super) fn is_listed(list: &[u8], cas: u64, takes_weak: bool) -> bool {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(cas).as_bytes();
    list == b"*"
        || list.split(|byte| *byte == b',').any(|tag| {
            let tag = tag.trim_ascii();
            let tag = tag.strip_prefix(b"W/").filter(|_| takes_weak).unwrap_or(tag);
            cas != 0 && tag.strip_prefix(b"\"").and_then(|tag| tag.strip_suffix(b"\"")) == Some(digits)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tag() {
        assert_eq!(Tag::parse(b"*"), Ok(Tag::Any));
        assert_eq!(Tag::parse(b"\"7\""), Ok(Tag::Cas(7)));
        assert_eq!(Tag::parse(b"\"18446744073709551615\""), Ok(Tag::Cas(u64::MAX)));
        for foreign in [&b"W/\"7\""[..], b"\"07\"", b"\"0\"", b"\"\"", b"\"x\"", b"\"18446744073709551616\""]
        {
            assert_eq!(Tag::parse(foreign), Err(HttpRefusal::ForeignTag), "{}", foreign.escape_ascii());
        }
        for bad in [&b""[..], b"7", b"\"7", b"\"", b"\"7\", \"8\"", b"*, \"7\"", b"w/\"7\""] {
            assert_eq!(Tag::parse(bad), Err(HttpRefusal::BadCondition), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn lists_of_tags() {
        assert!(is_listed(b"*", 7, false));
        assert!(is_listed(b"\"6\" ,\"7\"", 7, false));
        assert!(is_listed(b"W/\"7\"", 7, true));
        assert!(!is_listed(b"W/\"7\"", 7, false));
        assert!(!is_listed(b"\"77\", 7", 7, true));
        assert!(!is_listed(b"", 7, true));
        // Without CAS values (-C) items have no tags.
        assert!(!is_listed(b"\"0\"", 0, true));
    }
}
