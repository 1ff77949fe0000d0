//! `larder capable`.

use larder_conformance::server::reference;
use serde_json::Value;

use crate::{larder, ok, start_larderd, start_memcached};

fn capable(server: &larder_conformance::server::Server) -> Value {
    serde_json::from_str(&ok(server, &["capable", "--json", "--timeout", "2"])).expect("it is JSON")
}

/// What memcached 1.6.18 of Debian has been built with, and does by default.
#[test]
fn memcached_can_what_its_documents_say() {
    if reference().is_none() {
        return;
    }
    let report = capable(&start_memcached(&[]));
    for group in ["text", "time to live", "meta", "binary"] {
        let features = report[group].as_object().expect("it is a group");
        for (name, feature) in features {
            // Newer than 1.6.18.
            let can = name != "own CAS values (E)";
            assert_eq!(feature["can"], can, "{group}, {name}: {}", feature["note"]);
        }
    }
    for (group, name, can) in [
        ("statistics", "stats conns", true),
        ("statistics", "stats proxy", false),
        ("administration", "lru_crawler metadump hash", true),
        ("administration", "watch fetchers", true),
        ("ways", "UDP", false),
        ("ways", "TLS", false),
        ("ways", "without a login", true),
        ("ways", "SASL (binary)", false),
        ("large values", "512 KiB", true),
        // -I is 1m, and an item is more than its value.
        ("large values", "1 MiB", false),
    ] {
        let feature = &report[group][name];
        assert_eq!(feature["can"], can, "{group}, {name}: {}", feature["note"]);
    }
}

/// `diff` shows only what differs.
#[test]
fn reports_of_two_servers_can_be_compared() {
    let [one, other] = [(); 2].map(|()| start_memcached(&[]));
    let report = |server| ["ways", "large"].map(|group| ok(server, &["capable", "--grep", group])).concat();
    let (one, other) = (report(&one), report(&other));
    assert!(one.contains("no  1 MiB") && one.contains("SERVER_ERROR object too large for cache"), "{one}");
    assert_eq!(one, other);
}

#[test]
fn options_show() {
    let report =
        capable(&start_memcached(&["-o", "no_lru_crawler", "-I", "16m", "-m", "256", "-B", "ascii"]));
    assert_eq!(report["binary"]["get"]["can"], false);
    assert_eq!(report["administration"]["lru_crawler metadump all"]["can"], false);
    assert_eq!(report["large values"]["8 MiB"]["can"], true);
}

/// larderd replaces memcached.
#[test]
fn larderd_can_what_memcached_can() {
    if reference().is_none() {
        return;
    }
    let (reference, report) = (capable(&start_memcached(&[])), capable(&start_larderd(&[])));
    for (group, features) in reference.as_object().expect("it is an object") {
        for (name, feature) in features.as_object().expect("it is a group") {
            let ours = &report[group][name];
            assert!(feature["can"] == false || ours["can"] == true, "{group}, {name}: {}", ours["note"]);
        }
    }
}

#[test]
fn nothing_is_left_behind() {
    let server = start_memcached(&[]);
    ok(&server, &["set", "a", "b"]);
    capable(&server);
    assert_eq!(ok(&server, &["get", "a"]), "b\n");
    let left = larder(&server, &["dump", "-q"]).out;
    assert!(!left.contains("larder-capable"), "{left}");
}
