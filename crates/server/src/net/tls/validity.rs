//! The end of a certificate's validity (RFC 5280, section 4.1), which rustls does not expose.

use rustls::pki_types::CertificateDer;

/// The end of a certificate in seconds since 1970. `None`: it cannot be read.
pub(super) fn end_secs(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, mut certificate) = element(&mut certificate.as_ref())?;
    let (_, mut fields) = element(&mut certificate)?;
    let (first, _) = element(&mut fields)?;
    // The version may be left out. The serial number, the algorithm and the issuer come before the validity.
    let before_validity = if first == VERSION { 3 } else { 2 };
    for _ in 0..before_validity {
        element(&mut fields)?;
    }
    let (_, mut validity) = element(&mut fields)?;
    element(&mut validity)?;
    let (tag, time) = element(&mut validity)?;
    secs(tag, time)
}

/// Takes a DER element from the front: its tag and its content.
fn element<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, length], mut rest) = bytes.split_first_chunk()?;
    let mut length = usize::from(length);
    if length >= 0x80 {
        let (digits, behind) = rest.split_at_checked(length - 0x80)?;
        if digits.len() > LENGTH_BYTES_MAX {
            return None;
        }
        length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
        rest = behind;
    }
    let (content, behind) = rest.split_at_checked(length)?;
    *bytes = behind;
    Some((tag, content))
}

/// Parses a UTCTime or a GeneralizedTime, both of which end with seconds and `Z`.
fn secs(tag: u8, time: &[u8]) -> Option<i64> {
    let digits = time.strip_suffix(b"Z").filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let number = |digits: &[u8]| digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year = number(year);
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (number(year), rest)
        }
        _ => return None,
    };
    let rest: &[u8; 10] = rest.try_into().ok()?;
    let mut parts = rest.chunks(2).map(number);
    let [month, day, hour, minute, second] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    // Days before the first of a month, in a year that begins in March (Hinnant, "chrono-compatible low-level date
    // algorithms").
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - DAYS_UNTIL_1970;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// The tag of `[0] EXPLICIT`.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// A length takes at most this many bytes, since files are shorter than 4 GiB.
const LENGTH_BYTES_MAX: usize = 4;
/// Days from 1 March of the year 0 to 1 January 1970.
const DAYS_UNTIL_1970: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds are those of `date --utc --date TIME +%s`.
    #[test]
    fn times_are_those_of_date() {
        for (tag, time, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "261128105959Z", Some(1_795_863_599)),
            (UTC_TIME, "240229120000Z", Some(1_709_208_000)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(-631_152_000)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "20000301000000Z", Some(951_868_800)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "2611281059Z", None),
            (UTC_TIME, "261128105959", None),
            (UTC_TIME, "26112810595xZ", None),
            (GENERALIZED_TIME, "261128105959Z", None),
            (0x02, "261128105959Z", None),
        ] {
            assert_eq!(secs(tag, time.as_bytes()), expected, "{time}");
        }
    }

    #[test]
    fn a_certificate_ends_when_it_was_made_to() {
        for (year, expected) in [(2031, 1_924_992_000), (2075, 3_313_526_400)] {
            let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            let key = rcgen::KeyPair::generate().expect("a key");
            let certificate = params.self_signed(&key).expect("a certificate");
            let der = certificate.der();
            assert_eq!(end_secs(der), Some(expected), "{year}");
            // Nothing is read beyond the end, wherever the data is cut.
            for bytes in 0..der.len() {
                assert_eq!(end_secs(&CertificateDer::from(&der[..bytes])), None);
            }
        }
        assert_eq!(end_secs(&CertificateDer::from(&[0x30, 0xff, 1, 1][..])), None);
    }
}
