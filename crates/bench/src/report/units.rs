//! Numbers as people read them: three digits that matter, and a unit.

/// Nanoseconds: `845 ns`, `12.3 µs`, `4.56 ms`, `1.23 s`.
pub fn latency(nanos: f64) -> String {
    scaled(nanos, &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")])
}

/// Something a second, or a number in a chart: `1.23 M`, `456 k`, `78`.
pub fn short(number: f64) -> String {
    scaled(number, &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")])
}

/// Memory, in powers of two: `64.0 MiB`.
pub fn memory(bytes: f64) -> String {
    scaled(bytes, &MEMORY)
}

/// Memory in the unit of its limit: `1.25 of 64.0 MiB`.
pub fn memory_of(used_bytes: f64, limit_bytes: f64) -> String {
    let (unit_bytes, _) = unit_of(limit_bytes, &MEMORY);
    format!("{} of {}", three_digits(used_bytes / unit_bytes), memory(limit_bytes))
}

/// Bytes a second on a network, in powers of ten as networks are sold: `118 MB/s`.
pub fn network(bytes_per_sec: f64) -> String {
    scaled(bytes_per_sec, &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")])
}

/// Seconds of a run: `250 ms`, `12 s`, `4 min 30 s`, `2 h 05 min`.
pub fn duration(secs: f64) -> String {
    let whole = secs.round() as u64;
    match whole {
        _ if 0.0 < secs && secs < 1.0 => latency(secs * 1e9),
        0..60 => scaled(secs, &[(1.0, "s")]),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// All digits, in groups of three: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A share of 0 to 1, with a digit more near its ends: `9.5 %`, `99.97 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 || percent == 100.0 {
        format!("{percent:.0} %")
    } else if !(1.0..=99.0).contains(&percent) {
        format!("{percent:.2} %")
    } else {
        format!("{percent:.1} %")
    }
}

/// The number in the largest unit that it reaches, or in the last.
fn scaled(number: f64, units: &[Unit]) -> String {
    let (size, unit) = unit_of(number, units);
    let value = number / size;
    let is_whole = size == 1.0 && value.fract() == 0.0;
    let digits = if is_whole { format!("{value:.0}") } else { three_digits(value) };
    format!("{digits} {unit}").trim_end().to_owned()
}

/// The largest unit that a number reaches, or the last.
fn unit_of(number: f64, units: &[Unit]) -> Unit {
    let fits = |&&(size, _): &&Unit| number.abs() >= size;
    *units.iter().find(fits).or_else(|| units.last()).unwrap_or(&(1.0, ""))
}

/// With at most two decimals: `0.50`, `12.3`, `456`.
fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// Its size, and its name.
type Unit = (f64, &'static str);

const KIB: f64 = 1024.0;
const MEMORY: [Unit; 4] = [(KIB * KIB * KIB, "GiB"), (KIB * KIB, "MiB"), (KIB, "KiB"), (1.0, "B")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        let latencies =
            [(845.0, "845 ns"), (12_345.0, "12.3 µs"), (4_560_000.0, "4.56 ms"), (1.23e9, "1.23 s")];
        for (nanos, text) in latencies {
            assert_eq!(latency(nanos), text);
        }
        assert_eq!(short(1_234_567.0), "1.23 M");
        assert_eq!(short(0.0), "0");
        assert_eq!(short(78.0), "78");
        assert_eq!(memory(64.0 * 1024.0 * 1024.0), "64.0 MiB");
        assert_eq!(network(118_000_000.0), "118 MB/s");
    }

    #[test]
    fn memory_has_the_unit_of_its_limit() {
        let mib = KIB * KIB;
        assert_eq!(memory_of(0.0, 64.0 * mib), "0.00 of 64.0 MiB");
        assert_eq!(memory_of(61.26 * mib, 64.0 * mib), "61.3 of 64.0 MiB");
        assert_eq!(memory_of(512.0 * mib, 8192.0 * mib), "0.50 of 8.00 GiB");
        assert_eq!(memory_of(100.0 * mib, 100.0 * mib), "100 of 100 MiB");
    }

    #[test]
    fn durations() {
        assert_eq!(duration(0.0), "0 s");
        assert_eq!(duration(0.25), "250 ms");
        assert_eq!(duration(12.0), "12 s");
        assert_eq!(duration(270.0), "4 min 30 s");
        assert_eq!(duration(7500.0), "2 h 05 min");
    }

    #[test]
    fn groups_of_three() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn shares() {
        assert_eq!([0.0, 0.095, 0.9997, 1.0].map(percent), ["0 %", "9.5 %", "99.97 %", "100 %"]);
    }
}
