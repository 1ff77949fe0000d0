//! Reports of runs whose figures are known by arithmetic.

mod sample;

use larder_bench::compare::Comparison;
use larder_bench::outcome::{CommandTally, Tally};
use larder_bench::report::{self, memaslap};
use larder_bench::scenario::{Arrival, Group, Kind, Scenario, Sizes, Truth, Until};

fn text(write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut bytes = Vec::new();
    write(&mut bytes).expect("memory takes it");
    String::from_utf8(bytes).expect("text")
}

/// The cells of the first line that begins with `name`, at or after the line `after`.
fn cells<'a>(text: &'a str, after: &str, name: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|line| !line.starts_with(after));
    let line = lines.skip(1).find(|line| line.split_whitespace().next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} after {after:?} in\n{text}"))
        .split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .collect()
}

#[test]
fn final_tables_hold_the_figures() {
    let mut outcome = sample::outcome("ladder", 10, 900, Arrival::Closed);
    // 1 to 1000 µs: the median is 500, the 99th percentile 990, the mean 500.5, the deviation sqrt((n^2 - 1) / 12) =
    // 288.67.
    outcome.total = Tally::default();
    outcome.total.commands.insert(Kind::Get, sample::ladder(Kind::Get, 1000, 1000));
    outcome.total.sent_bytes = 10_000_000;
    let text = text(|out| report::print(&outcome, out));
    // 1000 requests in 10 seconds, each of one key; a tenth misses; 100,000 bytes of values.
    assert_eq!(cells(&text, "", "get"), ["get", "1,000", "100", "100", "900", "100", "90.0 %", "10.0 kB/s"]);
    let latency = cells(&text, "latency", "get");
    assert_eq!(latency[0..2], ["get", "501 µs"]);
    assert_eq!(latency[2..7], ["289 µs", "1.00 µs", "500 µs", "900 µs", "990 µs"]);
    assert_eq!(latency[9], "1.00 ms");
    assert!(text.contains("1.00 MB/s sent"), "{text}");
    // 7.5 CPU seconds for 1000 operations.
    assert!(text.contains("7.50 ms per operation"), "{text}");
    assert!(!text.contains("FAILED") && !text.contains("WARNING"), "{text}");
}

#[test]
fn failures_and_warnings_are_loud() {
    let text = text(|out| report::print(&sample::failed(), out));
    assert!(text.contains("\nFAILED: 1 timeout, 2 wrong values\n"), "{text}");
    assert!(text.contains("checksum is wrong"), "{text}");
    assert!(text.contains("\nWARNING: the busiest thread"), "{text}");
}

#[test]
fn requests_that_were_never_sent_are_warned_of() {
    let mut outcome = sample::outcome("open", 3, 900, sample::open(1000.0));
    outcome.total.unsent = 1234;
    outcome.total.sent_late = 2000;
    outcome.total.client_late = 1500;
    let table = text(|out| report::print(&outcome, out));
    for page in [table.replace("\nWARNING: ", ""), report::html::outcomes(&[outcome.clone()])] {
        assert!(
            page.contains("1,234 requests were never sent, because every connection was waiting"),
            "{page}"
        );
        assert!(
            page.contains("2,000 requests were sent late, because every connection was waiting"),
            "{page}"
        );
        assert!(page.contains("1,500 requests were sent late by larder bench itself"), "{page}");
    }
    assert!(
        table.contains("\nWARNING: 1,234 requests were never sent") && !table.contains("FAILED"),
        "{table}"
    );
    assert_eq!(report::json(&outcome)["total"]["unsent"], 1234);
    outcome.periods[0].tally.unsent = 34;
    let csv = text(|out| report::csv(&outcome, out));
    let all = csv.lines().find(|line| line.contains(",all,"));
    assert!(all.is_some_and(|line| line.ends_with(",0,34,0")), "{csv}");
}

#[test]
fn json_is_read_as_it_was_written() {
    for outcome in [sample::outcome("round trip", 5, 900, sample::open(1000.0)), sample::failed()] {
        let written = report::json(&outcome).to_string();
        let read = report::json::read(serde_json::from_str(&written).expect("JSON")).expect("an outcome");
        assert_eq!(
            read.total.commands[&Kind::Get].latency_nanos,
            outcome.total.commands[&Kind::Get].latency_nanos
        );
        assert_eq!(read.scenario, outcome.scenario);
        assert_eq!(report::json(&read).to_string(), written);
    }
}

#[test]
fn json_that_is_cut_short_is_refused() {
    let mut value = report::json(&sample::outcome("cut", 1, 900, Arrival::Closed));
    let histogram = &mut value["total"]["commands"]["get"]["latency_nanos"];
    *histogram = histogram.as_str().expect("text")[..40].into();
    assert!(report::json::read(value).is_err());
}

/// Written before the servers' software was known.
#[test]
fn a_comparison_without_software_is_read() {
    let comparison = sample::contests::comparison(100_000.0);
    let mut json = serde_json::to_value(&comparison).expect("JSON");
    for standing in json["standings"].as_array_mut().expect("an array") {
        standing.as_object_mut().expect("an object").remove("software").expect("it is there");
    }
    let read: Comparison = serde_json::from_value(json).expect("a comparison");
    assert!(read.standings.iter().all(|standing| standing.software.is_empty()));
    assert_eq!(read.standings.len(), comparison.standings.len());
}

#[test]
fn csv_has_a_line_a_period_and_command() {
    let outcome = sample::outcome("csv", 3, 900, Arrival::Closed);
    let text = text(|out| report::csv(&outcome, out));
    let width = report::csv::HEADING.split(',').count();
    assert!(text.lines().all(|line| line.split(',').count() == width), "{text}");
    let commands: Vec<_> = text.lines().skip(1).filter_map(|line| line.split(',').nth(2)).collect();
    assert_eq!(commands, ["get", "set", "all"].repeat(3));
    let all: Vec<_> = text.lines().nth(3).expect("the first period's sum").split(',').collect();
    // 900 gets and 100 sets in a second.
    assert_eq!(all[..8], ["0.000", "1.000", "all", "1000", "1000.0", "1000", "810", "90"]);
}

#[test]
fn hdr_log_holds_every_interval() {
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    let outcome = sample::outcome("hdr", 3, 900, Arrival::Closed);
    let log = text(|out| report::hdr_log(&outcome, out));
    let mut sum = Histogram::<u64>::new(3).expect("three digits");
    let mut tags = Vec::new();
    for entry in IntervalLogIterator::new(log.as_bytes()) {
        if let LogEntry::Interval(interval) = entry.expect("a line of a log") {
            tags.push(interval.tag().map(|tag| tag.as_str().to_owned()));
            if interval.tag().is_none() {
                sum.add(report::histogram::decode(interval.encoded_histogram()).expect("a histogram"))
                    .expect("fits");
            }
        }
    }
    assert_eq!(tags[..3], [None, Some("get".into()), Some("set".into())]);
    assert_eq!((tags.len(), sum.len()), (9, 3 * 1000 + 18));
}

/// Every page: of a run that was well, one that was not, an open loop, several, and none, of contests.
fn pages() -> Vec<String> {
    let run = |name: &str, arrival| sample::outcome(name, 10, 900, arrival);
    vec![
        report::html(&[]),
        report::html(&[larder_bench::Outcome {
            periods: Vec::new(),
            ..run("without periods", Arrival::Closed)
        }]),
        report::html(&[run("closed", Arrival::Closed)]),
        report::html(&[run("open", sample::open(1000.0))]),
        report::html(&[sample::failed()]),
        report::html(&[run("one", Arrival::Closed), run("two", sample::open(500.0)), sample::failed()]),
        report::html::comparison(&sample::contests::comparison(100_000.0)),
        report::html::sweep(&sample::contests::sweep()),
        report::html::search(&sample::contests::search()),
    ]
}

#[test]
fn pages_need_nothing_but_themselves() {
    for page in pages() {
        for outside in ["http:", "https:", "src=", "href=", "@import", "url(", "<link", "<img", "<iframe"] {
            assert!(!page.contains(outside), "{outside} in\n{page}");
        }
    }
}

#[test]
fn pages_are_well_formed() {
    for page in pages() {
        for tag in [
            "html", "body", "figure", "svg", "g", "table", "tr", "dl", "div", "p", "details", "ul", "li",
            "script", "style",
        ] {
            let opened =
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "<{tag}> in\n{page}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf\""), "a figure that is none in\n{page}");
    }
}

#[test]
fn pages_take_no_text_for_markup() {
    let page = report::html(&[sample::failed()]);
    assert!(page.contains("key:17 &lt;script&gt;: checksum is wrong") && !page.contains("key:17 <script>"));
    let page = report::html::comparison(&sample::contests::comparison(100_000.0));
    assert!(page.contains("larder &lt;b&gt;") && !page.contains("larder <b>"));
}

#[test]
fn passwords_are_not_told() {
    let mut outcome = sample::outcome("login", 1, 900, Arrival::Closed);
    let login = larder_bench::scenario::Login { user: "ann".into(), password: "hush-hush".into() };
    outcome.scenario.target.login = Some(login);
    assert!(!report::json(&outcome).to_string().contains("hush-hush"));
    assert!(!report::html(&[outcome]).contains("hush-hush"));
}

/// A memaslap run of 9 gets and 1 set by arithmetic: gets took 20 µs but one that took 5000, the set 100.
fn memaslap_outcome(requests: u64) -> larder_bench::Outcome {
    let mut outcome = sample::outcome("memaslap", 2, 900, Arrival::Closed);
    let mut gets = CommandTally { requests: 9 * requests, keys: 9 * requests, ..CommandTally::new() };
    gets.latency_nanos.record_n(20_000, 9 * requests - 1).expect("in range");
    gets.latency_nanos.record(5_000_000).expect("in range");
    let mut sets =
        CommandTally { requests, keys: requests, value_bytes: 1024 * requests, ..CommandTally::new() };
    sets.latency_nanos.record_n(100_000, requests).expect("in range");
    outcome.total = Tally { sent_bytes: 3_470_200, received_bytes: 19_996_000, ..Tally::default() };
    outcome.total.commands = [(Kind::Get, gets), (Kind::Set, sets)].into();
    outcome.scenario = Scenario {
        until: Until { secs: Some(2.0), ..Until::default() },
        truth: Truth { verify: 0.1, verify_expiry: 0.1, ..Truth::default() },
        groups: vec![Group {
            commands: outcome.scenario.groups[0].commands.clone(),
            connections: 16,
            keys: larder_bench::scenario::Keys { bytes: Sizes::Fixed(64), ..Default::default() },
            values: larder_bench::scenario::Values { bytes: Sizes::Fixed(1024), ..Default::default() },
            ..Group::default()
        }],
        ..outcome.scenario
    };
    outcome
}

/// The form is what memaslap 1.0 of Debian's libmemcached-tools printed for `-x 20000 -v 0.1 -e 0.1`.
#[test]
fn memaslap_ends_as_memaslap_does() {
    let outcome = memaslap_outcome(2000);
    let form = memaslap::Form::of(&outcome.scenario, None);
    let text = text(|out| memaslap::print(&form, &outcome, out));
    let expected = "cmd_get: 18000\ncmd_set: 2000\nget_misses: 0\nverify_misses: 0\nverify_failed: 0\nexpired_get: 0\n\
                    unexpired_unget: 0\nwritten_bytes: 3470200\nread_bytes: 19996000\nobject_bytes: 2176000\n\n\
                    Run time: 2.0s Ops: 20000 TPS: 10000 Net_rate: 11.2M/s\n";
    assert_eq!(text, expected);
}

/// The form is what memaslap 1.0 printed with `-S 1s`; the figures are arithmetic.
#[test]
fn memaslap_shows_distributions_as_memaslap_does() {
    let outcome = memaslap_outcome(2000);
    let form = memaslap::Form::of(&outcome.scenario, Some(1));
    let text = text(|out| memaslap::print(&form, &outcome, out));
    // 20 µs lie in bucket 5 (above 16, up to 32), 100 in 7, 5000 in 13. The geometric mean of 17,999 times 20 and once
    // 5000 is exp(ln 20 + ln 250 / 18000) = 20.006; the deviation is 4980 * sqrt(17999) / 18000 = 37.117, a histogram
    // is off by 0.1 %.
    let expected = "Get Statistics (18000 events)\n   Min:        20\n   Max:      5001\n   Avg:        20\n   Geo:     20.01\n   \
                    Std:     37.12\n   Log2 Dist:\n       4:        0    17999        0        0\n       8:        0        0        0        \
                    0\n      12:        0        1\n\n";
    let text = text.replace("   37.11\n", "   37.12\n");
    assert!(text.starts_with(expected), "{text}\n{expected}");
    assert!(text.contains("Set Statistics (2000 events)\n   Min:       100\n"), "{text}");
}

#[test]
fn memaslap_shows_periods_as_memaslap_does() {
    let outcome = memaslap_outcome(2000);
    let mut second = sample::outcome("second", 2, 900, Arrival::Closed).periods.remove(1);
    second.tally.commands = [(Kind::Set, outcome.total.commands[&Kind::Set].clone())].into();
    let form = memaslap::Form::of(&outcome.scenario, Some(1));
    let mut so_far = second.tally.clone();
    so_far.add(&second.tally);
    let text = text(|out| memaslap::period(&form, &second, &so_far, out));
    // 2000 sets of 64 + 1024 bytes in a second are 2.1 MiB; nothing is said of gets, as there was none.
    let heading = "Type     Time(s)  Ops          TPS(ops/s)   Net(M/s)   Get_miss   Min(us)  Max(us)    Avg(us)    Std_dev    Geo_dist  ";
    let period = "Period   1        2000         2000         2.1        0          100      100        100        0.00       100.00";
    let global = "Global   2        4000         2000         2.1        0          100      100        100        0.00       100.00";
    let set = format!("\x1b[1;1H\x1b[2J\nSet Statistics\n{heading}\n{period}\n{global}\n\n");
    assert_eq!(text, format!("{set}{}", set.replace("\x1b[1;1H\x1b[2J\nSet", "Total")));
}
