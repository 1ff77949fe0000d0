//! The log on stderr (docs/logs.md): events, each with a level, as lines of text or JSON; and the verbose log (`-vv`)
//! in memcached's words.
//!
//! Events are `tracing`'s. A disabled event costs a look at one word. Nothing here is on the path of a request without
//! `-vv`.

use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use sha2::{Digest as _, Sha256};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{self, FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{self as lines, FmtContext};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Registry, reload};

/// Settings of `--log-level` and `--log-format`.
#[derive(Clone, Debug, Default)]
pub struct JournalSettings {
    /// The lowest severity that is logged; `None`: warnings. `-v` may lower it.
    pub level: Option<LevelFilter>,
    /// The format of lines.
    pub form: Form,
}

/// The format of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Time, level, message, `name=value`. In systemd's journal, which adds the time, a line begins with the level as a
    /// number instead.
    #[default]
    Text,
    /// An object with `timestamp`, `level`, `message` and the event's other fields.
    Json,
}

impl JournalSettings {
    /// The levels logged at this verbosity: `-v` is the same as `--log-level=info`, `-vv` as `--log-level=debug`.
    fn filter(&self, verbosity: u8) -> LevelFilter {
        let wanted = match verbosity {
            0 => LevelFilter::OFF,
            1 => LevelFilter::INFO,
            _ => LevelFilter::DEBUG,
        };
        self.level.unwrap_or(LevelFilter::WARN).max(wanted)
    }

    /// True if connections and commands are logged.
    pub(crate) fn is_verbose(&self, verbosity: u8) -> bool {
        self.filter(verbosity) >= LevelFilter::DEBUG
    }
}

/// The level of this name.
pub(crate) fn level(name: &str) -> Option<LevelFilter> {
    match name {
        "error" => Some(LevelFilter::ERROR),
        "warn" => Some(LevelFilter::WARN),
        "info" => Some(LevelFilter::INFO),
        "debug" => Some(LevelFilter::DEBUG),
        _ => None,
    }
}

/// The journal of this process.
static JOURNAL: OnceLock<Journal> = OnceLock::new();

struct Journal {
    form: Form,
    filter: reload::Handle<LevelFilter, Registry>,
}

/// Opens the journal; earlier events are lost. Call once in a process.
pub fn open(settings: &JournalSettings, verbosity: u8) {
    let (filter, handle) = reload::Layer::new(settings.filter(verbosity));
    let layer = lines::layer().with_writer(io::stderr).with_ansi(false);
    let layer = match settings.form {
        Form::Json => {
            let form = format::format().with_target(false).json().flatten_event(true);
            let form = form.with_current_span(false).with_span_list(false);
            layer.event_format(form).fmt_fields(format::JsonFields::new()).boxed()
        }
        Form::Text if is_systemds() => layer.event_format(Numbered).boxed(),
        Form::Text => layer.event_format(format::format().with_target(false)).boxed(),
    };
    let journal = Journal { form: settings.form, filter: handle };
    if JOURNAL.set(journal).is_ok() {
        // Fails only if there is another subscriber, which then gets the events.
        let _ = tracing::subscriber::set_global_default(Registry::default().with(filter).with(layer));
    }
}

/// Logs an event at level info. A person at a terminal sees it even without `-v`, unless `--log-level` was given.
pub fn tell_a_person(settings: &JournalSettings, event: impl FnOnce()) {
    match JOURNAL.get().filter(|_| settings.level.is_none() && io::stderr().is_terminal()) {
        Some(Journal { filter, .. }) => {
            let before = filter.clone_current();
            let _ = filter.modify(|level| *level = (*level).max(LevelFilter::INFO));
            event();
            let _ = before.map(|before| filter.reload(before));
        }
        None => event(),
    }
}

/// Changes what is logged from now on (the `verbosity` command).
pub(crate) fn set_verbosity(settings: &JournalSettings, verbosity: u8) {
    if let Some(journal) = JOURNAL.get() {
        let _ = journal.filter.reload(settings.filter(verbosity));
    }
}

/// Prints why the server does not start: as memcached does, or in JSON if `--log-format` asks for it.
pub fn refuse(message: &str) {
    match JOURNAL.get() {
        Some(Journal { form: Form::Json, .. }) => tracing::error!("{message}"),
        _ => {
            let _ = writeln!(io::stderr(), "{message}");
        }
    }
}

/// Logs a line in memcached's words, in one write, whatever bytes it has. Call it only if `ObserverFlags::is_verbose`.
pub(crate) fn wire(line: &[u8]) {
    if let Some(Journal { form: Form::Json, .. }) = JOURNAL.get() {
        tracing::debug!("{}", String::from_utf8_lossy(line));
    } else {
        // If stderr is closed, the error cannot be reported anywhere.
        let _ = io::stderr().lock().write_all(&[line, b"\n"].concat());
    }
}

/// True if stderr goes to systemd's journal. systemd.exec(5), `$JOURNAL_STREAM`.
fn is_systemds() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let stderr = std::fs::metadata("/proc/self/fd/2");
    stderr.is_ok_and(|stderr| stream == format!("{}:{}", stderr.dev(), stderr.ino()))
}

/// A line that begins with the level in syslog's numbers: sd-daemon(3).
struct Numbered;

impl<S, N> FormatEvent<S, N> for Numbered
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let number = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        write!(writer, "<{number}>")?;
        let form = format::format().with_target(false).without_time().with_level(false);
        form.format_event(context, writer, event)
    }
}

/// The first 16 hexadecimal digits of a key's SHA-256. The log has no keys, and who knows a key recognizes this.
pub(crate) fn key_digest(key: &[u8]) -> String {
    Sha256::digest(key).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Limits how often a recurring event is logged.
#[derive(Debug, Default)]
pub(crate) struct Rarely {
    logged_secs: AtomicU32,
    unlogged: AtomicU64,
}

impl Rarely {
    /// Counts an event. `Some`: log it now, with the number of events since it was logged last, this one included.
    pub(crate) fn happened(&self, now_secs: u32) -> Option<u64> {
        let times = self.unlogged.fetch_add(1, Relaxed) + 1;
        let logged_secs = self.logged_secs.load(Relaxed);
        if logged_secs != 0 && now_secs < logged_secs.saturating_add(RARELY_SECS) {
            return None;
        }
        // One of several threads logs it.
        self.logged_secs.compare_exchange(logged_secs, now_secs.max(1), Relaxed, Relaxed).ok()?;
        self.unlogged.fetch_sub(times, Relaxed);
        Some(times)
    }
}

/// The least time between two lines about the same event.
const RARELY_SECS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_all_the_time_is_told_once_in_a_while_and_counted() {
        let rarely = Rarely::default();
        assert_eq!(rarely.happened(0), Some(1));
        assert_eq!((rarely.happened(1), rarely.happened(RARELY_SECS)), (None, None));
        assert_eq!(rarely.happened(1 + RARELY_SECS), Some(3));
        assert_eq!(rarely.happened(1 + RARELY_SECS), None);
    }

    /// `printf key44 | sha256sum` prints the digest.
    #[test]
    fn a_key_is_recognized_with_the_usual_tools() {
        assert_eq!(key_digest(b"key44"), "287490a6e7422fe3");
    }

    #[test]
    fn the_chattier_of_both_options_counts() {
        for (level, verbosity, told) in [
            (None, 0, LevelFilter::WARN),
            (None, 1, LevelFilter::INFO),
            (None, 2, LevelFilter::DEBUG),
            (Some(LevelFilter::ERROR), 0, LevelFilter::ERROR),
            (Some(LevelFilter::ERROR), 1, LevelFilter::INFO),
            (Some(LevelFilter::DEBUG), 1, LevelFilter::DEBUG),
        ] {
            assert_eq!(JournalSettings { level, form: Form::Text }.filter(verbosity), told);
        }
    }
}
