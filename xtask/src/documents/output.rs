//! Whether a command printed what its page shows.

/// A line `...` stands for any lines, and ` ...` at the end of a line for the rest of it. A line with a measured
/// figure, which has a decimal point, is compared without its numbers and the width of its columns, the headings of
/// columns without their width; all others as they are.
pub(super) fn fits(shown: &[String], printed: &[&str]) -> bool {
    match shown {
        [] => printed.is_empty(),
        [any, rest @ ..] if any.trim() == "..." => {
            (0..=printed.len()).any(|skip| fits(rest, &printed[skip..]))
        }
        [line, rest @ ..] => {
            printed.split_first().is_some_and(|(first, others)| line_fits(line, first) && fits(rest, others))
        }
    }
}

fn line_fits(shown: &str, printed: &str) -> bool {
    if let Some(begin) = shown.trim_end().strip_suffix(" ...") {
        let (begin, printed) = (words(begin), words(printed));
        return printed.len() >= begin.len() && printed[..begin.len()] == begin;
    }
    let is_measured = shown
        .as_bytes()
        .windows(3)
        .any(|at| at[0].is_ascii_digit() && at[1] == b'.' && at[2].is_ascii_digit());
    let is_heading = shown.trim().contains("  ") && !shown.contains(|c: char| c.is_ascii_digit());
    shown.trim_end() == printed.trim_end()
        || is_measured && words(shown) == words(printed)
        || is_heading && shown.split_whitespace().eq(printed.split_whitespace())
}

/// The words of a line, without its numbers: figures, with their separators and SI prefixes.
fn words(line: &str) -> Vec<String> {
    let mut text = String::new();
    for word in line.split_whitespace() {
        let mut chars = word.chars().peekable();
        while let Some(c) = chars.next() {
            if c.is_ascii_digit() {
                while chars.next_if(|c| c.is_ascii_digit() || ".,".contains(*c)).is_some() {}
                text.push('0');
            } else {
                text.push(c);
            }
        }
        text.push(' ');
    }
    // A dash is a figure that there is none of, and a unit depends on the size of the figure.
    let is_unit = |word: &&str| !UNITS.contains(word);
    text.split_whitespace()
        .map(|word| if word == "-" { "0" } else { word })
        .map(|word| word.trim_end_matches(['k', 'M']))
        .filter(is_unit)
        .map(str::to_owned)
        .collect()
}

const UNITS: [&str; 9] = ["ns", "µs", "ms", "s", "s:", "ms:", "KiB", "MiB", "GiB"];

#[cfg(test)]
mod tests {
    #[test]
    fn only_measured_figures_may_differ() {
        let fits = |shown: &str, printed: &str| {
            let shown: Vec<String> = shown.lines().map(str::to_owned).collect();
            super::fits(&shown, &printed.lines().collect::<Vec<_>>())
        };
        assert!(fits("hello\n2", "hello\n2"));
        assert!(!fits("hello\n2", "hello\n3"), "a number that is not measured");
        assert!(!fits("hello", "hello\nworld"), "more than is shown");
        assert!(!fits("hello\nworld", "hello"), "less than is shown");
        assert!(fits("127.0.0.1:11211: 0.035 ms", "127.0.0.1:11211: 120 µs"));
        assert!(!fits("127.0.0.1:11211: 0.035 ms", "127.0.0.1:11211: refused"));
        assert!(fits("1.8k   198 100.0 17.5 of 64.0 MiB 20.0 µs", "2k 2 99 1 of 1 GiB -"));
        assert!(fits("   requests      /s  hit ratio", "  requests  /s  hit ratio"), "headings");
        assert!(!fits("   requests      /s  hit ratio", "  requests  /s  hits"));
        assert!(!fits("hello  2", "hello 2"), "no heading");
        assert!(fits("a\n...\nz", "a\nb\nc\nz"));
        assert!(!fits("a\n...\nz", "a\nb\nc"));
        assert!(fits("INFO listening on 1.5 ...", "INFO listening on 7 threads=4"));
        assert!(!fits("INFO listening ...", "INFO serving threads=4"));
    }
}
