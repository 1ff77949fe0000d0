//! A server that is killed under load.

use rustix::process::Signal;

use crate::load::{Load, stop_and_compare};
use crate::server::{Client, MemoryFile};

pub(crate) fn rounds() -> u64 {
    std::env::var("LARDER_WARM_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20)
}

/// After each kill the items of each client are what its requests up to some number made of them, and that number is
/// none before the last that was answered.
#[test]
fn a_server_that_is_killed_under_load_loses_nothing_and_invents_nothing() {
    let file = MemoryFile::new();
    let start = || file.start(&["-m", "16", "-t", "3"]);
    let mut server = start();
    let mut loads = ["0", "1", "2", "3"].map(|prefix| Load::new(prefix, true));
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..rounds() {
        server = stop_and_compare(server, Signal::KILL, &mut loads, start, &mut random);
        let mut connection = Client::of(&server);
        assert_eq!(connection.stat("evictions"), 0);
        let items: usize = loads.iter().map(Load::items).sum();
        assert_eq!(connection.stat("curr_items"), items as u64);
    }
    println!("{} requests in {} rounds", loads.iter().map(Load::done).sum::<u64>(), rounds());
}
