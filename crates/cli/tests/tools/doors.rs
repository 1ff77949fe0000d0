//! Tools at doors that are locked: TLS, logins, and both.

use std::fs;

use larder_conformance::folder::Folder;
use larder_conformance::server::Server;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::{Ended, command, ended, larder, larder_fed, ok, start_larderd, start_memcached};

/// An authority, and what it has signed for `localhost` and for a client.
struct Certificates {
    folder: Folder,
}

impl Certificates {
    fn new() -> Self {
        let folder = Folder::create();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().expect("a key");
        folder.write("ca.pem", params.self_signed(&ca_key).expect("a certificate").pem());
        let issuer = Issuer::new(params, ca_key);
        for name in ["localhost", "client"] {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new([name.to_owned()]).expect("a name");
            let certificate = params.signed_by(&key, &issuer).expect("a certificate");
            folder.write(&format!("{name}.pem"), certificate.pem());
            folder.write(&format!("{name}.key"), key.serialize_pem());
        }
        Self { folder }
    }

    fn arg(&self, file: &str) -> String {
        self.folder.arg(file)
    }

    /// Beside them: a file of passwords for a server, and one with ann's for a tool.
    fn passwords(&self) -> [String; 2] {
        self.folder.write("passwords", "ann:one\n");
        self.folder.write("password", "one\n");
        [self.arg("passwords"), self.arg("password")]
    }

    /// larderd behind TLS, with these further options.
    fn larderd(&self, ssl: &str, args: &[&str]) -> Server {
        let (chain, key, ca) = (self.arg("localhost.pem"), self.arg("localhost.key"), self.arg("ca.pem"));
        let options = format!("ssl_chain_cert={chain},ssl_key={key},ssl_ca_cert={ca}{ssl}");
        start_larderd(&[&["-Z", "-o", &options], args].concat())
    }
}

fn with(server: &Server, args: &[&str], door: &[&str]) -> Ended {
    larder(server, &[args, door].concat())
}

/// Every tool that talks to a server, through this door.
#[track_caller]
fn expect_service(server: &Server, door: &[&str], folder: &Folder) {
    let ok = |args: &[&str]| ok(server, &[args, door].concat());
    ok(&["set", "a", "one"]);
    assert_eq!(ok(&["get", "a"]), "one\n");
    assert_eq!(ok(&["cat", "a"]), "one");
    ok(&["append", "a", "!"]);
    ok(&["touch", "a", "--ttl", "1h"]);
    ok(&["exist", "a"]);
    ok(&["add", "n", "41"]);
    assert_eq!(ok(&["incr", "n"]), "42\n");
    assert_eq!(ok(&["ping"]).lines().count(), 1);
    assert_eq!(ok(&["version"]).lines().count(), 1);
    assert!(ok(&["stat"]).contains("\tcurr_items: 2\n"));
    assert!(ok(&["slab"]).contains("Item_Size"));
    assert_eq!(ok(&["top", "--once"]).lines().count(), 2);
    let file = folder.arg("dump");
    ok(&["dump", "-q", "--file", &file]);
    ok(&["rm", "a"]);
    ok(&["flush"]);
    ok(&["load", "-q", "--file", &file]);
    assert_eq!(ok(&["cat", "a", "n"]), "one!42");
    fs::remove_file(file).expect("it was written");
}

#[test]
fn tools_speak_tls_and_trust_whom_they_are_told_to() {
    let certificates = Certificates::new();
    let server = certificates.larderd(",ssl_verify_mode=0", &[]);
    let (ca, stranger) = (certificates.arg("ca.pem"), certificates.arg("client.pem"));
    let door = ["--tls-ca", &ca, "--tls-name", "localhost"];
    expect_service(&server, &door, &certificates.folder);
    // Whatever is shown will do, if nobody says what to trust.
    assert_eq!(with(&server, &["exist", "a"], &["--tls"]).code, 0);
    for (wrong, code) in [
        (&["--tls-ca", &ca, "--tls-name", "elsewhere"][..], 69),
        (&["--tls-ca", &stranger, "--tls-name", "localhost"], 69),
        (&["--tls-ca", "/nonexistent"], 64),
        (&["--timeout", "2"], 69),
    ] {
        let told = with(&server, &["exist", "a"], wrong);
        assert_eq!(told.code, code, "{wrong:?}: {told:?}");
        assert!(!told.err.is_empty(), "{wrong:?}");
    }
    let capable = with(&server, &["capable", &server.address().to_string(), "--grep", "meta"], &door);
    assert!(capable.out.contains("yes mg"), "{capable:?}");
}

#[test]
fn tools_show_a_certificate_where_one_is_wanted() {
    let certificates = Certificates::new();
    let server = certificates.larderd(",ssl_verify_mode=2", &[]);
    let [ca, certificate, key] = ["ca.pem", "client.pem", "client.key"].map(|file| certificates.arg(file));
    let anonymous = ["--tls-ca", &ca[..], "--tls-name", "localhost"];
    let door = [&anonymous[..], &["--tls-cert", &certificate, "--tls-key", &key]].concat();
    expect_service(&server, &door, &certificates.folder);
    assert_eq!(with(&server, &["exist", "a"], &anonymous).code, 69);
}

/// Both servers take memcached's password file, by the text protocol (`-Y`).
#[test]
fn tools_log_in() {
    let folder = Folder::create();
    let files = [("passwords", "ann:one\n"), ("right", "one\n"), ("wrong", "three\n")].map(|(file, text)| {
        folder.write(file, text);
        folder.arg(file)
    });
    let [passwords, right, wrong] = &files;
    for server in [start_memcached(&["-Y", passwords]), start_larderd(&["-Y", passwords])] {
        let login = |file| ["--user", "ann", "--password-file", file];
        expect_service(&server, &login(right), &folder);
        assert_eq!(with(&server, &["exist", "a"], &login(wrong)).code, 77);
        assert_eq!(with(&server, &["exist", "a"], &[]).code, 77);
        assert_eq!(with(&server, &["exist", "a"], &login("/nonexistent")).code, 64);
    }
}

/// And by SASL, where the protocol is the binary one.
#[test]
fn tools_log_in_by_sasl_behind_tls() {
    let certificates = Certificates::new();
    let [passwords, password] = certificates.passwords();
    let larderd = larder_conformance::server::larderd().expect("it builds");
    let mut start = larder_conformance::server::command(&larderd);
    let (chain, key) = (certificates.arg("localhost.pem"), certificates.arg("localhost.key"));
    start.args(["-S", "-Z", "-o", &format!("ssl_chain_cert={chain},ssl_key={key}")]);
    start.env("MEMCACHED_SASL_PWDB", &passwords);
    let server = Server::start_command(start).expect("larderd starts");
    let ca = certificates.arg("ca.pem");
    let tls = ["--protocol", "binary", "--tls-ca", &ca, "--tls-name", "localhost"];
    let door = [&tls[..], &["--user", "ann", "--password-file", &password]].concat();
    for (args, out) in [(&["set", "a", "one"][..], ""), (&["get", "a"], "one\n"), (&["exist", "a"], "")] {
        let told = with(&server, args, &door);
        assert_eq!((told.code, &told.out[..]), (0, out), "{args:?}: {told:?}");
    }
    assert!(with(&server, &["stat"], &door).out.contains("\tcurr_items: 1\n"));
    assert_eq!(with(&server, &["exist", "a"], &tls).code, 77);
}

/// From an open memcached to a larderd with every lock, and back.
#[test]
fn items_move_through_locked_doors() {
    let certificates = Certificates::new();
    let [passwords, password] = certificates.passwords();
    let (open, back) = (start_memcached(&[]), start_memcached(&[]));
    let locked = certificates.larderd(",ssl_verify_mode=0", &["-Y", &passwords]);
    for n in 0..10 {
        ok(&open, &["set", &format!("key-{n}"), &format!("value-{n}"), "--ttl", "1h"]);
    }
    let ca = certificates.arg("ca.pem");
    let door = ["--tls-ca", &ca, "--tls-name", "localhost", "--user", "ann", "--password-file", &password];
    let dump = command(&open.address().to_string(), &["dump", "-q"]).output().expect("larder runs");
    assert_eq!(larder_fed(&locked, &[&["load", "-q"], &door[..]].concat(), &dump.stdout).code, 0);
    let dump = command(&locked.address().to_string(), &[&["dump", "-q"], &door[..]].concat()).output();
    let dump = dump.expect("larder runs");
    assert_eq!(ended(&dump).code, 0);
    assert_eq!(larder_fed(&back, &["load", "-q"], &dump.stdout).code, 0);
    assert_eq!(ok(&back, &["cat", "key-0", "key-9"]), "value-0value-9");
}

#[test]
fn a_backup_comes_through_tls_as_well() {
    let (certificates, folder) = (Certificates::new(), Folder::create());
    folder.write("token", "correct-horse-battery");
    let (store, token) = (folder.arg("store"), folder.arg("token"));
    let kept =
        ["--store", &store, "--backup-token-file", &token, "--admin-listen", "127.0.0.1:0", "--admin-tls"];
    let server = certificates.larderd(",ssl_verify_mode=0", &kept);
    let admin = server.admin_address().expect("it has one").to_string();
    let ca = certificates.arg("ca.pem");
    let args = ["backup", "-", "--admin", &admin, "--backup-token-file", &token, "--tls-ca", &ca];
    let trusted = command("localhost:1", &[&args[..], &["--tls-name", "localhost"]].concat()).output();
    let trusted = trusted.expect("larder runs");
    assert!(trusted.status.success(), "{}", ended(&trusted).err);
    let to = folder.arg("restored");
    assert_eq!(larder_fed(&server, &["restore", "-", "--to", &to], &trusted.stdout).code, 0);
    let other = command("localhost:1", &[&args[..], &["--tls-name", "other"]].concat()).output();
    assert_eq!(ended(&other.expect("larder runs")).code, 69);
}
