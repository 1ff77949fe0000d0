use std::io;
use std::path::Path;

use super::*;

fn translate_with(line: &str, file: &str) -> Result<Translation, String> {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let read_file = |path: &Path| match path.to_str() {
        Some("conf") => Ok(file.to_owned()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let surroundings = Surroundings { variable: &|_| None, read_file: &read_file };
    super::translate(&words, &surroundings).map_err(|refusal| refusal.to_string())
}

fn scenario_of(line: &str) -> Scenario {
    let mut translation = translate_with(line, "").unwrap_or_else(|message| panic!("{line}: {message}"));
    assert_eq!(translation.scenarios.len(), 1);
    translation.scenarios.remove(0)
}

#[test]
fn defaults_are_those_of_the_code() {
    let scenario = scenario_of("-s localhost");
    assert_eq!(scenario.target.servers, ["localhost:11211"]);
    assert_eq!((scenario.threads, scenario.until.secs), (1, Some(600.0)));
    let group = &scenario.groups[0];
    assert_eq!((group.connections, group.pipeline, group.sockets), (16, 1, 1));
    assert_eq!((&group.keys.bytes, &group.values.bytes), (&Sizes::Fixed(64), &Sizes::Fixed(1024)));
    assert_eq!(group.keys.popularity, Popularity::Window { keys: 10_240, overwrite: 0.0 });
    let weights: Vec<_> = group.commands.iter().map(|command| (command.kind, command.weight)).collect();
    assert_eq!(weights, [(Kind::Set, 0.1), (Kind::Get, 0.9)]);
    assert!(!scenario.fill && !scenario.flush);
}

/// The article that measured loopback and network, UDP and TCP, with and without multi-get.
#[test]
fn the_article_s_command_lines() {
    let udp = scenario_of("--servers 127.0.0.1 -S 1s -T 8 -c 64 -U --win_size=1k");
    assert_eq!((udp.threads, udp.groups[0].connections, udp.period_secs), (8, 64, 1.0));
    assert_eq!(udp.groups[0].transport, Transport::Udp);
    assert_eq!(udp.groups[0].keys.popularity, Popularity::Window { keys: 1024, overwrite: 0.0 });
    let tcp = scenario_of("--servers 192.168.0.81 -S 1s -T 8 -c 64 --win_size=1k -d 8");
    assert_eq!(tcp.groups[0].transport, Transport::Tcp);
    assert_eq!(tcp.groups[0].commands[1].keys, 8);
}

/// memaslap's own examples, but for those that need a file.
#[test]
fn a_multi_get_counts_its_keys() {
    let scenario = scenario_of("-s a -x 1000 -d 9 -P 10k");
    // Of 1000 operations 100 are sets and 900 keys in 100 gets.
    assert_eq!(scenario.until.requests, Some(200));
    assert_eq!(scenario.until.secs, None);
    let weights: Vec<f64> = scenario.groups[0].commands.iter().map(|command| command.weight).collect();
    assert!((weights[0] - weights[1]).abs() < 1e-9);
    let Arrival::Paced { rate_per_sec } = scenario.groups[0].arrival else { panic!("it has a rate") };
    assert!((rate_per_sec - 10_240.0 * 0.2).abs() < 1e-6);
}

#[test]
fn everything_that_can_be_checked() {
    let scenario = scenario_of("-s 127.0.0.1:11211 -t 2m -v 0.2 -e 0.05 -o 0.2 -b -B -n 4 -X 100 -R");
    assert_eq!(scenario.until.secs, Some(120.0));
    assert_eq!((scenario.truth.verify, scenario.truth.verify_expiry), (0.2, 1.0));
    assert_eq!(scenario.truth.expiry_slack_secs, 5.0);
    let group = &scenario.groups[0];
    assert_eq!(group.commands[0].ttl, [Ttl { secs: 60, weight: 0.05 }, Ttl { secs: 0, weight: 0.95 }]);
    assert_eq!(group.keys.popularity, Popularity::Window { keys: 10_240, overwrite: 0.2 });
    assert_eq!((group.protocol, group.sockets), (Protocol::Binary, 4));
    assert_eq!(group.values.bytes, Sizes::Fixed(100));
    let replicas = scenario_of("-s a:1,b:2 -p 2");
    assert_eq!((replicas.target.replicate, replicas.target.servers_replicate), (2, true));
}

#[test]
fn a_configuration_file() {
    let file = "# made up\nkey\n16 20 0.5 # short\n  100 200 0.25\n\nvalue\n10 20 1\ncmd\n0 0\n1 1\n";
    let translation = translate_with("-s a -F conf -d 5 -a", file).expect("it is understood");
    let scenario = &translation.scenarios[0];
    let range = |min, max, weight| SizeRange { min, max, weight };
    // 0.5 * 18 + 0.25 * 150 = 46.5.
    let expected = vec![range(16, 20, 0.5), range(100, 200, 0.25), range(46, 46, 0.25)];
    assert_eq!(scenario.groups[0].keys.bytes, Sizes::Ranges(expected));
    assert!(scenario.fill, "gets alone: the windows are stored first");
    assert_eq!(scenario.groups[0].commands.len(), 1);
    assert_eq!(scenario.groups[0].transport, Transport::UdpGets);
    for (file, message) in [
        ("", "conf: there is no section cmd"),
        ("16 16 1\n", "conf: line 1: a section is needed: key, value or cmd"),
        ("key\n15 16 1\n", "conf: line 2: lengths are 16 to 250 bytes"),
        ("key\n16 251 1\n", "conf: line 2: lengths are 16 to 250 bytes"),
        ("value\n5 4 1\n", "conf: line 2: 5 is more than 4"),
        ("value\n5\n", "conf: line 2: needed are the least length, the greatest and a proportion"),
        ("cmd\n2 0.5\n", "conf: line 2: command 2: there are 0 (set) and 1 (get)"),
        ("cmd\n1 1\nvalue\n1 1 1\n", "conf: there is no section key"),
    ] {
        assert_eq!(translate_with("-s a -F conf", file).map(|_| ()), Err(message.to_owned()), "{file}");
    }
}

#[test]
fn what_cannot_be_is_refused_by_its_name() {
    for (line, message) in [
        ("", "no server: --servers=HOST:PORT, or the variable MEMCACHED_SERVERS"),
        ("-s a -T 3", "--concurrency: must be a multiple of --threads"),
        ("-s a -w 1000", "--win_size 1000: a number with its unit is needed, as 10k, which is 10,240"),
        ("-s a -t 5", "--time 5: a time with its unit is needed, as 20s, 2m, 1h, 1d"),
        ("-s a -a", "--facebook: needs --division of at least 2"),
        ("-s a -U -B", "--binary: memcached's UDP with it was never supported; leave out --udp"),
        ("-s a -U -n 2", "--conn_sock: --udp has no TCP sockets"),
        ("-s a -p 1", "--rep_write: needs at least two servers"),
        ("-s a -v 2", "--verify 2: a share above 0 and up to 1 is needed, as 0.05"),
        (
            "-s a -a -d 50",
            "--division 50: a get of keys of up to 64 bytes does not fit into a datagram of 1400 bytes",
        ),
        (
            "-s a -U -X 1400",
            "--udp: a set of 1400 bytes does not fit into a datagram of 1400 bytes; --facebook sets over TCP",
        ),
        ("-s a more", "more: memaslap takes options only"),
        ("-s a --winsize=1k", "--winsize: there is no such option; --win_size?"),
    ] {
        assert_eq!(translate_with(line, "").map(|_| ()), Err(message.to_owned()), "{line}");
    }
}

#[test]
fn its_tables_are_asked_for_with_stat_freq() {
    let translation = translate_with("-s 127.0.0.1 -S 20s", "").expect("it is understood");
    assert_eq!(translation.style, Style::Memaslap { stat_freq_secs: Some(20) });
}
