//! What a request is for: the path and the query (RFC 9112, section 3.2; RFC 3986).

use super::query::{Parameter, Parameters};
use super::{HttpRefusal, request};
use crate::{Key, Keys, number};

/// The most keys of one request.
pub const KEYS_MAX: usize = 100;

/// A request's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target<'a> {
    /// `/v1/items/<key>`, and what follows a `?`.
    Item(Key<'a>, Option<&'a [u8]>),
    /// `/v1/items?key=<key>&key=<key>`.
    List(Keys<'a>),
}

/// What POST does to an item: its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// `op=append`, with the content.
    Append,
    /// `op=prepend`, with the content.
    Prepend,
    /// `op=incr` and `op=decr`, with `delta` and `initial`.
    Arith { decrement: bool, delta: u64, initial: Option<u64> },
    /// `op=touch`.
    Touch,
}

/// Splits the target: the host, if it names one, and the path with its query. Errors: it is neither a path nor an http
/// URI (`*` and `host:port` belong to methods that are refused).
pub(super) fn split(target: &[u8]) -> Result<(Option<&[u8]>, &[u8]), HttpRefusal> {
    if !target.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#') {
        return Err(HttpRefusal::BadTarget);
    }
    if target.starts_with(b"/") {
        return Ok((None, target));
    }
    let rest = [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| {
        let (head, rest) = target.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some(rest)
    });
    let rest = rest.ok_or(HttpRefusal::BadTarget)?;
    let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    if host.is_empty() || !request::is_host(host) {
        return Err(HttpRefusal::BadTarget);
    }
    Ok((Some(host), path))
}

impl<'a> Target<'a> {
    /// Reads a path with its query.
    pub(super) fn parse(path: &'a [u8]) -> Result<Self, HttpRefusal> {
        let (path, query) = match memchr::memchr(b'?', path) {
            Some(at) => (&path[..at], Some(&path[at + 1..])),
            None => (path, None),
        };
        if path == b"/v1/items" {
            return Self::list(query.ok_or(HttpRefusal::BadQuery)?);
        }
        let key = path.strip_prefix(b"/v1/items/").ok_or(HttpRefusal::NoSuchPath)?;
        if key.contains(&b'/') {
            return Err(HttpRefusal::SlashInKey);
        }
        Ok(Self::Item(Key::percent(key).ok_or(HttpRefusal::BadKey)?, query))
    }

    fn list(query: &'a [u8]) -> Result<Self, HttpRefusal> {
        let mut count = 0;
        for Parameter { name, value } in Parameters::of(query) {
            if name != b"key" {
                return Err(HttpRefusal::BadQuery);
            }
            // In a query a plus is a space to some and a plus to others.
            if value.contains(&b'+') || Key::percent(value).is_none() {
                return Err(HttpRefusal::BadKey);
            }
            count += 1;
            if count > KEYS_MAX {
                return Err(HttpRefusal::TooManyKeys);
            }
        }
        Ok(Self::List(Keys::query(query)))
    }
}

impl Operation {
    /// Reads the parameters of a POST.
    pub(super) fn parse(query: &[u8]) -> Result<Self, HttpRefusal> {
        let (mut op, mut delta, mut initial) = (None, None, None);
        for Parameter { name, value } in Parameters::of(query) {
            let place = match name {
                b"op" => &mut op,
                b"delta" => &mut delta,
                b"initial" => &mut initial,
                _ => return Err(HttpRefusal::BadQuery),
            };
            if place.replace(value).is_some() {
                return Err(HttpRefusal::BadQuery);
            }
        }
        let number = |value: Option<&[u8]>| match value {
            Some(digits) => number::parse_u64(digits).map(Some).ok_or(HttpRefusal::BadQuery),
            None => Ok(None),
        };
        let (delta, initial) = (number(delta)?, number(initial)?);
        let is_plain = delta.is_none() && initial.is_none();
        let arith = |decrement| Self::Arith { decrement, delta: delta.unwrap_or(1), initial };
        match op {
            Some(b"append") if is_plain => Ok(Self::Append),
            Some(b"prepend") if is_plain => Ok(Self::Prepend),
            Some(b"touch") if is_plain => Ok(Self::Touch),
            Some(b"incr") => Ok(arith(false)),
            Some(b"decr") => Ok(arith(true)),
            _ => Err(HttpRefusal::BadQuery),
        }
    }

    /// The content of the request is part of the value.
    pub(super) fn has_content(self) -> bool {
        matches!(self, Self::Append | Self::Prepend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KEY_BYTES_MAX;

    #[test]
    fn paths_and_uris() {
        assert_eq!(split(b"/v1/items/a?b"), Ok((None, &b"/v1/items/a?b"[..])));
        assert_eq!(split(b"HTTP://h:1/v1"), Ok((Some(&b"h:1"[..]), &b"/v1"[..])));
        assert_eq!(split(b"https://[::1]?x"), Ok((Some(&b"[::1]"[..]), &b"?x"[..])));
        for bad in [
            &b"*"[..],
            b"h:80",
            b"ftp://h/",
            b"http:/h",
            b"http:///v1",
            b"http://u@h/",
            b"/a#b",
            b"/\xc3\xa9",
            b"/a\tb",
            b"",
        ] {
            assert_eq!(split(bad), Err(HttpRefusal::BadTarget), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn keys_are_decoded() {
        for (path, key) in [
            ("/v1/items/a", &b"a"[..]),
            ("/v1/items/a%2Fb%2fc", b"a/b/c"),
            ("/v1/items/%00%20+%ff", b"\0 +\xff"),
            ("/v1/items/a?", b"a"),
        ] {
            let target = Target::parse(path.as_bytes());
            let Ok(Target::Item(item, _)) = target else { panic!("{path}: {target:?}") };
            assert_eq!(item.bytes(&mut [0; KEY_BYTES_MAX]), key, "{path}");
        }
        for path in ["/v1/items/", "/v1/items/%", "/v1/items/%2", "/v1/items/%2g", "/v1/items/%-1"] {
            assert_eq!(Target::parse(path.as_bytes()), Err(HttpRefusal::BadKey), "{path}");
        }
        for path in ["/", "", "/v1", "/v1/item/a", "/V1/items/a", "/v1//items/a", "/v1/itemsa"] {
            assert_eq!(Target::parse(path.as_bytes()), Err(HttpRefusal::NoSuchPath), "{path}");
        }
        assert_eq!(Target::parse(b"/v1/items/a/b"), Err(HttpRefusal::SlashInKey));
    }

    #[test]
    fn keys_are_as_long_as_other_dialects_can_name_them() {
        let item = |key: &str, times: usize| {
            Target::parse(format!("/v1/items/{}", key.repeat(times)).as_bytes()).is_ok()
        };
        assert!(item("a", 250) && !item("a", 251));
        assert!(item("%C3%A9", 125) && !item("%C3%A9", 126));
        // 248 characters of base64.
        assert!(item("%20", 186) && !item("%20", 187));
    }

    #[test]
    fn lists_of_keys() {
        let keys = |query: &str| match Target::parse(format!("/v1/items?{query}").as_bytes()) {
            Ok(Target::List(keys)) => {
                Ok(keys.map(|key| key.bytes(&mut [0; KEY_BYTES_MAX]).to_vec()).collect::<Vec<_>>())
            }
            Ok(target) => panic!("{target:?}"),
            Err(refusal) => Err(refusal),
        };
        assert_eq!(keys("key=a"), Ok(vec![b"a".to_vec()]));
        assert_eq!(keys("key=a&key=b%26c&key=a"), Ok(vec![b"a".to_vec(), b"b&c".to_vec(), b"a".to_vec()]));
        for query in ["", "key", "key=", "key=a&", "&key=a", "key=a+b", "key=%zz"] {
            assert!(keys(query).is_err(), "{query}");
        }
        assert_eq!(keys("Key=a"), Err(HttpRefusal::BadQuery));
        let many = |count: usize| vec!["key=a"; count].join("&");
        assert!(keys(&many(KEYS_MAX)).is_ok());
        assert_eq!(keys(&many(KEYS_MAX + 1)), Err(HttpRefusal::TooManyKeys));
        assert_eq!(Target::parse(b"/v1/items"), Err(HttpRefusal::BadQuery));
    }

    #[test]
    fn operations() {
        let arith = |decrement, delta, initial| Ok(Operation::Arith { decrement, delta, initial });
        assert_eq!(Operation::parse(b"op=append"), Ok(Operation::Append));
        assert_eq!(Operation::parse(b"op=incr"), arith(false, 1, None));
        assert_eq!(Operation::parse(b"delta=5&op=decr&initial=0"), arith(true, 5, Some(0)));
        for bad in [
            "",
            "op",
            "op=",
            "op=set",
            "op=incr&op=incr",
            "op=incr&delta=-1",
            "op=incr&delta=",
            "op=append&delta=1",
            "op=incr&x=1",
            "delta=1",
        ] {
            assert_eq!(Operation::parse(bad.as_bytes()), Err(HttpRefusal::BadQuery), "{bad}");
        }
    }
}
