//! What a site knows of the other sites: how far it has got in their logs, and what all of them have.
//!
//! Each site writes a [`Beat`] into its log at times. Its *clock* promises that what follows is above it; its *stable*
//! version says that the site has every change of every site up to there. The lowest of all sites' stable versions is
//! the *horizon*: nobody has, sends or builds upon anything older, but the result of all of it. So a deletion at or
//! below the horizon may be forgotten, and never comes back.
//!
//! A site that was silent for too long holds the horizon, and with it every deletion. So it is put out: the horizon
//! goes on without it. What it has may then have been deleted everywhere, and nobody would know. So nobody listens to
//! it until it has taken a copy, and dropped what the copy does not have and the horizon had passed. The same goes for
//! a site that was restored from a backup. Only sites that together are a majority put a silent one out, or two halves
//! would put each other out.
//!
//! Everything here follows from entries of the site's own log ([`Position`] and [`Beat`]), so a restart knows as much
//! as what is durable. Callers pass on what is durable only.

use std::collections::BTreeMap;

use crate::entry::Beat;
use crate::link::LogExtent;
use crate::version::version_at;
use crate::wire::CopyReason;

/// How long a site may be silent, by default: a week.
pub const SILENCE_MICROS_DEFAULT: u64 = 7 * 86_400 * 1_000_000;

/// A site is heard if something of it arrived so recently: each end of a connection speaks every second.
const HEARD_MICROS: u64 = 60_000_000;

/// A position in a site's log: up to which sequence of which incarnation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Of the log; 0: none. A log gets a new one when it is created, and when it is restored from a backup.
    pub incarnation: u64,
    /// Run of the log's site that gave this cursor, see [`Lineage`](crate::lineage::Lineage); 0: it was not known then.
    pub run: u64,
    /// All entries up to this sequence are known.
    pub sequence: u64,
}

/// What another site is to this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// The horizon waits for it, and its log is pulled.
    #[default]
    In,
    /// It takes a copy: the horizon waits for it already, its log is not pulled yet.
    Joining,
    /// It was restored from a backup, and needs a copy.
    Restored,
    /// It was silent for too long, or is back after it was removed, and needs a copy.
    Silent,
    /// It is no longer part of the cluster. If it comes back, it needs a copy.
    Removed,
}

impl Standing {
    /// True if the site needs a copy, and the log is not kept for it.
    pub fn is_out(self) -> bool {
        matches!(self, Self::Restored | Self::Silent | Self::Removed)
    }
}

/// Whether a copy of another site may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Yes.
    Full,
    /// Yes, once this position is durable: each of two sites wants the other one to take a copy first, and this one
    /// yields.
    Yielded(Position),
    /// Not yet: the other site has to take a copy first.
    None,
}

/// What is kept of another site: one entry of the own log, which replaces the earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The other site.
    pub site: u8,
    /// What it is to us.
    pub standing: Standing,
    /// The incarnation that it had when it was last let in; 0: it was never here.
    pub incarnation: u64,
    /// How much of its log is applied.
    pub cursor: Cursor,
    /// Its last beat in that.
    pub beat: Beat,
    /// The part of this site's log that the other had durably when this was written.
    pub confirmed: Cursor,
}

impl Position {
    /// What is left of a position when the store that has it is restored from a backup. Who was out then is not known
    /// to be out now, and now it is this site that needs a copy.
    pub fn restored(self) -> Self {
        let standing = if self.standing == Standing::Removed { Standing::Removed } else { Standing::In };
        Self { standing, ..self }
    }

    /// What another site's copy says of this one's log, if that is further: a state that includes the copy includes
    /// what the other site had applied. The first beat comes from the log itself: [`Members::has_heard_all`] is said of
    /// beats that were made when this site was counted.
    pub fn learn(self, theirs: Self) -> Option<Self> {
        let (our, their) = (self.cursor, theirs.cursor);
        let is_new = our.incarnation == 0;
        let is_further = is_new || (our.incarnation == their.incarnation && our.sequence < their.sequence);
        let beat = if is_new { self.beat } else { theirs.beat };
        (is_further && their.incarnation != 0).then_some(Self { cursor: their, beat, ..self })
    }
}

/// All sites of a cluster, seen from one of them.
#[derive(Clone, Debug)]
pub struct Members {
    site: u8,
    /// The last one in the own log that is durable.
    beat: Beat,
    others: BTreeMap<u8, Member>,
}

#[derive(Clone, Debug)]
struct Member {
    position: Position,
    /// When anything of it arrived last, on a clock that is not set; or since when it might have.
    heard_micros: u64,
    /// Something did arrive.
    is_heard: bool,
    /// What it has of our log, durably.
    confirmed: Cursor,
    /// The copy that it takes, or has begun to take.
    copy: Option<CopyExtent>,
}

/// What a copy is of. All of it is as it was when the copy began, also if the copy was interrupted since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyExtent {
    /// The copy, and the log behind this sequence, are everything.
    pub start: u64,
    /// What the copy does not have, up to this version, is gone; 0: nothing follows from that.
    pub horizon: u64,
    /// How far the copied site was in the logs of the others.
    pub others: Vec<Position>,
}

impl Members {
    /// The members as the own log has them: its last beat, and the last position of each other site.
    pub fn new(site: u8, beat: Beat, positions: impl IntoIterator<Item = Position>, now_micros: u64) -> Self {
        let mut members = Self { site, beat, others: BTreeMap::new() };
        positions.into_iter().for_each(|position| members.note(position, now_micros));
        members
    }

    /// A site was configured. It holds the horizon from now on; one that was removed before is out, since what it has
    /// may have been deleted and forgotten. Returns what the log needs, if it is new.
    pub fn add(&mut self, site: u8, now_micros: u64) -> Option<Position> {
        if site == self.site || site == 0 {
            return None;
        }
        let position = match self.position(site) {
            None => Position { site, ..Position::default() },
            Some(known) if known.standing == Standing::Removed => {
                Position { standing: Standing::Silent, ..known }
            }
            Some(_) => return None,
        };
        self.note(position, now_micros);
        Some(position)
    }

    /// A site is no longer part of the cluster: nobody waits for it any more. The position to append, if it was.
    pub fn removed(&self, site: u8) -> Option<Position> {
        let position = self.position(site).filter(|position| position.standing != Standing::Removed)?;
        Some(Position { standing: Standing::Removed, ..position })
    }

    /// A position is durable in the own log.
    pub fn note(&mut self, position: Position, now_micros: u64) {
        let member = self.others.entry(position.site).or_insert_with(|| Member {
            position: Position { site: position.site, ..Position::default() },
            heard_micros: now_micros,
            is_heard: false,
            confirmed: Cursor::default(),
            copy: None,
        });
        if position.standing != member.position.standing {
            member.copy = None;
        }
        // A site that is let in has the bound's time to be heard.
        let is_let_in = !position.standing.is_out() && position.standing != member.position.standing;
        if is_let_in {
            member.heard_micros = now_micros;
        }
        if position.incarnation != member.position.incarnation {
            member.confirmed = Cursor::default();
        }
        // A confirmation that came since the start is never older.
        if member.confirmed == Cursor::default() {
            member.confirmed = position.confirmed;
        }
        member.position = position;
    }

    /// This site was put out by another one, or has just been let in again: it has not heard the others for as long as
    /// it was away, and that says nothing of them. It counts anew.
    pub fn count_anew(&mut self, now_micros: u64) {
        self.others.values_mut().for_each(|member| {
            (member.heard_micros, member.is_heard) = (now_micros, false);
        });
    }

    /// Something arrived from a site that lets this one pull its log.
    pub fn note_heard(&mut self, site: u8, now_micros: u64) {
        if let Some(member) = self.others.get_mut(&site) {
            (member.heard_micros, member.is_heard) = (now_micros, true);
        }
    }

    /// For how long nothing has arrived of a site, at least. `None`: it is out, or no member.
    pub fn unheard_micros(&self, site: u8, now_micros: u64) -> Option<u64> {
        let member = self.others.get(&site).filter(|member| !member.position.standing.is_out())?;
        Some(now_micros.saturating_sub(member.heard_micros))
    }

    /// A beat is durable in the own log.
    pub fn note_own_beat(&mut self, beat: Beat) {
        self.beat = beat;
    }

    /// Notes that a site, whose log has this incarnation, has our log durably up to this cursor.
    pub fn note_confirmed(&mut self, site: u8, incarnation: u64, cursor: Cursor) {
        let member = self.others.get_mut(&site);
        if let Some(member) = member.filter(|member| member.position.incarnation == incarnation)
            && (cursor.incarnation != member.confirmed.incarnation
                || cursor.sequence > member.confirmed.sequence)
        {
            member.confirmed = cursor;
        }
    }

    /// A position as it is to be kept: with the cursor that its site has confirmed by now.
    pub fn with_confirmed(&self, position: Position) -> Position {
        let member = self.others.get(&position.site);
        let member = member.filter(|member| member.position.incarnation == position.incarnation);
        Position { confirmed: member.map_or_else(Cursor::default, |member| member.confirmed), ..position }
    }

    /// How far another site has this one's log.
    pub fn confirmed_by(&self, site: u8) -> Cursor {
        self.others.get(&site).map_or_else(Cursor::default, |member| member.confirmed)
    }

    /// The number of this site.
    pub fn site(&self) -> u8 {
        self.site
    }

    /// What is known of another site.
    pub fn position(&self, site: u8) -> Option<Position> {
        self.others.get(&site).map(|member| member.position)
    }

    /// What is known of all other sites of the cluster.
    pub fn positions(&self) -> impl Iterator<Item = Position> {
        self.present().map(|member| member.position)
    }

    /// What is gone up to here may be forgotten: every site knows it. Never falls. Of the own log, nothing that
    /// [`confirmed`](Self::confirmed) has not reached.
    pub fn horizon(&self) -> u64 {
        self.beat.horizon
    }

    /// No version at or below it is given any more.
    pub fn clock(&self) -> u64 {
        self.beat.clock
    }

    /// The highest horizon that this site has heard of. No version at or below it is given: what is older may be
    /// forgotten at one site, and known at another.
    pub fn highest_horizon(&self) -> u64 {
        let horizons = self.others.values().map(|member| member.position.beat.horizon);
        horizons.fold(self.beat.horizon, u64::max)
    }

    /// True if this site has a beat of each other one. A site that is added to others, which had a horizon before they
    /// counted it, takes no writes until then: it would give versions below their horizons.
    pub fn has_heard_all(&self) -> bool {
        self.positions().all(|position| position.beat.clock != 0)
    }

    /// The beat to append now. The caller gives no version up to its clock from here on.
    pub fn next_beat(&self, unix_micros: u64) -> Beat {
        let clock = version_at(unix_micros, self.site).max(self.beat.clock);
        let beats = || self.holding().map(|member| member.position.beat);
        let stable = beats().map(|beat| beat.clock).fold(clock, u64::min);
        let horizon = beats().map(|beat| beat.stable).fold(self.beat.stable, u64::min);
        Beat { clock, stable, horizon: horizon.max(self.beat.horizon) }
    }

    /// Sequence up to which every counted site has this site's log durably.
    pub fn confirmed(&self) -> u64 {
        self.counted().map(|member| member.confirmed.sequence).min().unwrap_or(u64::MAX)
    }

    /// The sites that have to be put out now: silent for longer than the bound, while this site hears a majority, or
    /// half of all with the lowest number among them. The caller appends the positions, and notes them when they are
    /// durable.
    pub fn silent(&self, now_micros: u64, bound_micros: u64) -> Vec<Position> {
        let silent_micros = |member: &Member| now_micros.saturating_sub(member.heard_micros);
        // Who hears nobody any more must not count as a majority with those whom it puts out.
        let heard_micros = HEARD_MICROS.min(bound_micros);
        let is_heard = |member: &&Member| member.is_heard && silent_micros(member) <= heard_micros;
        let heard = self.present().filter(is_heard).count() + 1;
        let all = self.present().count() + 1;
        let lowest = self.present().next();
        let hears_lowest = lowest.is_none_or(|lowest| self.site < lowest.position.site || is_heard(&lowest));
        if heard * 2 < all || (heard * 2 == all && !hears_lowest) {
            return Vec::new();
        }
        let silent = self.holding().filter(|member| silent_micros(member) > bound_micros);
        silent.map(|member| Position { standing: Standing::Silent, ..member.position }).collect()
    }

    /// A site introduces itself with the incarnation of its log. The position to append if that changes what it is to
    /// us: it was restored from a backup, so it may have what everybody has forgotten, and is out.
    pub fn introduced(&self, site: u8, incarnation: u64) -> Option<Position> {
        let known = self.position(site)?;
        // The site may have lost entries that it confirmed under its earlier incarnation.
        let position = Position { confirmed: Cursor::default(), ..known };
        match position.incarnation {
            // Only an operator lets it in again.
            _ if position.standing == Standing::Removed => None,
            0 => Some(Position { incarnation, ..position }),
            known if known == incarnation => None,
            _ if position.standing == Standing::Silent => Some(Position { incarnation, ..position }),
            _ => Some(Position { incarnation, standing: Standing::Restored, ..position }),
        }
    }

    /// Whether a copy of another site may be taken, which it says is needed. What it has may have been deleted
    /// everywhere if it is not in itself. Of two that want each other to take a copy first, the one that a majority
    /// has found silent yields to the one that was restored; of equals the higher one yields.
    pub fn trust(&self, site: u8, reason: CopyReason) -> Trust {
        let Some(position) = self.position(site) else { return Trust::None };
        let yields = match (position.standing, reason) {
            (Standing::In, _) => return Trust::Full,
            (Standing::Restored | Standing::Joining, CopyReason::Silent) => true,
            (Standing::Restored | Standing::Joining, CopyReason::Restored) => site < self.site,
            (Standing::Silent, CopyReason::Silent) => site < self.site,
            _ => false,
        };
        if yields { Trust::Yielded(Position { standing: Standing::In, ..position }) } else { Trust::None }
    }

    /// The position to append before a site that is out gets a copy: from here on it holds the horizon.
    pub fn joining(&self, site: u8) -> Option<Position> {
        let position =
            self.positions().find(|position| position.site == site && position.standing.is_out())?;
        Some(Position { standing: Standing::Joining, ..position })
    }

    /// What a copy for this site is of, once what [`joining`](Self::joining) says is durable, and whether it goes on
    /// where one with this start was interrupted: only if the site's standing has been the same since, and the log
    /// still reaches back.
    pub fn begin_copy(&mut self, site: u8, interrupted: Option<u64>, log: LogExtent) -> (CopyExtent, bool) {
        let others = self.positions().filter(|position| position.cursor.incarnation != 0).collect();
        let horizon = self.beat.horizon;
        let Some(member) = self.others.get_mut(&site) else { return (CopyExtent::default(), false) };
        let known = member.copy.as_ref();
        if let Some(copy) = known.filter(|copy| Some(copy.start) == interrupted && copy.start >= log.start) {
            return (copy.clone(), true);
        }
        let horizon = if member.position.standing == Standing::In { 0 } else { horizon };
        let copy = CopyExtent { start: log.durable, horizon, others };
        member.copy = Some(copy.clone());
        (copy, false)
    }

    /// A copy for this site was begun by an earlier process, and the site's standing has been the same since.
    pub fn resume_copy(&mut self, site: u8, copy: CopyExtent) {
        if let Some(member) = self.others.get_mut(&site) {
            member.copy = Some(copy);
        }
    }

    /// The position to append when a site has taken its copy whole.
    pub fn joined(&self, site: u8) -> Option<Position> {
        let position = self.position(site).filter(|position| position.standing == Standing::Joining)?;
        Some(Position { standing: Standing::In, ..position })
    }

    /// Sites that were not removed.
    fn present(&self) -> impl Iterator<Item = &Member> {
        self.others.values().filter(|member| member.position.standing != Standing::Removed)
    }

    /// Sites that hold the horizon. A restored site does so until it has been silent for too long: it deletes what a
    /// copy lacks up to the copy's horizon, which must not include changes that its clients have made meanwhile.
    fn holding(&self) -> impl Iterator<Item = &Member> {
        let is_let_go = |standing| matches!(standing, Standing::Silent | Standing::Removed);
        self.others.values().filter(move |member| !is_let_go(member.position.standing))
    }

    /// Sites that the log is kept for.
    fn counted(&self) -> impl Iterator<Item = &Member> {
        self.others.values().filter(|member| !member.position.standing.is_out())
    }
}

#[cfg(test)]
mod tests;
