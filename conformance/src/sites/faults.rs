//! What goes wrong between sites, and with them.

use std::thread;
use std::time::{Duration, Instant};

use super::Report;
use super::cluster::Cluster;
use super::link::Link;
use crate::Result;

/// Lets links and sites fail for so long. A site that was removed is part of the cluster again from the middle on. In
/// the last third no site dies: who starts empties its caches, and with others dying that would be all that is seen of
/// them.
pub(super) fn break_things(
    cluster: &mut Cluster<'_>,
    random: &mut fastrand::Rng,
    length: Duration,
    report: &mut Report,
) -> Result<()> {
    let start = Instant::now();
    let [middle, last_third, end] = [length / 2, length / 3 * 2, length].map(|after| start + after);
    // What comes back, and when.
    let mut down: Vec<(usize, Instant)> = Vec::new();
    let mut paused: Vec<(usize, Instant)> = Vec::new();
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(random.u64(30..500)));
        let now = Instant::now();
        for (site, _) in down.extract_if(.., |(_, until)| *until <= now) {
            cluster.start_site(site)?;
        }
        for (site, _) in paused.extract_if(.., |(_, until)| *until <= now) {
            cluster.pause(site, false)?;
        }
        if now >= middle && cluster.add_removed(random.bool())? {
            report.joins += 1;
        }
        let (site, other) = (random.usize(..cluster.sites()), random.usize(..cluster.sites()));
        let link = Link::ALL[random.usize(..Link::ALL.len())];
        let until = now + Duration::from_millis(random.u64(..1_500));
        match random.u8(..10) {
            0..4 => cluster.link(site, other).set(link),
            4..6 => cluster.set_links_of(site, link),
            6 => cluster.link(site, other).reset(),
            7 if paused.is_empty() => {
                cluster.pause(site, true)?;
                paused.push((site, until));
            }
            8.. if now < last_third => {
                cluster.kill(site)?;
                report.kills += 1;
                down.push((site, until));
            }
            _ => {}
        }
        report.faults += 1;
    }
    Ok(())
}
