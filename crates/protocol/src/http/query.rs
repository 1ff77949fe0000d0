//! A query: `<name>=<value>&<name>=<value>` (RFC 3986, section 3.4), not percent-decoded.

/// One parameter. Without a `=` its value is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter<'q> {
    /// What precedes the first `=`.
    pub name: &'q [u8],
    /// What follows it.
    pub value: &'q [u8],
}

impl<'q> Parameter<'q> {
    /// The first parameter, and what follows its `&`, if it has one.
    pub(crate) fn split_first(query: &'q [u8]) -> (Self, Option<&'q [u8]>) {
        let (first, rest) = match memchr::memchr(b'&', query) {
            Some(at) => (&query[..at], Some(&query[at + 1..])),
            None => (query, None),
        };
        let (name, value) = match memchr::memchr(b'=', first) {
            Some(at) => (&first[..at], &first[at + 1..]),
            None => (first, &[][..]),
        };
        (Self { name, value }, rest)
    }
}

/// The parameters of a query, in order. An empty query has one, without a name.
#[derive(Clone, Debug)]
pub struct Parameters<'q> {
    rest: Option<&'q [u8]>,
}

impl<'q> Parameters<'q> {
    /// Those of what follows the `?` of a target.
    pub fn of(query: &'q [u8]) -> Self {
        Self { rest: Some(query) }
    }
}

impl<'q> Iterator for Parameters<'q> {
    type Item = Parameter<'q>;

    fn next(&mut self) -> Option<Self::Item> {
        let (first, rest) = Parameter::split_first(self.rest?);
        self.rest = rest;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_split_at_ampersands_and_at_the_first_equals_sign() {
        for (query, parameters) in [
            ("", &[("", "")][..]),
            ("a", &[("a", "")]),
            ("a=", &[("a", "")]),
            ("a=b=c", &[("a", "b=c")]),
            ("a=1&b=%26&", &[("a", "1"), ("b", "%26"), ("", "")]),
            ("&=x", &[("", ""), ("", "x")]),
        ] {
            let found: Vec<_> = Parameters::of(query.as_bytes()).collect();
            let parameter = |(name, value): &(&'static str, &'static str)| Parameter {
                name: name.as_bytes(),
                value: value.as_bytes(),
            };
            assert_eq!(found, parameters.iter().map(parameter).collect::<Vec<_>>(), "{query}");
        }
    }
}
