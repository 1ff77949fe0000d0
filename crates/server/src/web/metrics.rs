//! `/metrics`, in the Prometheus text format 0.0.4: what prometheus-memcached-exporter would tell of this server, under
//! the names that dashboards know, and what larder knows beyond that.

mod larder;
mod memcached;
mod text;

use super::state::State;
use text::Text;

/// What the text is, for `Content-Type`.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics.
pub(super) fn text(state: &State) -> String {
    let mut text = Text::default();
    memcached::write(state, &mut text);
    larder::write(state, &mut text);
    text.finish()
}
