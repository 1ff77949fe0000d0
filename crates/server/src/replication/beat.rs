//! Once a second: how far this site is, and what it keeps for the others.

use std::time::Duration;

use larder_replication::members::{Members, Position};

use super::Site;
use crate::observe::watch::{Event, SiteState};
use crate::shared::Shared;

/// Beats until the site stops.
pub(super) fn run(shared: &Shared, site: &Site) {
    while !site.is_stopping() {
        beat(shared, site);
        std::thread::park_timeout(INTERVAL);
    }
}

fn beat(shared: &Shared, site: &Site) {
    let now = site.now();
    site.forget_lost_standings();
    let silent = |members: &Members| members.silent(now.micros, site.silence_micros_max);
    let (beat, all_silent) = {
        let members = site.members();
        (members.next_beat(now.unix_micros), silent(&members))
    };
    for Position { site: number, .. } in all_silent {
        let changed = site.change_standing(number, |members| {
            silent(members).into_iter().find(|position| position.site == number)
        });
        // What changes just now is looked at again in a second.
        if let Ok(Some(_)) = changed {
            tracing::warn!(site = number, "the site was silent for too long, and has to take a copy");
            shared.tell_of_sites(&Event::Site { site: number, state: SiteState::Silent, peer: "" });
        }
    }
    // Every change that has its version by now, and may be below the beat's clock, is before the beat in the log.
    site.journal.raise_replicated_versions(beat.clock);
    let marks: Vec<_> =
        shared.namespaces.engines().iter().map(|engine| (engine, engine.mark_guards())).collect();
    let mut tries = 0;
    while !marks.iter().all(|(engine, mark)| engine.have_guards_ended(*mark)) {
        tries += 1;
        if tries > TRIES_MAX || site.is_stopping() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    site.keep_beat(beat);
    site.journal.note_arrived(site.horizon());
    if let Err(error) = site.retain() {
        tracing::error!("the store cannot keep what other sites need: {error}");
    }
}

const INTERVAL: Duration = Duration::from_secs(1);
/// A request that takes longer skips a beat.
const TRIES_MAX: u32 = 2000;
const PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use larder_replication::members::Standing;
    use larder_store::commit::Refusal;
    use larder_store::{MemoryFaults, MemoryStore};

    use super::super::site::tests::{commit, site};
    use super::*;

    /// The store is full when another site is put out, and that one is back before there is room: it is pulled from.
    #[test]
    fn a_site_is_not_out_if_the_note_of_that_is_lost() {
        let faults = MemoryFaults { fail_append: Some(3), ..MemoryFaults::default() };
        let (shared, site, mut committer) = site(MemoryStore::with_faults(faults));
        commit(&mut committer);
        let added = site.members().add(2, 0).expect("it is new");
        site.keep_standing(added);
        commit(&mut committer);
        let silent =
            |members: &Members| Some(Position { standing: Standing::Silent, ..members.position(2)? });
        let changed = site.change_standing(2, silent).expect("nothing is on its way");
        assert!(changed.is_some());
        commit(&mut committer);
        assert_eq!(site.journal.refusal(), Some(Refusal::Full));
        beat(&shared, &site);
        let standings =
            [site.live(2), site.members().position(2)].map(|known| known.map(|known| known.standing));
        assert_eq!(standings, [Some(Standing::In); 2]);
    }
}
