use std::io;
use std::path::Path;

use super::*;
use crate::Scenario;
use crate::scenario::{Arrival, Content, Kind, Order, Popularity, Protocol, Sizes};

fn translate_with(line: &str, file: &str) -> Result<Translation, String> {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let read_file = |path: &Path| match path.to_str() {
        Some("test.xml") => Ok(file.to_owned()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let surroundings = Surroundings { variable: &|_| None, read_file: &read_file };
    super::translate(&words, &surroundings).map_err(|refusal| refusal.to_string())
}

fn scenario_of(line: &str) -> Scenario {
    translate_with(line, "").unwrap_or_else(|message| panic!("{line}: {message}")).scenarios.remove(0)
}

#[test]
fn the_options_of_0_93() {
    let scenario = scenario_of("-f 20 -x mc-1,mc-2:5:0 -a r:r -r 1:10 -v");
    assert_eq!(scenario.target.servers, ["mc-1:11211", "mc-2:5"]);
    assert_eq!(scenario.until.secs, Some(172_800.0));
    let group = &scenario.groups[0];
    assert_eq!((group.connections, group.order, group.keys.prefix.as_str()), (20, Order::Turn, "brutis-"));
    let commands: Vec<_> = group.commands.iter().map(|command| (command.kind, command.weight)).collect();
    assert_eq!(commands, [(Kind::Set, 1.0), (Kind::Get, 10.0)]);
    assert_eq!(group.commands[0].key_set.as_ref().map(|keys| keys.popularity), Some(Popularity::Uniform));

    let scenario = scenario_of("-x a -k 10000 -s 2048 -r 1:50 -b 5 -d -n 100 -f 2 -m 3 -t 9 -z 7");
    assert_eq!((scenario.until.secs, scenario.until.requests), (Some(9.0), Some(200)));
    assert_eq!(scenario.truth.verify, 1.0);
    let group = &scenario.groups[0];
    assert_eq!((group.connections, group.commands[1].keys), (6, 5));
    assert_eq!((group.keys.first, group.keys.count), (7, 10_001));
    assert_eq!(group.commands[0].key_set.as_ref().map(|keys| keys.popularity), Some(Popularity::Sequential));

    for (ratio, commands) in [("1:0", vec![(Kind::Set, 1.0)]), ("0:7", vec![(Kind::Get, 1.0)])] {
        let scenario = scenario_of(&format!("-x a -r {ratio}"));
        let found: Vec<_> =
            scenario.groups[0].commands.iter().map(|command| (command.kind, command.weight)).collect();
        assert_eq!(found, commands, "{ratio}");
    }
}

const MIXED: &str = "<?xml version=\"1.0\"?>
<!DOCTYPE brutis SYSTEM \"brutis.dtd\">
<brutis>
  <test name='Made up' desc='Some &amp; all' version='1.0'>
    <jobset name='one' forks='4' operations='1000' library='libmemcache'>
      <libmemcache><option name='Memcached::OPT_BINARY_PROTOCOL'>TRUE</option></libmemcache>
      <dataset>
        <key name='a' start='1' end='1000' pattern='sequential' prefix='p-' divide='true'/>
        <key name='b' start='1' end='1000' pattern='random' prefix='p-'/>
        <value name='text' mode='static'>asdf1234</value>
        <value name='bytes' mode='generated' size='256'/>
      </dataset>
      <operations>
        <operation type='setMulti' keyset='a' valueset='text' count='5'/>
        <operation type='append' keyset='a' valueset='bytes' />
        <operation type='getMulti' keyset='b' count='3'/>
        <operation type='increment' keyset='b' offset='4'/>
        <operation type='setMulti' keyset='a' valueset='text' count='5'/>
        <operation type='append' keyset='a' valueset='bytes'/>
        <operation type='getMulti' keyset='b' count='3'/>
        <operation type='increment' keyset='b' offset='4'/>
      </operations>
    </jobset>
    <jobset name='two'>
      <dataset><key name='a' start='9' end='1' pattern='reverse_sequential'/><value name='v' size='1'/></dataset>
      <operations>
        <operation type='set' keyset='a' valueset='v' expire='60'/>
        <operation type='sleep' count='300'/>
      </operations>
    </jobset>
  </test>
</brutis>
";

#[test]
fn jobsets_are_run_one_after_another() {
    let translation = translate_with("-t test.xml -x a -o out -F json", MIXED).expect("it is understood");
    assert_eq!((translation.json_file.as_deref(), translation.csv_file), (Some("out"), None));
    let [one, two] = &translation.scenarios[..] else { panic!("there are two") };
    assert_eq!((one.name.as_str(), one.description.as_str()), ("Made up: one", "Some & all"));
    let group = &one.groups[0];
    assert_eq!((group.connections, group.protocol, group.order), (4, Protocol::Binary, Order::Turn));
    let commands: Vec<_> = group
        .commands
        .iter()
        .map(|command| (command.kind, command.weight, command.keys, command.delta))
        .collect();
    assert_eq!(
        commands,
        [(Kind::Set, 5.0, 1, 1), (Kind::Append, 1.0, 1, 1), (Kind::Get, 1.0, 3, 1), (Kind::Incr, 1.0, 1, 4)]
    );
    // 4 clients, 1000 operations each: 250 rounds of 8 requests.
    assert_eq!((one.until.requests, one.until.secs), (Some(8000), None));
    assert_eq!((group.keys.first, group.keys.count, group.keys.prefix.as_str()), (1, 1000, "p-"));
    assert_eq!(group.keys.popularity, Popularity::Sequential);
    assert_eq!(group.commands[2].key_set.as_ref().map(|keys| keys.popularity), Some(Popularity::Uniform));
    assert_eq!(
        (&group.values.bytes, &group.values.content),
        (&Sizes::Fixed(8), &Content::Repeated("asdf1234".into()))
    );
    assert_eq!(
        group.commands[1].value_set.as_ref().map(|values| values.bytes.clone()),
        Some(Sizes::Fixed(256))
    );

    assert_eq!(two.groups[0].arrival, Arrival::Paced { rate_per_sec: 1.0 / 300.0 });
    assert_eq!((two.groups[0].keys.first, two.groups[0].keys.count), (1, 9));
    assert_eq!(two.groups[0].keys.popularity, Popularity::Reverse);
    assert_eq!(two.groups[0].commands[0].ttl[0].secs, 60);
    assert_eq!(translation.notes.len(), 2, "{:?}", translation.notes);
}

#[test]
fn what_cannot_be_is_refused_by_its_name() {
    let test =
        |inner: &str| format!("<brutis><test name='t'><jobset name='j'>{inner}</jobset></test></brutis>");
    let keys = "<dataset><key name='k' start='1' end='2'/></dataset>";
    for (line, file, message) in [
        ("", String::new(), "-x: servers are needed"),
        ("-x a:1:1", String::new(), "-x a:1:1: a UDP port of 0 is needed; larder bench --udp asks over UDP"),
        ("-x a -r x", String::new(), "-r x: two numbers up to 10000 are needed, as 1:10"),
        ("-x a -a S", String::new(), "-a S: two patterns are needed, S or R each, as S:R"),
        ("-x a -t none.xml", String::new(), "none.xml: entity not found"),
        (
            "-x a -t test.xml -k 5",
            MIXED.into(),
            "-k 5: an option of Brutis 0.93; with a test file there is none",
        ),
        ("-x a -t test.xml", "<brutis>".into(), "test.xml: there is no jobset"),
        ("-x a -t test.xml", test("\n<foo/>"), "test.xml: line 2: foo: there is no such element"),
        ("-x a -t test.xml", test("<operations/>"), "test.xml: jobset j: it has no operations but sleep"),
        (
            "-x a -t test.xml",
            test(&format!("{keys}<operations><operation type='cas' keyset='k'/></operations>")),
            "test.xml: jobset j: operation cas: there is no such operation",
        ),
        (
            "-x a -t test.xml",
            test("<operations><operation type='get' keyset='k'/></operations>"),
            "test.xml: jobset j: operation get: unknown keyset k",
        ),
        (
            "-x a -t test.xml",
            test("<libmemcache><option name='Memcached::OPT_CACHE_LOOKUPS'>TRUE</option></libmemcache>"),
            "test.xml: jobset j: option OPT_CACHE_LOOKUPS (TRUE): larder has nothing like it",
        ),
    ] {
        assert_eq!(translate_with(line, &file).map(|_| ()), Err(message.to_owned()), "{file}");
    }
    assert!(translate_with("-x a -c b:1", "").is_err_and(|message| message.starts_with("-c b:1: ")));
    assert!(translate_with("-x a -R 5", "").is_err_and(|message| message.starts_with("-R 5: ")));
}
