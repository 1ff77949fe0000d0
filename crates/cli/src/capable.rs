//! `larder capable`: tries each feature of a memcached-compatible server.
//!
//! | module | contents |
//! |---|---|
//! | [`script`] | features that a few lines and their replies show |
//! | [`binary`] | the binary protocol |
//! | [`ways`] | UDP, TLS, logins, sizes of values |

mod binary;
mod script;
mod ways;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use larder_client::Address;
use serde_json::{Map, Value, json};

use crate::target::Target;
use crate::{Failure, output};

const AFTER_HELP: &str = "\
Stores keys that begin with `larder-capable-`, for a minute at most, and deletes them; changes nothing else. With --flush it also
tries flush_all, which makes the server forget everything. Exit code 0, whatever the server can do; 69 if it does not answer.";

/// Tell what a memcached-compatible server can and cannot do
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The server, instead of --servers
    host: Option<String>,
    /// Only features whose group or name contains this
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Try flush_all as well: THE SERVER FORGETS EVERYTHING
    #[arg(long)]
    flush: bool,
    /// An object: groups of features, each with `can` and what was answered
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// The server under test.
struct Subject {
    target: Target,
    address: Address,
    /// The prefix of every key.
    prefix: String,
}

/// The result of a try.
struct Finding {
    can: bool,
    /// The reply, or a measurement. Empty if there is nothing to add.
    note: String,
}

/// A feature of a server.
struct Feature {
    group: &'static str,
    name: String,
    attempt: Attempt,
}

type Attempt = Box<dyn Fn(&Subject) -> Result<Finding, Failure>>;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let target = args.target.or(args.host.as_deref())?;
    let address = target.only_server()?.clone();
    // If no server answers, all features would seem missing.
    crate::wire::Wire::open(&target, &address)?;
    let prefix = format!("larder-capable-{}-", std::process::id());
    let subject = Subject { target, address, prefix };
    let mut features = script::features(args.flush);
    features.extend(binary::features());
    features.extend(ways::features());
    features.retain(|feature| {
        args.grep.as_ref().is_none_or(|part| feature.group.contains(part) || feature.name.contains(part))
    });

    let mut object = Map::new();
    let mut group = "";
    for feature in &features {
        let finding = match (feature.attempt)(&subject) {
            Ok(finding) => finding,
            // It disconnected or does not answer: the feature is missing.
            Err(failure) => Finding { can: false, note: failure.message().to_owned() },
        };
        if args.json {
            let entry = object.entry(feature.group).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(entry) = entry {
                entry.insert(feature.name.clone(), json!({"can": finding.can, "note": finding.note}));
            }
            continue;
        }
        output::write(|out| {
            if group != feature.group {
                writeln!(out, "{}{}", if group.is_empty() { "" } else { "\n" }, feature.group)
                    .map_err(Failure::of_output)?;
            }
            let word = if finding.can { "yes" } else { "no " };
            let line = format!("  {word} {:<32} {}", feature.name, finding.note);
            writeln!(out, "{}", line.trim_end()).map_err(Failure::of_output)
        })?;
        group = feature.group;
    }
    if args.json {
        output::write_json(&Value::Object(object))?;
    }
    Ok(())
}

impl Finding {
    fn yes(note: impl Into<String>) -> Self {
        Self { can: true, note: note.into() }
    }

    fn no(note: impl Into<String>) -> Self {
        Self { can: false, note: note.into() }
    }
}

impl Feature {
    fn new(
        group: &'static str,
        name: impl Into<String>,
        attempt: impl Fn(&Subject) -> Result<Finding, Failure> + 'static,
    ) -> Self {
        Self { group, name: name.into(), attempt: Box::new(attempt) }
    }
}

impl Subject {
    /// A key that no other try uses.
    fn key(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        format!("{}{}", self.prefix, NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Deletes a key. If that fails, the key expires within a minute.
    fn forget(&self, key: &str) {
        if let Ok(mut client) = self.target.client() {
            let _ = client.delete(key);
        }
    }

    /// How long to wait for a reply that may never come.
    fn patience(&self) -> Duration {
        self.target.timeout().min(PATIENCE_MAX)
    }
}

/// Longer than any server takes for a small reply.
const PATIENCE_MAX: Duration = Duration::from_millis(500);
