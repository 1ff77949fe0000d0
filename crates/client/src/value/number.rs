//! Decimal numbers.

use super::Error;

/// An integer. Spaces after it are memcached's: `decr` leaves them, so that a value does not get shorter.
pub(super) fn integer(bytes: &[u8]) -> Result<i64, Error> {
    let digits = bytes.trim_ascii_end();
    let unsigned = digits.strip_prefix(b"-").unwrap_or(digits);
    if unsigned.is_empty() || !unsigned.iter().all(u8::is_ascii_digit) {
        return Err(Error::Malformed("an integer"));
    }
    // Digits alone, so all that can be wrong is the size.
    str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(Error::OutOfRange)
}

/// How a client spells the numbers that have no digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    infinity: &'static str,
    minus_infinity: &'static str,
    nan: &'static str,
}

/// php-memcached's, and larder's own.
pub(super) const LONG_WORDS: Words = Words { infinity: "Infinity", minus_infinity: "-Infinity", nan: "NaN" };
/// PECL memcache's.
pub(super) const SHORT_WORDS: Words = Words { infinity: "INF", minus_infinity: "-INF", nan: "NAN" };

impl Words {
    /// A floating-point number.
    pub(super) fn float(self, bytes: &[u8]) -> Result<f64, Error> {
        let text = str::from_utf8(bytes.trim_ascii_end()).unwrap_or_default();
        // The words that Rust knows are more.
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        match text {
            word if word == self.infinity => Ok(f64::INFINITY),
            word if word == self.minus_infinity => Ok(f64::NEG_INFINITY),
            word if word == self.nan => Ok(f64::NAN),
            _ if is_digits => text.parse().map_err(|_| MALFORMED),
            _ => Err(MALFORMED),
        }
    }

    /// The shortest digits that mean this number, as other languages read them.
    pub(super) fn text(self, float: f64) -> String {
        if float.is_nan() {
            return self.nan.to_owned();
        }
        if float.is_infinite() {
            return if float > 0.0 { self.infinity } else { self.minus_infinity }.to_owned();
        }
        let text = float.to_string();
        // php-memcached reads less than 128 characters; 1e308 has more without an exponent.
        if text.len() <= 24 { text } else { format!("{float:e}") }
    }
}

const MALFORMED: Error = Error::Malformed("a floating-point number");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_may_have_spaces_after_them_and_nothing_else() {
        assert_eq!(integer(b"9 "), Ok(9));
        assert_eq!(integer(b"-0"), Ok(0));
        for wrong in ["", "-", "+1", " 1", "1x", "0x1", "1.0", "--1", "\u{661}"] {
            assert_eq!(integer(wrong.as_bytes()), Err(Error::Malformed("an integer")), "{wrong}");
        }
        // What incr reaches at most.
        assert_eq!(integer(b"18446744073709551615"), Err(Error::OutOfRange));
        assert_eq!(integer(b"-9223372036854775808"), Ok(i64::MIN));
    }

    #[test]
    fn floats_are_short() {
        for (float, text) in [
            (1.5, "1.5"),
            (-0.1, "-0.1"),
            (2.0, "2"),
            (1e100, "1e100"),
            (f64::MAX, "1.7976931348623157e308"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(LONG_WORDS.text(float), text);
            let read = LONG_WORDS.float(text.as_bytes()).expect("it is a number");
            assert!(read == float || read.is_nan() && float.is_nan(), "{text}");
        }
        assert_eq!(SHORT_WORDS.text(f64::INFINITY), "INF");
        for wrong in ["", "inf", "Inf", "Infinit", "infinity", "nan", "1e", "x", " 1", "1_0"] {
            assert_eq!(LONG_WORDS.float(wrong.as_bytes()), Err(MALFORMED), "{wrong}");
        }
    }
}
