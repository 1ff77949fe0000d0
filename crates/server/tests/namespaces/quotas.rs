//! Quotas under load: each namespace has its memory, and evicts its own items.

use std::io::{BufRead, BufReader, Write};

use crate::server::Larderd;

const MIB: u64 = 1 << 20;
const FILE: &str =
    "[namespace.\"a:\"]\nmemory = \"32m\"\n[namespace.\"b:\"]\nmemory = \"8m\"\n[namespace.\"c:\"]\n";

/// Stores so many values of 1000 bytes, 100 at a time.
fn fill(larderd: &Larderd, prefix: &str, items: u64) {
    let mut stream = BufReader::new(larderd.connect());
    for first in (0..items).step_by(100) {
        let mut batch = String::new();
        for number in first..first + 100 {
            batch += &format!("set {prefix}{number} 0 0 1000\r\n{:01000}\r\n", number);
        }
        stream.get_mut().write_all(batch.as_bytes()).expect("larderd reads");
        for _ in 0..100 {
            let mut line = String::new();
            stream.read_line(&mut line).expect("larderd answers");
            assert_eq!(line, "STORED\r\n");
        }
    }
}

#[test]
fn quotas_hold_under_load_and_nobody_evicts_from_others() {
    let larderd = Larderd::start(FILE, &["-m", "100", "-t", "2"]);
    let names = ["<null>", "a:", "b:", "c:"];
    let limits: Vec<_> = names.iter().map(|name| larderd.stat(name, "limit_maxbytes")).collect();
    // The default and c: share what the quotas leave of 100 MiB.
    assert_eq!(limits, [30 * MIB, 32 * MIB, 8 * MIB, 30 * MIB]);
    fill(&larderd, "b:", 4_000);
    fill(&larderd, "c:", 4_000);
    let (b_items, c_items) = (larderd.stat("b:", "curr_items"), larderd.stat("c:", "curr_items"));
    assert_eq!((b_items, c_items, larderd.stat("b:", "evictions")), (4_000, 4_000, 0));
    // Five times its quota, by two clients at once.
    std::thread::scope(|scope| {
        scope.spawn(|| fill(&larderd, "a:", 80_000));
        scope.spawn(|| fill(&larderd, "a:x", 80_000));
    });
    let used = larderd.stat("a:", "memory_used_bytes");
    assert!(used <= limits[1] + limits[1] / 50, "{used} of {}", limits[1]);
    assert!(used >= limits[1] - limits[1] / 50, "{used} of {}", limits[1]);
    // Most of that is items, not overhead.
    let bytes = larderd.stat("a:", "bytes");
    assert!(bytes >= limits[1] / 100 * 85, "{bytes} of {}", limits[1]);
    assert!(larderd.stat("a:", "evictions") > 100_000);
    for name in ["b:", "c:", "<null>"] {
        assert_eq!(larderd.stat(name, "evictions"), 0, "{name}");
    }
    assert_eq!((larderd.stat("b:", "curr_items"), larderd.stat("c:", "curr_items")), (b_items, c_items));
    // Totals are of all.
    let stats = larderd.stats("");
    let sum =
        |name: &str| names.iter().map(|namespace| larderd.stat(namespace, name)).sum::<u64>().to_string();
    assert_eq!(stats["evictions"], sum("evictions"));
    assert_eq!(stats["curr_items"], sum("curr_items"));
    assert_eq!(stats["limit_maxbytes"], (100 * MIB).to_string());
}

#[test]
fn cache_memlimit_is_of_all_namespaces_and_leaves_quotas() {
    let larderd = Larderd::start(FILE, &["-m", "100"]);
    let limits = || ["<null>", "a:", "b:", "c:"].map(|name| larderd.stat(name, "limit_maxbytes") / MIB);
    assert_eq!(larderd.ask("cache_memlimit 60\r\n"), "OK\r\n");
    assert_eq!(limits(), [10, 32, 8, 10]);
    assert_eq!(larderd.stats("")["limit_maxbytes"], (60 * MIB).to_string());
    let refused = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";
    assert_eq!(larderd.ask("cache_memlimit 41\r\n"), refused);
    assert_eq!(limits(), [10, 32, 8, 10]);
}
