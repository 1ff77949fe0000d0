//! `larder sites` and `read-only`, against two sites.

use larder_conformance::folder::Folder;
use larder_conformance::server::{Server, free_port};
use serde_json::Value;

use crate::{command, ended, larder, ok, start_larderd};

/// Two sites that hold the same data; the first one also has a namespace that takes no part.
struct Pair {
    folder: Folder,
    listens: [String; 2],
    servers: Vec<Server>,
}

impl Pair {
    fn start() -> Self {
        let folder = Folder::create();
        folder.write("token", "both-sites-know-this-token\n");
        folder.write("namespaces", "[default]\nkeep = \"store\"\n[namespace.\"cache:\"]\nkeep = \"cache\"\n");
        let listens = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
        let mut pair = Self { folder, listens, servers: Vec::new() };
        pair.servers = (0..2).map(|site| pair.start_site(site)).collect();
        for server in &pair.servers {
            // Until it has heard the other one it takes no changes.
            let takes_changes = |line: &str| line.contains("takes_changes") && line.ends_with("yes");
            larder_conformance::server::eventually(|| {
                ok(server, &["stat", "replication"]).lines().any(takes_changes)
            });
        }
        pair
    }

    fn start_site(&self, site: usize) -> Server {
        let arg = |name: &str| self.folder.arg(name);
        let (store, token, namespaces) = (arg(&format!("store{site}")), arg("token"), arg("namespaces"));
        let number = (site + 1).to_string();
        start_larderd(&[
            "-u",
            "root",
            "--admin-listen",
            "127.0.0.1:0",
            "--admin-listen",
            &arg(&format!("admin{site}")),
            "--store",
            &store,
            "--namespaces",
            &namespaces,
            "--site",
            &number,
            "--replication-listen",
            &self.listens[site],
            "--peer",
            &self.listens[1 - site],
            "--replication-token-file",
            &token,
        ])
    }

    fn address(&self, site: usize) -> String {
        self.servers[site].address().to_string()
    }

    fn admin(&self, site: usize) -> String {
        self.servers[site].admin_address().expect("it listens").to_string()
    }
}

#[test]
fn sites_are_shown_as_they_see_each_other() {
    let mut pair = Pair::start();
    let (one, other) = (pair.address(0), pair.address(1));
    let set = larder(&pair.servers[0], &["set", "greeting", "hello"]);
    assert_eq!(set.code, 0, "{set:?}");
    let told = ok(&pair.servers[0], &["sites", "--wait", "60", &one, &other]);
    // It waited until the other one has all of it.
    assert_eq!(ok(&pair.servers[1], &["get", "greeting"]), "hello\n");
    let rows: Vec<&str> = told.lines().collect();
    assert_eq!(rows[0], format!("{one}: site 1"), "{told}");
    assert_eq!(rows[1], "  not replicated, since not kept in the store: cache:", "{told}");
    assert!(
        rows[3].starts_with("  2 ") && rows[3].contains(" well ") && rows[3].ends_with(" right"),
        "{told}"
    );
    assert!(rows[3].contains(&pair.listens[1]), "{told}");
    let json: Value = serde_json::from_str(&ok(&pair.servers[0], &["sites", "--json"])).expect("JSON");
    assert_eq!(json[0]["site"], 1);
    assert_eq!((&json[0]["sites"][0]["site"], &json[0]["sites"][0]["trouble"]), (&2.into(), &Value::Null));
    // Both are needed to know that nothing is missing.
    let alone = larder(&pair.servers[0], &["sites", "--wait", "1"]);
    assert!(alone.code == 1 && alone.err.contains("site 2 is not among the servers"), "{alone:?}");

    pair.servers.pop().expect("it is there").kill().expect("it runs");
    larder_conformance::server::eventually(|| larder(&pair.servers[0], &["sites"]).code == 1);
    let away = larder(&pair.servers[0], &["sites"]);
    assert!(away.out.contains(" away ") && away.err.contains(": site 2: not connected: "), "{away:?}");
    let down = ended(&command(&one, &["sites", &one, &other]).output().expect("larder runs"));
    assert_eq!(down.code, 69, "{down:?}");
    let plain = start_larderd(&[]);
    let none = larder(&plain, &["sites"]);
    assert!(none.code == 1 && none.err.contains("it is not one of several sites"), "{none:?}");
}

/// A site that nobody has told of another one misses nothing.
#[test]
fn sites_that_do_not_know_each_other_are_not_well() {
    let folder = Folder::create();
    let token = folder.write("token", "both-sites-know-this-token\n").display().to_string();
    let start = |store: &str, site: &str, listen: &str, options: &[&str]| {
        let store = folder.arg(store);
        let common = ["--store", &store, "--site", site, "--replication-listen", listen];
        start_larderd(&[&common[..], &["--replication-token-file", &token], options].concat())
    };
    let sites = |servers: &[&Server]| {
        let addresses: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        larder(servers[0], &[&["sites", "--wait", "1"][..], &addresses].concat())
    };
    let listen = format!("127.0.0.1:{}", free_port());
    let one = start("first", "1", &listen, &[]);
    assert_eq!(sites(&[&one]).code, 0, "nobody else is named");
    for (store, site, options, causes) in [
        ("stranger", "2", &[][..], &["it does not know site 2, ", "it does not know site 1, "][..]),
        // It asks to join, and is refused.
        (
            "refused",
            "2",
            &["--peer", &listen],
            &["it takes no changes: ", "site 2 is not among the configured peers"],
        ),
        ("twin", "1", &[], &["two of site 1: give each its own --site"]),
    ] {
        let other = start(store, site, "127.0.0.1:0", options);
        let ended = sites(&[&one, &other]);
        assert_eq!(ended.code, 1, "{site} {options:?}: {ended:?}");
        for cause in causes {
            assert!(ended.err.contains(cause), "{site} {options:?}: {cause}: {ended:?}");
        }
    }
}

#[test]
fn a_server_is_made_read_only_and_asked() {
    let pair = Pair::start();
    let server = &pair.servers[0];
    let (own, other) = (pair.admin(0), pair.admin(1));
    let refused = larder(server, &["read-only", "on", &own]);
    assert!(refused.code == 77 && refused.err.contains("--admin-token-file"), "{refused:?}");
    let socket = pair.folder.arg("admin0");
    assert_eq!(ok(server, &["read-only", "on", &socket]), "");
    let status = larder(server, &["read-only", "status", &own, &other]);
    assert_eq!(status.code, 1, "the other one is not: {status:?}");
    assert_eq!(status.out, format!("{own}: read-only, 0 refused\n{other}: takes changes, 0 refused\n"));
    let set = larder(server, &["set", "a", "b"]);
    assert!(set.code == 1 && set.err.contains("read-only for maintenance"), "{set:?}");
    assert_eq!(ok(server, &["read-only", "status", &own]), format!("{own}: read-only, 1 refused\n"));
    assert_eq!(ok(server, &["read-only", "off", &socket]), "");
    ok(server, &["set", "a", "b"]);
    // Not HTTP, and not there.
    let address = pair.address(0);
    for (admin, code) in [(&address[..], 1), ("127.0.0.1:1", 69)] {
        let wrong = larder(server, &["read-only", "status", admin, "--timeout", "2"]);
        assert!([code, 69].contains(&wrong.code), "{admin}: {wrong:?}");
    }
    let folder = Folder::create();
    let token = folder.write("token", "two words\n").display().to_string();
    let bad = larder(server, &["read-only", "off", &own, "--admin-token-file", &token]);
    assert_ne!(bad.code, 0, "{bad:?}");
}
