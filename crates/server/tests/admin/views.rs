//! What is told in JSON, and what is told nowhere.

use larder_conformance::server::eventually;
use serde_json::Value;

use crate::server::Larderd;

fn json(server: &Larderd, path: &str) -> Value {
    serde_json::from_str(&server.get(path).body).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn a_fresh_server_has_something_to_say() {
    let server = Larderd::start(&["-m", "32"]);
    let overview = json(&server, "/api/overview");
    assert_eq!((&overview["items"], &overview["is_ready"]), (&0.into(), &true.into()));
    assert_eq!(overview["memory"]["limit_bytes"], 32 << 20);
    assert_eq!(json(&server, "/api/memory")["cells"], Value::Array(Vec::new()));
    assert_eq!(json(&server, "/api/slow")["batches"], Value::Array(Vec::new()));
    assert_eq!(json(&server, "/api/curve")["hit_ratio"], Value::Null);
}

#[test]
fn the_figures_of_now_follow_the_requests() {
    let server = Larderd::start(&["-m", "32"]);
    server.cache("set a 0 0 1\r\nx\r\nget a\r\nget a\r\nget a\r\nget nobody\r\n");
    let recent = || json(&server, "/api/overview")["recent"].clone();
    let of = |figures: &Value, name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("no {name}"));
    // Three hits, a miss and a store in the same seconds; rates are rounded to a hundredth. A reading may come in the
    // midst of them, and the next one after.
    eventually(|| {
        let figures = recent();
        let [hits, misses, stores] = ["hits", "misses", "stores"].map(|name| of(&figures, name));
        misses > 0.0 && (hits - 3.0 * misses).abs() < 0.05 && (stores - misses).abs() < 0.05
    });
    let figures = recent();
    assert!(of(&figures, "resident_bytes") > 0.0 && of(&figures, "cpu_cores") >= 0.0, "{figures}");
    eventually(|| json(&server, "/api/curve")["measured_hit_ratio"] == 0.75);
}

/// What the crawler reclaims is in `reclaimed` and in `crawler_reclaimed`.
#[test]
fn an_expired_item_is_counted_once() {
    let server = Larderd::start(&["-m", "32"]);
    server.cache("set a 0 1 3\r\nabc\r\nset b 0 1 3\r\nabc\r\n");
    eventually(|| {
        server.cache("lru_crawler crawl all\r\n");
        json(&server, "/api/overview")["items"] == 0
    });
    eventually(|| json(&server, "/api/overview")["evictions"]["expired"] == 2);
}

#[test]
fn requests_show_up() {
    let server = Larderd::start(&["-m", "32"]);
    server.cache(
        "set user:1 0 0 3\r\nabc\r\nset user:2 0 60 3\r\nabc\r\nget user:1\r\nget user:1\r\nget nobody\r\n",
    );
    let overview = json(&server, "/api/overview");
    let requests = &overview["requests"];
    assert_eq!((&requests["get_hits"], &requests["get_misses"]), (&2.into(), &1.into()));
    assert_eq!((&requests["stores"], &overview["items"]), (&2.into(), &2.into()));

    let memory = json(&server, "/api/memory");
    let cells = memory["cells"].as_array().expect("a list");
    // One segment for what never expires, one for what does.
    assert_eq!(cells.len(), 2);
    let live = |of: &Value| {
        of.as_array().expect("a list").iter().map(|p| p["live_bytes"].as_u64()).sum::<Option<u64>>()
    };
    assert_eq!(live(&memory["cells"]), live(&memory["queues"]));
    assert_eq!(live(&memory["cells"]), live(&memory["lifetimes"]));

    let keys = json(&server, "/api/keys");
    assert_eq!((&keys["is_measured"], &keys["is_withheld"]), (&true.into(), &false.into()));

    // Within the second that follows.
    eventually(|| {
        let history = json(&server, "/api/history");
        let points = history["points"].as_array().expect("a list");
        points.iter().filter_map(|point| point["hits"].as_f64()).sum::<f64>() > 1.0
    });
    let history = json(&server, "/api/history");
    let last = history["points"].as_array().and_then(|points| points.last()).expect("there are some");
    let after = json(&server, &format!("/api/history?after={}", last["at_secs"]));
    let is_after = |point: &Value| point["at_secs"].as_i64() > last["at_secs"].as_i64();
    assert!(after["points"].as_array().expect("a list").iter().all(is_after));
    assert_eq!(json(&server, "/api/history?span=day")["step_secs"], 60);
}

#[test]
fn connections_are_told_by_worker_and_listener() {
    let server = Larderd::start(&["-t", "2"]);
    let open: Vec<_> = (0..4).map(|_| std::net::TcpStream::connect(server.cache)).collect();
    eventually(|| json(&server, "/api/connections")["open"] == 4);
    // A worker may have one still to take.
    eventually(|| json(&server, "/api/connections")["workers"] == serde_json::json!([2, 2]));
    let connections = json(&server, "/api/connections");
    assert_eq!(connections["listeners"][0]["address"], server.cache.to_string());
    drop(open);
}

/// The page suggests a first request to one of them.
#[test]
fn listeners_are_told_with_their_protocols() {
    for (options, protocols) in [
        (&["--http-listen", "127.0.0.1:0"][..], ["auto", "http"]),
        (&["-B", "ascii", "--http-listen", "127.0.0.1:0"], ["ascii", "http"]),
        (&["-B", "binary", "--http-listen", "127.0.0.1:0"], ["binary", "http"]),
    ] {
        let server = Larderd::start(options);
        let connections = json(&server, "/api/connections");
        let listeners = connections["listeners"].as_array().expect("a list");
        let told: Vec<_> = listeners.iter().map(|listener| &listener["protocol"]).collect();
        assert_eq!(told, protocols, "{options:?}");
    }
}

/// Values leave the cache by the cache's protocol alone; keys are told in one place, and not at all where nobody may
/// dump them.
#[test]
fn values_are_told_nowhere_and_keys_in_one_place() {
    for (options, tells_keys) in [(&[][..], true), (&["-X"], false), (&["-o", "no_hot_keys"], false)] {
        let server = Larderd::start(options);
        let mut commands = "set secretkey:1 0 0 11\r\nsecretvalue\r\n".to_owned();
        commands.push_str(&"get secretkey:1\r\n".repeat(2000));
        server.cache(&commands);
        for path in
            ["/metrics", "/", "/healthz", "/api/overview", "/api/history", "/api/memory", "/api/curve"]
                .into_iter()
                .chain(["/api/slow", "/api/connections", "/api/peers", "/api/keys"])
        {
            let body = server.get(path).body;
            assert!(!body.contains("secretvalue"), "{path}");
            assert_eq!(body.contains("secretkey"), tells_keys && path == "/api/keys", "{path} {options:?}");
        }
        assert_eq!(json(&server, "/api/keys")["is_withheld"], options == ["-X"]);
    }
}
