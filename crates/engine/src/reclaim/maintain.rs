//! The background step.

use crate::engine::Engine;
use crate::handle::{Guard, Handle};
use crate::log::large_pages::LargePages;
use crate::reclaim::pressure::Pressure;
use crate::reclaim::victim::ReclaimScope;
use crate::request::Now;

/// Giving a segment back to the system takes as long as examining this many items.
const SHRINK_ITEMS: usize = 256;

impl Handle {
    /// A background step, for a thread that has the time. Removes expired and flushed items, keeps free segments ready,
    /// compacts. Examines about `items_max` items. True: there is more to do at once.
    pub fn maintain(&mut self, now: Now, items_max: usize) -> bool {
        self.engine.tick(now);
        self.engine.arena.drain_limbo_up_to(items_max);
        self.engine.drain_limbo_buckets(items_max);
        let is_shrinking = self.engine.arena.shrink(items_max / SHRINK_ITEMS);
        let is_moving = self.engine.move_to_large_page(now);
        let guard = self.pin(now);
        let bytes_max = items_max * 64;
        let mut done = 0;
        if guard.engine().is_flush_settled(now) {
            done = guard.reclaim_some(bytes_max, ReclaimScope::DeadOnly);
        }
        let is_revoking = guard.revoke_for_limit(items_max / SHRINK_ITEMS);
        while guard.engine().is_under(Pressure::Short) && done < bytes_max {
            let step = guard.reclaim_some(bytes_max - done, ReclaimScope::Any);
            if step == 0 {
                break;
            }
            done += step;
        }
        let walked = guard.crawl(items_max);
        let is_searching = guard.engine().over_provisioning.note_searched(walked);
        guard.report_items(0);
        drop(guard);
        self.engine.arena.drain_limbo_up_to(items_max);
        done >= bytes_max || is_shrinking || is_revoking || is_moving || is_searching
    }
}

impl Guard<'_> {
    /// Revokes up to `count_max` uploads that stopped arriving instead of evicting items, or if the limit was lowered.
    /// True: perhaps there are more.
    fn revoke_for_limit(&self, count_max: usize) -> bool {
        let arena = &self.engine().arena;
        let is_exceeded = arena.budget.is_exceeded();
        if is_exceeded {
            // Uploads keep to their part of a lowered limit even if they are arriving.
            arena.admit_step(None, 0, 0, self.now());
        }
        let is_due = || (self.engine().evict || is_exceeded) && self.engine().is_under(Pressure::Short);
        let revoked = (0..count_max).take_while(|_| is_due() && arena.revoke_stopped_upload(self.now()));
        revoked.count() == count_max
    }
}

impl Engine {
    /// Moves one page to a large page, if another may be moved in this second. True: call again at once.
    fn move_to_large_page(&self, now: Now) -> bool {
        if self.large_pages == LargePages::Never {
            return false;
        }
        if !self.mover.may_move(now, self.arena.budget.used_bytes()) {
            return false;
        }
        let is_moved = self.index.move_to_large_page() || self.arena.move_to_large_page(&self.mover);
        if is_moved {
            self.mover.note_move(now)
        } else {
            self.mover.note_end()
        }
        is_moved
    }
}
