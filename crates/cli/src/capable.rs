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
use crate::{Failure, output, parallel};

const AFTER_HELP: &str = "\
Stores keys that begin with `larder-capable-`, for a minute at most, and deletes them; changes nothing else. With \
--flush it also tries flush_all, which deletes all items. Exit code 0, whatever the server can do; 69 if it does not \
answer.";

/// Try each feature of a server
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The server, instead of --servers
    #[arg(conflicts_with = "servers")]
    host: Option<String>,
    /// Only features whose group or name contains this
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Try flush_all as well: DELETES ALL ITEMS
    #[arg(long)]
    flush: bool,
    /// Print an object: groups of features, each with `can` and the reply
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

type Attempt = Box<dyn Fn(&Subject) -> Result<Finding, Failure> + Send + Sync>;

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
    for (number, group) in features.chunk_by(|one, next| one.group == next.group).enumerate() {
        let name = group[0].group;
        if !args.json {
            let begin = if number == 0 { "" } else { "\n" };
            output::write(|out| writeln!(out, "{begin}{name}").map_err(Failure::of_output))?;
        }
        let at_once = if ALONE.contains(&name) { 1 } else { AT_ONCE };
        for features in group.chunks(at_once) {
            for (feature, finding) in features.iter().zip(find(features, &subject)) {
                if args.json {
                    let entry = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
                    if let Value::Object(entry) = entry {
                        let finding = json!({"can": finding.can, "note": finding.note});
                        entry.insert(feature.name.clone(), finding);
                    }
                    continue;
                }
                let word = if finding.can { "yes" } else { "no " };
                let line = format!("  {word} {:<32} {}", feature.name, finding.note);
                output::write(|out| writeln!(out, "{}", line.trim_end()).map_err(Failure::of_output))?;
            }
        }
    }
    if args.json {
        output::write_json(&Value::Object(object))?;
    }
    Ok(())
}

/// Tries features, each on its own connection and with its own keys, at the same time: some wait until a key expires.
fn find(features: &[Feature], subject: &Subject) -> Vec<Finding> {
    // If it disconnects or does not answer, the feature is missing.
    let attempt = |feature: &Feature| match (feature.attempt)(subject) {
        Ok(finding) => finding,
        Err(failure) => Finding::no(subject.without_address(failure.message())),
    };
    parallel::map(features, attempt)
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
        attempt: impl Fn(&Subject) -> Result<Finding, Failure> + Send + Sync + 'static,
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

    /// Strips the server's address from a message, so that reports of equally capable servers can be compared.
    fn without_address<'m>(&self, message: &'m str) -> &'m str {
        let rest = message.strip_prefix(&self.address.to_string());
        rest.and_then(|rest| rest.strip_prefix(": ")).unwrap_or(message)
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

/// Connections at once.
const AT_ONCE: usize = 8;
/// Groups whose features are tried one by one: a server makes one dump at a time, and large values take memory.
const ALONE: [&str; 2] = ["administration", "large values"];
/// Longer than any server takes for a small reply.
const PATIENCE_MAX: Duration = Duration::from_millis(500);
