//! Sites that come and go while the others serve: `--peers-file`, SIGHUP.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use larder_conformance::server::eventually;
use rustix::process::Signal;

use crate::client::Client;
use crate::site::{Cluster, PEERS_FILE};
use crate::{converge, keys};

fn reload(cluster: &Cluster, site: usize, sites: &[usize]) {
    cluster.name_peers(site, sites);
    cluster.server(site).signal(Signal::HUP).expect("it runs");
}

/// Caches and homes hear of new peers as the logs do.
const NAMESPACES: &str = r#"
[default]
keep = "store"
[namespace."page:"]
keep = "cache"
replicate = "invalidations"
[namespace."home:"]
keep = "store"
replicate = true
rmw = "home"
home = 3
"#;

fn horizon(client: &mut Client) -> u64 {
    client.stat("horizon_time")
}

/// A third site is added to two that serve, and removed again: nobody restarts, nothing is lost, nobody waits for it.
#[test]
fn sites_are_added_and_removed_while_the_others_serve() {
    let mut cluster = Cluster::build(2, 3, "log", false, &[PEERS_FILE], NAMESPACES);
    let keys = keys(2000);
    let mut one = cluster.client(0);
    keys.iter().for_each(|key| assert_eq!(one.ask(&format!("set {key} 0 0 3\r\nold\r\n")), "STORED"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for site in 0..2 {
            let (mut client, keys, is_over) = (cluster.client(site), &keys, &is_over);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(site as u64);
                while !is_over.load(SeqCst) {
                    client.change_at_random(&keys[..1000], &mut rng, false);
                }
            });
        }
        // A file with an error changes nothing.
        cluster.folder().write("peers0", "3 nonsense\n");
        cluster.server(0).signal(Signal::HUP).expect("it runs");
        (0..2).for_each(|site| reload(&cluster, site, &[0, 1, 2]));
        eventually(|| cluster.client(0).figures().contains("STAT 3:standing in"));
        eventually(|| cluster.client(1).figures().contains("STAT 3:standing in"));
        cluster.name_peers(2, &[0, 1, 2]);
        let joined = cluster.start_site(2);
        let mut third = Client::of(&joined);
        eventually(|| third.look_up(&keys[1000..]).iter().flatten().count() == 1000);
        is_over.store(true, SeqCst);
        cluster.add(joined);
    });
    let [mut one, mut two, mut third] = [0, 1, 2].map(|site| cluster.client(site));
    eventually(|| third.takes_changes());
    assert_eq!(third.ask("set mark3 0 0 1\r\nx\r\n"), "STORED");
    eventually(|| one.ask("mg mark3\r\n") == "HD" && two.ask("mg mark3\r\n") == "HD");
    for client in [&mut one, &mut two] {
        eventually(|| client.figures().contains("STAT 3:home_connected yes"));
        assert_eq!(client.ask("ma home:n N0\r\n"), "HD");
        eventually(|| client.figures().matches(":caches_connected yes").count() == 2);
    }
    assert_eq!(third.ask("mg home:n v\r\n"), "VA 1");
    assert_eq!(third.line(), "1");
    assert_eq!(one.ask("set page:a 0 0 1\r\nx\r\n"), "STORED");
    assert_eq!(third.ask("delete page:a\r\n"), "NOT_FOUND");
    eventually(|| one.ask("mg page:a\r\n") == "EN");
    converge(&mut one, &mut two, &keys);
    converge(&mut one, &mut third, &keys);
    eventually(|| horizon(&mut one) > 0 && horizon(&mut two) > 0);
    // It is gone for good, and holds the horizon until the others are told.
    cluster.kill(2);
    let held = horizon(&mut one);
    std::thread::scope(|scope| {
        scope.spawn(|| reload(&cluster, 0, &[0, 1]));
        scope.spawn(|| reload(&cluster, 1, &[0, 1]));
    });
    eventually(|| horizon(&mut one) > held + 2 && horizon(&mut two) > held + 2);
    for client in [&mut one, &mut two] {
        let figures = client.figures();
        assert!(figures.contains("STAT 3:standing removed"), "{figures}");
        assert!(figures.contains("STAT 3:home_connected no"), "{figures}");
        assert_eq!(figures.matches(":caches_connected").count(), 1, "{figures}");
    }
    assert_eq!(one.ask("delete mark3\r\n"), "DELETED");
    eventually(|| two.ask("mg mark3\r\n") == "EN");
    eventually(|| horizon(&mut one) > held + 4);
    // Back with its old store: what was deleted, and may be forgotten, stays so.
    cluster.start_again(2);
    (0..2).for_each(|site| reload(&cluster, site, &[0, 1, 2]));
    let mut third = cluster.client(2);
    for client in [&mut one, &mut two] {
        eventually(|| client.figures().contains("STAT 3:standing in"));
    }
    eventually(|| third.ask("mg mark3\r\n") == "EN");
    assert_eq!(third.ask("set mark4 0 0 1\r\nx\r\n"), "STORED");
    eventually(|| one.ask("mg mark4\r\n") == "HD" && two.ask("mg mark4\r\n") == "HD");
    assert_eq!((one.ask("mg mark3\r\n"), two.ask("mg mark3\r\n")), ("EN".into(), "EN".into()));
    converge(&mut one, &mut two, &keys);
    converge(&mut one, &mut third, &keys);
}
