use std::io;
use std::path::Path;

use super::*;
use crate::scenario::{Kind, Protocol};

fn translate_with(line: &str, file: &str) -> Result<Translation, String> {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let read_file = |path: &Path| match path.to_str() {
        Some("conf") => Ok(file.to_owned()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let surroundings = Surroundings { variable: &|_| None, read_file: &read_file };
    super::translate(&words, &surroundings).map_err(|refusal| refusal.to_string())
}

fn scenario_of(line: &str, file: &str) -> Scenario {
    translate_with(line, file).unwrap_or_else(|message| panic!("{file}: {message}")).scenarios.remove(0)
}

#[test]
fn a_line_is_a_group() {
    let file = "send=ascii_set,recv=blind_read,conns=3,key_prefix=foobar,value_size=2,value=hi,key_prealloc=0\n\n\
                send=ascii_mget,recv=blind_read,conns=5,mget_count=20,key_prefix=foobar,key_count=1000,pipelines=8\n";
    let scenario = scenario_of("--conf conf --timeout 3", file);
    assert_eq!((scenario.until.secs, scenario.threads), (Some(3.0), 1));
    assert_eq!(scenario.target.servers, ["127.0.0.1:11211"]);
    let [set, get] = &scenario.groups[..] else { panic!("there are two") };
    assert_eq!((set.connections, set.pipeline, set.keys.count), (3, 1, 200_000));
    assert_eq!(set.commands[0].kind, Kind::Set);
    assert_eq!((&set.values.bytes, &set.values.content), (&Sizes::Fixed(2), &Content::Repeated("hi".into())));
    assert_eq!(set.keys.popularity, Popularity::Sequential);
    assert_eq!((get.connections, get.pipeline, get.keys.count, get.commands[0].keys), (5, 8, 1000, 20));
}

#[test]
fn what_every_key_means() {
    let file = "send=ascii_mg,recv=blind_read,conns=4,thread=2,usleep=1000,pipelines=5,live_rand_zipf=1,zipf_skew=0.9,\
                cmd_postfix=s t v,stop_after=100,expire=60,flags=7,host=127.0.0.2,port=11212\n\
                send=bin_setq,recv=blind_read,live_rand=1,value_size=10,host=127.0.0.2,port=11212\n";
    let scenario = scenario_of("conf", file);
    assert_eq!(scenario.threads, 3);
    assert_eq!(scenario.target.servers, ["127.0.0.2:11212"]);
    let [mg, setq] = &scenario.groups[..] else { panic!("there are two") };
    // 8 connections, 5 requests every millisecond each.
    assert_eq!(mg.arrival, Arrival::Paced { rate_per_sec: 40_000.0 });
    assert_eq!((mg.connections, mg.requests, mg.protocol), (8, Some(200), Protocol::Meta));
    assert_eq!(mg.keys.popularity, Popularity::Zipf { exponent: 0.9 });
    assert_eq!(mg.commands[0].meta_flags, "s t v");
    assert_eq!(
        (mg.commands[0].ttl.as_slice(), mg.commands[0].client_flags),
        (&[Ttl { secs: 60, weight: 1.0 }][..], 7)
    );
    assert_eq!((setq.protocol, setq.commands[0].noreply), (Protocol::Binary, true));
    assert_eq!(setq.keys.popularity, Popularity::Uniform);
}

#[test]
fn every_command_is_known() {
    for send in [
        "ascii_get",
        "ascii_set",
        "ascii_mget",
        "ascii_incr",
        "ascii_decr",
        "ascii_delete",
        "ascii_touch",
        "ascii_mg",
        "bin_get",
        "bin_getq",
        "bin_set",
        "bin_setq",
        "bin_touch",
    ] {
        let scenario =
            scenario_of("--conf conf --sock /run/mc.sock", &format!("send={send},recv=blind_read\n"));
        assert_eq!(scenario.groups.len(), 1);
        assert_eq!(scenario.target.servers, ["/run/mc.sock"]);
    }
}

#[test]
fn what_mc_crusher_ignores_is_named() {
    let translation = translate_with(
        "--conf conf --timeout 1",
        "send=ascii_get,recv=blind_read,key_prealloc=1,key_len=9,value_range=3\n",
    );
    let notes = translation.expect("it is understood").notes;
    assert_eq!(notes, ["line 1: without effect in mc-crusher, and here: key_prealloc, key_len, value_range"]);
}

#[test]
fn what_cannot_be_is_refused_by_its_name() {
    for (words, file, message) in [
        ("", "", "--conf: a configuration file is needed"),
        ("--conf none", "", "none: entity not found"),
        ("--conf conf", "\n", "conf: there is no line"),
        ("--conf conf", "recv=blind_read", "conf: line 1: send: what to send is needed"),
        (
            "--conf conf",
            "send=ascii_gets",
            "conf: line 1: send=ascii_gets: there is no such command; ascii_get?",
        ),
        ("--conf conf", "send=bin_get,con=5", "conf: line 1: con: there is no such key; conns?"),
        ("--conf conf", "send=bin_get,conns=x", "conf: line 1: conns=x: a number is needed"),
        ("--conf conf", "send=bin_get,conns", "conf: line 1: conns: KEY=VALUE is needed"),
        (
            "--conf conf",
            "send=bin_get,live_rand_zipf=1,zipf_skew=3",
            "conf: line 1: zipf_skew=3: 0.01 to 2.0",
        ),
        (
            "--conf conf",
            "send=bin_get,port=1\nsend=bin_get,port=2",
            "conf: host, port: lines name several servers (127.0.0.1:1, 127.0.0.1:2), and all groups of a run ask the \
             same; run a file for each",
        ),
        ("--zipf-n 5", "", "--zipf-n 5: prints samples of mc-crusher's own generator, and asks no server"),
    ] {
        assert_eq!(translate_with(words, file).map(|_| ()), Err(message.to_owned()), "{file}");
    }
}
