//! Sizes and durations as people write them.

/// Reads `"64m"`: a whole number of bytes, or of 2^10, 2^20, 2^30 or 2^40 with suffix k, m, g or t in either case.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (digits, power) = split(text, |suffix| {
        Some(match suffix {
            "" => 0,
            "k" | "K" => 10,
            "m" | "M" => 20,
            "g" | "G" => 30,
            "t" | "T" => 40,
            _ => return None,
        })
    })?;
    digits.checked_mul(1 << power)
}

/// Reads `"90s"`: a whole number of seconds, minutes, hours or days.
pub(crate) fn secs(text: &str) -> Option<u64> {
    let (digits, secs) = split(text, |suffix| {
        Some(match suffix {
            "" | "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return None,
        })
    })?;
    digits.checked_mul(secs)
}

fn split(text: &str, factor: impl FnOnce(&str) -> Option<u64>) -> Option<(u64, u64)> {
    let end = text.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    Some((digits.parse().ok()?, factor(suffix)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1000", Some(1_000)),
            ("64k", Some(65_536)),
            ("64m", Some(67_108_864)),
            ("2G", Some(2_147_483_648)),
            ("1t", Some(1_099_511_627_776)),
            ("16777215t", Some(18_446_742_974_197_923_840)),
            ("16777216t", None),
            ("18446744073709551616", None),
            ("", None),
            ("m", None),
            ("-1", None),
            ("1.5g", None),
            ("64 m", None),
            ("64mb", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_seconds() {
        for (text, expected) in [
            ("90", Some(90)),
            ("30s", Some(30)),
            ("5m", Some(300)),
            ("1h", Some(3_600)),
            ("7d", Some(604_800)),
            ("1w", None),
            ("", None),
            ("1h30m", None),
            ("213503982334602d", None),
        ] {
            assert_eq!(secs(text), expected, "{text}");
        }
    }
}
