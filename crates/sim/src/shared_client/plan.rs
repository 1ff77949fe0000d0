//! What goes wrong on a connection.

use fastrand::Rng;
use larder_client::Protocol;

use crate::rng::Choose as _;

/// See [the module](self).
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) is_refused: bool,
    pub(super) is_never_open: bool,
    pub(super) request_cut: Option<usize>,
    pub(super) reply_cut: Option<usize>,
    pub(super) stall: Option<usize>,
    pub(super) trickles: bool,
    /// In percent, of replies: they come twice, after the next, far too late.
    pub(super) repeats: u32,
    pub(super) swaps: u32,
    pub(super) late: u32,
}

impl Plan {
    pub(super) fn random(rng: &mut Rng, protocol: Protocol) -> Self {
        let mut plan = Self { trickles: rng.percent(30), ..Self::default() };
        let bytes = |rng: &mut Rng| {
            let limit = 1 << rng.u32(1..12);
            Some(rng.usize(..limit))
        };
        // Nothing in the text protocol tells one `STORED` from another.
        let has_opaques = protocol != Protocol::Text;
        match rng.u32(..12) {
            0 | 1 => plan.request_cut = bytes(rng),
            2 | 3 => plan.reply_cut = bytes(rng),
            4 => plan.stall = bytes(rng),
            5 | 6 => plan.late = rng.u32(1..40),
            7 | 8 if has_opaques => plan.repeats = rng.u32(1..50),
            9 if has_opaques => plan.swaps = rng.u32(1..50),
            10 => plan.is_refused = true,
            11 => plan.is_never_open = true,
            _ => {}
        }
        plan
    }
}
