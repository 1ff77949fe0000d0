use super::*;

/// The code, and the message without the client's address and the place in the source.
fn told(string: &str) -> (u32, String) {
    let memc = Memc::at(Memc::null().create());
    let code = apply(&memc, string.as_bytes());
    let message = memc.read(|core| core.errors.message().map(|text| text.to_string_lossy().into_owned()));
    let message = message.flatten().unwrap_or_default();
    let message =
        message.split_once(") ").map_or("", |(_, text)| text).rsplit_once(" -> ").unwrap_or_default().0;
    clients::free(&memc);
    (code.0, message.to_owned())
}

// As libmemcached_check_configuration of libmemcached 1.1.4 answers.
#[test]
fn strings_are_read_as_libmemcached_reads_them() {
    for right in [
        "--SERVER=localhost",
        "--SERVER=host:11/?5 --BINARY-PROTOCOL",
        "--SOCKET=\"/tmp/x\"",
        "--SERVER=10.0.0.1:99999",
        "--POOL-MIN=10 --POOL-MAX=32",
        "--server=localhost",
        "--DISTRIBUTION=consistent,md5",
        "--TCP-KEEPIDLE",
        "--VERIFY-KEY --BINARY-PROTOCOL",
        "--USER-DATA",
        "--NAMESPACE=\"foo\"",
        "--REMOVE-FAILED-SERVERS=3",
        "RESET",
        "END --FOO",
        "--SERVER=localhost --SERVER=localhost:11212",
        "--SERVER=1.2.3.4:5/?6",
        "--SERVER=foo_bar.com",
        "--FETCH-VERSION",
    ] {
        assert_eq!(told(right), (0, String::new()), "{right}");
    }
    for (wrong, message) in [
        ("--SERVR=x", "unexpected UNKNOWN_OPTION): last_token=UNKNOWN_OPTION(270)"),
        (
            "--SERVER=",
            "unexpected end of file, expecting IPADDRESS or HOSTNAME): last_token=\"end of file\"(0)",
        ),
        ("foo", "unexpected STRING): last_token=STRING(325)"),
        ("--SERVER=a", "unexpected UNKNOWN, expecting IPADDRESS or HOSTNAME): last_token=SERVER(266)"),
        ("--SERVER=ab", "unexpected UNKNOWN, expecting IPADDRESS or HOSTNAME): last_token=SERVER(266)"),
        (
            "--DISTRIBUTION=bogus",
            "unexpected STRING, expecting CONSISTENT or MODULA or RANDOM): last_token=STRING(325)",
        ),
        ("--CONNECT-TIMEOUT=-1", "unexpected UNKNOWN, expecting NUMBER): last_token=CONNECT_TIMEOUT(274)"),
        (
            "--SOCKET=/tmp/x",
            "unexpected UNKNOWN, expecting STRING or QUOTED_STRING): last_token=CSL_SOCKET(267)",
        ),
        ("# comment", "unexpected UNKNOWN): last_token=UNKNOWN(271)"),
        ("  --SERVER=localhost", "unexpected ' '): last_token=' '(32)"),
        ("--SERVER=localhost,other", "unexpected ',', expecting end of file or ' '): last_token=','(44)"),
        ("--TCP-KEEPIDLE=5", "unexpected '=', expecting end of file or ' '): last_token='='(61)"),
        (
            "--SERVER=\"foo\"",
            "unexpected QUOTED_STRING, expecting IPADDRESS or HOSTNAME): last_token=QUOTED_STRING(326)",
        ),
        ("--SERVER=localhost:x", "unexpected UNKNOWN, expecting end of file or ' '): last_token=SERVER(266)"),
    ] {
        let message = format!("Error occured during parsing (syntax error, {message}");
        assert_eq!(told(wrong), (43, message), "{wrong}");
    }
    for (wrong, message) in [
        ("--HASH=MD5 --HASH=CRC", "--HASH can only be set once"),
        ("--BINARY-PROTOCOL --VERIFY-KEY", "Could not set: MEMCACHED_BEHAVIOR_VERIFY_KEY"),
        ("--USE-UDP --BUFFER-REQUESTS", "Could not set: MEMCACHED_BEHAVIOR_BUFFER_REQUESTS"),
        ("CSL_ERROR", "ERROR called directly"),
    ] {
        assert_eq!(told(wrong), (43, message.to_owned()), "{wrong}");
    }
    assert_eq!(told("--CONFIGURE-FILE=\"/nonexist\"").0, 26);
}

#[test]
fn no_beginning_of_a_string_is_too_much() {
    let whole = "--SERVER=host:11/?5 --SOCKET=\"/a\\\"b\" --TLS-CA=\"x y\" --HASH=MD5 INCLUDE \"/x\" \
                 99999999999999999999999 \u{fc}";
    for end in (0..=whole.len()).filter(|end| whole.is_char_boundary(*end)) {
        told(&whole[..end]);
        told(&whole[end..]);
    }
}

#[test]
fn a_file_that_includes_itself_is_an_error() {
    let path = std::env::temp_dir().join(format!("larder-include-{}", std::process::id()));
    fs::write(&path, format!("INCLUDE \"{}\"\n", path.display())).expect("it can be written");
    assert_ne!(told(&format!("INCLUDE \"{}\"", path.display())).0, 0);
    fs::remove_file(&path).expect("it is there");
}

// As in libmemcached, the file is not read again.
#[test]
fn a_file_that_resets_a_client_is_read_once() {
    let path = std::env::temp_dir().join(format!("larder-reset-{}", std::process::id()));
    fs::write(&path, "--SERVER=before\nRESET\n--SERVER=after\n").expect("it can be written");
    let memc = Memc::at(Memc::null().create());
    let string = format!("--CONFIGURE-FILE=\"{}\"", path.display());
    assert_eq!(apply(&memc, string.as_bytes()), Return::SUCCESS);
    let hosts = memc.read(|core| core.instances.iter().map(|server| server.host.clone()).collect::<Vec<_>>());
    assert_eq!(hosts, Some(vec![c"after".to_owned()]));
    clients::free(&memc);
    fs::remove_file(&path).expect("it is there");
}
