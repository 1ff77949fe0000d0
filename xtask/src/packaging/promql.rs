//! What an expression of PromQL asks for: series, and labels to group by. promtool checks the rest of its grammar.

use larder_conformance::Result;

/// A selector of series.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selector {
    pub(super) name: String,
    pub(super) matchers: Vec<Matcher>,
}

/// `label="value"`; for another operator than `=` there is no value that a series must have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Matcher {
    pub(super) label: String,
    pub(super) value: Option<String>,
}

/// An expression, as far as it is of interest.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) selectors: Vec<Selector>,
    /// Of `by`, `on` and the like.
    pub(super) labels: Vec<String>,
}

/// Reads an expression. Errors: a bracket or quote without its end.
pub(super) fn query(expression: &str) -> Result<Query> {
    let mut query = Query::default();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_digit() {
            // Durations have letters, floats dots.
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else if is_of_name(first) {
            let name = leading_name(rest);
            rest = rest[name.len()..].trim_start();
            if GROUPING.contains(&name) {
                if let Some(list) = rest.strip_prefix('(') {
                    let (list, after) = until(list, ')').ok_or_else(|| format!("{expression}: no )"))?;
                    let labels = list.split(',').map(str::trim).filter(|label| !label.is_empty());
                    query.labels.extend(labels.map(str::to_owned));
                    rest = after;
                }
            } else if let Some(matchers) = rest.strip_prefix('{') {
                let (matchers, after) = until(matchers, '}').ok_or_else(|| format!("{expression}: no }}"))?;
                let matchers = pieces(matchers).into_iter().map(matcher).collect::<Result<_>>()?;
                query.selectors.push(Selector { name: name.to_owned(), matchers });
                rest = after;
            } else if !OPERATORS.contains(&name) && !rest.starts_with('(') && !is_aggregated(rest) {
                query.selectors.push(Selector { name: name.to_owned(), matchers: Vec::new() });
            }
        } else {
            rest = match first {
                '[' => until(&rest[1..], ']').ok_or_else(|| format!("{expression}: no ]"))?.1,
                '"' => until(&rest[1..], '"').ok_or_else(|| format!("{expression}: no \""))?.1,
                other => &rest[other.len_utf8()..],
            };
        }
    }
    Ok(query)
}

/// Whether an aggregation goes on: `sum by (a) (b)`.
fn is_aggregated(rest: &str) -> bool {
    ["by", "without"].contains(&leading_name(rest))
}

fn leading_name(text: &str) -> &str {
    &text[..text.find(|c| !is_of_name(c)).unwrap_or(text.len())]
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// The text before `end`, and behind it. An end within quotes is none.
fn until(text: &str, end: char) -> Option<(&str, &str)> {
    let mut is_quoted = false;
    for (at, c) in text.char_indices() {
        if c == end && !is_quoted {
            return Some((&text[..at], &text[at + c.len_utf8()..]));
        }
        is_quoted ^= c == '"';
    }
    None
}

/// Splits at commas that are not within quotes.
fn pieces(mut matchers: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    while let Some((piece, after)) = until(matchers, ',') {
        pieces.push(piece);
        matchers = after;
    }
    pieces.push(matchers);
    pieces.into_iter().map(str::trim).filter(|piece| !piece.is_empty()).collect()
}

fn matcher(text: &str) -> Result<Matcher> {
    let label = leading_name(text);
    let value = text[label.len()..].trim_start();
    if label.is_empty() || !value.starts_with(['=', '!']) {
        return Err(format!("{text:?} is no matcher").into());
    }
    let quoted = value.strip_prefix('=').and_then(|value| value.trim().strip_prefix('"')?.strip_suffix('"'));
    Ok(Matcher { label: label.to_owned(), value: quoted.map(str::to_owned) })
}

const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const OPERATORS: [&str; 7] = ["and", "or", "unless", "bool", "offset", "inf", "nan"];

#[cfg(test)]
mod tests {
    use super::*;

    fn selectors_of(expression: &str) -> Vec<String> {
        let shown = |matcher: &Matcher| format!("{} {:?}", matcher.label, matcher.value);
        let query = query(expression).expect("it is an expression");
        query
            .selectors
            .iter()
            .map(|selector| {
                let matchers: Vec<_> = selector.matchers.iter().map(shown).collect();
                format!("{} {}", selector.name, matchers.join(" ")).trim_end().to_owned()
            })
            .collect()
    }

    #[test]
    fn series_are_told_from_functions_labels_and_numbers() {
        for (expression, selectors) in [
            ("up == 0 and on (job, instance) last_over_time(a:b[1d])", &["up", "a:b"][..]),
            (
                "sum by (le) (rate(a_bucket{x=\"y\",z=~\"$v, w\"}[5m])) / 1e3",
                &["a_bucket x Some(\"y\") z None"],
            ),
            ("sum(a) without (b) > bool 0.05", &["a"]),
            ("max by(b) (a) - ignoring (b) c offset 1h", &["a", "c"]),
            ("label_replace(a, \"b\", \"c\", \"d\", \"e f\")", &["a"]),
            ("a{} or c{d!=\"}\"}", &["a", "c d None"]),
            ("time() - 15m", &[]),
        ] {
            assert_eq!(selectors_of(expression), selectors, "{expression}");
        }
        let labels =
            query("sum by (a, b) (c) / on () d * on (e) group_left (f) g").expect("it is one").labels;
        assert_eq!(labels, ["a", "b", "e", "f"]);
    }

    #[test]
    fn what_does_not_end_is_refused() {
        for expression in
            ["a{b=\"c\"", "rate(a[5m)", "label_join(a, \"b)", "sum by (a b", "a{b}", "a{=\"c\"}"]
        {
            assert!(query(expression).is_err(), "{expression}");
        }
    }
}
