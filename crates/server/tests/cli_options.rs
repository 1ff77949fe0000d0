//! What larderd prints, and the exit codes and messages with which it does not start. They are memcached's.

use std::process::{Command, Output};

use larder_conformance::folder::Folder;

fn larderd(args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_larderd")).args(args.split_whitespace()).output().expect("larderd runs")
}

#[test]
fn options_that_print_exit_with_0() {
    for args in [
        "-h",
        "--help",
        "--help-all",
        "-V",
        "--version",
        "-i",
        "--license",
        "--man",
        "--options-markdown",
        "-h -c 0",
    ] {
        let output = larderd(args);
        assert_eq!(output.status.code(), Some(0), "{args}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{args}");
    }
    assert!(String::from_utf8_lossy(&larderd("-V").stdout).starts_with("larderd 0."));
}

/// roff takes a request only at the beginning of a line.
#[test]
fn no_line_of_the_manual_is_indented() {
    let manual = String::from_utf8(larderd("--man").stdout).expect("it is text");
    assert!(manual.starts_with(".TH LARDERD 1"), "{manual}");
    let indented: Vec<_> = manual.lines().filter(|line| line.starts_with(' ')).collect();
    assert!(indented.is_empty(), "{indented:#?}");
}

/// memcached 1.6.18: `memcached -V` and the head of `memcached -h`. Scripts look for the version in that line.
#[test]
fn under_the_name_of_memcached_the_first_line_is_memcacheds() {
    let folder = Folder::create();
    let memcached = folder.file("memcached");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_larderd"), &memcached).expect("the folder is ours");
    for option in ["-V", "-h"] {
        let output = Command::new(&memcached).arg(option).output().expect("larderd runs");
        let printed = String::from_utf8(output.stdout).expect("it is text");
        let mut lines = printed.lines();
        assert_eq!(lines.next(), Some("memcached 1.6.45"), "{option}");
        assert!(lines.next().is_some_and(|line| line.starts_with("larderd 0.")), "{printed}");
    }
}

#[test]
fn refusals_have_memcacheds_exit_codes_and_say_why() {
    for (args, exit_code, message) in [
        ("-c 0", 1, "Maximum connections must be greater than 0"),
        ("-t 0", 1, "Number of threads must be greater than 0"),
        ("-o nonsense", 1, "Illegal suboption \"nonsense\"\n"),
        ("-o maxcons_fast", 1, "Illegal suboption \"maxcons_fast\"; did you mean -o maxconns_fast?"),
        ("-o admin-listen=9150", 1, "Illegal suboption \"admin-listen\"; did you mean --admin-listen?"),
        ("-o ext_path=/f:1g", 64, "--store DIR keeps items on disk"),
        ("--treads 4", 1, "unrecognized option '--treads'; did you mean --threads?"),
        ("--ssl_chain_cert=c", 1, "unrecognized option '--ssl_chain_cert'; did you mean -o ssl_chain_cert?"),
        ("--admin_listen=a", 1, "unrecognized option '--admin_listen'; did you mean --admin-listen?"),
        ("--xyz", 1, "unrecognized option '--xyz'\n"),
        ("--memory 64", 1, "option '--memory' is ambiguous: --memory-limit, --memory-file"),
        ("-T 4", 1, "invalid option -- 'T'; did you mean -t?"),
        ("-I 40m", 64, "Cannot set item size limit higher than 1/2 of memory max."),
        ("-B nonsense", 64, "Invalid value for binding protocol: nonsense"),
        ("-p 65536", 64, "Invalid port number 65536."),
        ("-Z", 64, "ssl_chain_cert"),
        ("-Z -p 0 -o ssl_chain_cert=none.pem", 64, "without a TCP port"),
        ("-Z -o ssl_chain_cert=none.pem", 64, "Error loading the certificate chain"),
        ("-Z -o ssl_chain_cert=/dev/zero", 64, "/dev/zero: has more than 1048576 bytes"),
        (
            "-Z -o ssl_chain_cert=src/main.rs,ssl_verify_mode=1,ssl_ca_cert=/dev/zero",
            64,
            "src/main.rs: no certificate in it",
        ),
        ("-l mtls:127.0.0.1", 71, "valid only when SSL is enabled"),
        ("-o ssl_ciphers=AES128-SHA", 64, "ECDHE-RSA-AES128-GCM-SHA256"),
        ("-o ssl_min_version=1", 64, "1.2"),
        ("-o ssl_min_version=4", 1, "Invalid ssl_min_version"),
        ("-o ssl_verify_mode=4", 1, "Invalid ssl_verify_mode"),
        ("-l 192.0.2.1 -p -1", 71, "failed to listen on one of interface(s) 192.0.2.1"),
        ("-l 127.0.0.1:x", 71, "Invalid port number: \"x\""),
        ("-s /nonexistent/socket", 71, "failed to listen on UNIX socket"),
        ("word", 64, "unexpected argument \"word\""),
        ("-p -1 -l 127.0.0.1 memcached -m 64", 64, "unexpected argument \"memcached\""),
        ("-vv -- -p", 64, "unexpected argument \"-p\""),
    ] {
        let output = larderd(args);
        assert_eq!(output.status.code(), Some(exit_code), "{args}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(message), "{args}: {said}");
    }
}

/// Only root can change users, so only root is told that there is no such one.
#[test]
fn an_unknown_user_exits_with_67() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let output = larderd("-l 127.0.0.1 -p -1 -u no-such-user");
    assert_eq!(output.status.code(), Some(67));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("can't find the user no-such-user to switch to"), "{said}");
}

/// To be renewed with `larderd --options-markdown`.
#[test]
fn the_documented_options_are_those_there_are() {
    let tables = String::from_utf8(larderd("--options-markdown").stdout).expect("it is text");
    let documented = include_str!("../../../docs/options.md");
    assert!(documented.ends_with(&tables), "docs/options.md is not what larderd --options-markdown prints");
}
