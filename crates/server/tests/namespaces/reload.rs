//! SIGHUP reads the file again.

use larder_conformance::server::eventually;

use crate::server::Larderd;

const FILE: &str = "[namespace.\"a:\"]\nmemory = \"32m\"\n[namespace.\"b:\"]\n";

#[test]
fn policies_change_while_the_server_runs() {
    let larderd = Larderd::start(FILE, &["-m", "100"]);
    assert_eq!(larderd.ask("set a:1 0 0 1\r\n1\r\nset b:1 0 0 1\r\n1\r\n"), "STORED\r\n".repeat(2));
    larderd.reload(
        "[namespace.\"b:\"]\nread_only = true\n\
         [namespace.\"a:\"]\nmemory = \"40m\"\nttl_default = 60\nitem_bytes_max = 1024\n",
    );
    eventually(|| larderd.ask("set b:1 0 0 1\r\n1\r\n") == "SERVER_ERROR namespace is read-only\r\n");
    assert_eq!(larderd.stat("a:", "limit_maxbytes"), 40 << 20);
    assert_eq!(larderd.stat("b:", "limit_maxbytes"), 30 << 20);
    // What was there is there.
    assert_eq!(larderd.ask("get a:1 b:1\r\n").matches("VALUE").count(), 2);
    let large = format!("set a:2 0 0 1000\r\n{:01000}\r\nset c 0 0 1000\r\n{:01000}\r\n", 0, 0);
    assert_eq!(larderd.ask(&large), "SERVER_ERROR object too large for cache\r\nSTORED\r\n");
    let answer = larderd.ask("set a:3 0 0 1\r\n1\r\nmg a:3 t\r\n");
    let ttl_secs = answer.strip_prefix("STORED\r\nHD t").and_then(|ttl| ttl.trim_end().parse::<u32>().ok());
    assert!(ttl_secs.is_some_and(|ttl_secs| (1..=60).contains(&ttl_secs)), "{answer}");
    // And back: the largest item is that of the server again.
    larderd.reload(FILE);
    eventually(|| larderd.ask("set b:1 0 0 1\r\n1\r\n") == "STORED\r\n");
    assert_eq!(larderd.ask(&large), "STORED\r\n".repeat(2));
}

#[test]
fn a_bad_file_changes_nothing() {
    let larderd = Larderd::start(FILE, &["-m", "100"]);
    let before = larderd.stats("namespaces");
    for bad in [
        "[namespace.\"a:\"]\nmemory = \"32m\"\nread_only = true\n[namespace.\"b:\"]\nread_onyl = true\n",
        "[namespace.\"a:\"]\nread_only = true\n",
        "[namespace.\"a:\"]\nread_only = true\n[namespace.\"b:\"]\n[namespace.\"c:\"]\n",
        "[namespace.\"a:\"]\nread_only = true\nmemory = \"99m\"\n[namespace.\"b:\"]\n",
        "[namespace.\"a:\"]\nread_only = true\nkeep = \"store\"\n[namespace.\"b:\"]\n",
        "[namespace.\"a:\"]\nread_only = true\nkeep = \"warm\"\n[namespace.\"b:\"]\n",
        "[namespace.\"a:\"]\nread_only = true\nusers.read = []\n[namespace.\"b:\"]\n",
        "\u{0}",
    ] {
        larderd.reload(bad);
        // Two in a row are read in order: when the good one is in force, the bad one was read.
        larderd.reload(bad);
        assert_eq!(larderd.ask("set a:1 0 0 1\r\n1\r\n"), "STORED\r\n", "{bad}");
    }
    larderd.reload("[namespace.\"a:\"]\nread_only = true\nmemory = \"32m\"\n[namespace.\"b:\"]\n");
    eventually(|| larderd.ask("set a:1 0 0 1\r\n1\r\n") == "SERVER_ERROR namespace is read-only\r\n");
    for (name, value) in larderd.stats("namespaces") {
        if name.ends_with("limit_maxbytes") {
            assert_eq!(before[&name], value, "{name}");
        }
    }
}
