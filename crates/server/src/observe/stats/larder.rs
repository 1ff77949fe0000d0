//! `stats larder`: larder's own lines about the whole server. They are not in `stats`, whose lines some tools count.

use super::Lines;
use crate::shared::Shared;

pub(super) fn report(shared: &Shared, lines: &mut Lines) {
    lines.add("larder_memory_used_bytes", shared.namespaces.stats().memory_used_bytes);
    lines.add("larder_read_only", u8::from(shared.is_read_only()));
    lines.add("larder_refused_read_only", shared.totals().refused_maintenance);
    lines.add("larder_version", crate::LARDER_VERSION);
}
