//! `larder sites`: servers that hold the same data, as each of them sees the others.

mod table;
mod view;

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use larder_client::Error;
use serde_json::Value;

use self::view::View;
use crate::target::Target;
use crate::troubles::Troubles;
use crate::{Failure, output};

const NOTE: &str = "\
Exit code 0: every server knows the others, and sees every other site connected and up to date, with the right \
clock. Exit code 1: one does not, and standard error says which, and why.

With --wait it looks again until all is well, and each site has what the others had changed when it began: after that \
nothing is lost if a server that takes no changes (larder read-only on) is stopped. All sites have to be named then.

Columns: LAG is how long the last change or beat of the site took to be applied here, by the clocks of both, or how old \
it is if none has come for a while (idle sites beat once a second); BEHIND how many changes it has not confirmed; KEPT \
the files of the log that are kept for it; CONFLICTS the concurrent changes of which one was lost. \
docs/replication.md explains them.";

/// Show servers that hold the same data (--site), as each of them sees the others
#[derive(clap::Args)]
#[command(after_help = NOTE)]
pub(crate) struct Args {
    /// Servers, instead of --servers
    #[arg(value_name = "HOST", conflicts_with = "servers")]
    hosts: Vec<String>,
    /// Print an array with an object for each server
    #[arg(long)]
    json: bool,
    /// The lag up to which all is well
    #[arg(long, value_name = "SECS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    lag_max: u32,
    /// Wait so long until all is well, and each site has what the others had changed before
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    wait: Option<u32>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let hosts = args.hosts.join(",");
    let target = args.target.or((!hosts.is_empty()).then_some(&hosts[..]))?;
    let deadline = args.wait.map(|secs| Instant::now() + Duration::from_secs(secs.into()));
    // By site: its time when it was first seen.
    let mut since = BTreeMap::new();
    loop {
        let (views, mut failures) = look(&target)?;
        for view in &views {
            since.entry(view.site).or_insert(view.time_micros);
            failures.extend(view.troubles(args.lag_max).into_iter().map(Failure::Failed));
        }
        failures.extend(strangers(&views).into_iter().map(Failure::Failed));
        if args.wait.is_some() {
            failures.extend(missing(&views, &since).into_iter().map(Failure::Failed));
        }
        if failures.is_empty() || deadline.is_none_or(|deadline| Instant::now() >= deadline) {
            show(&views, args)?;
            let mut troubles = Troubles::of("sites");
            failures.into_iter().for_each(|failure| troubles.add(failure));
            return troubles.end();
        }
        sleep(PAUSE);
    }
}

/// What each server says, and why some do not.
fn look(target: &Target) -> Result<(Vec<View>, Vec<Failure>), Failure> {
    let (mut views, mut failures) = (Vec::new(), Vec::new());
    for (address, answer) in target.client()?.stats("replication") {
        match answer {
            Ok(stats) => views.push(View::of(address.to_string(), &stats)),
            Err(Error::Refused { .. }) => {
                failures.push(Failure::Failed(format!("{address}: it is not one of several sites (--site)")));
            }
            Err(error) => failures.push(Failure::of(&address, &error)),
        }
    }
    Ok((views, failures))
}

/// Servers that do not know each other, or cannot be told apart. A server does not miss a site of which nobody has told
/// it.
fn strangers(views: &[View]) -> Vec<String> {
    let mut strangers = Vec::new();
    for (nth, view) in views.iter().enumerate() {
        for (other_nth, other) in views.iter().enumerate().filter(|(other_nth, _)| *other_nth != nth) {
            let (server, site) = (&view.server, other.site);
            if site == view.site {
                if nth < other_nth {
                    strangers.push(format!(
                        "{server}, {}: one server, or two of site {site}: give each its own --site",
                        other.server
                    ));
                }
            } else if !view.may_know(site) {
                strangers.push(format!(
                    "{server}: it does not know site {site}, {}: name it there (--peer, --peers-file)",
                    other.server
                ));
            }
        }
    }
    strangers
}

/// What sites do not have yet of what others had changed by then.
fn missing(views: &[View], since: &BTreeMap<u8, u64>) -> Vec<String> {
    let mut missing = Vec::new();
    for view in views {
        for (other, figures) in &view.sites {
            let applied_micros = figures.number("applied_us").unwrap_or_default();
            match since.get(other) {
                None => missing.push(format!("{}: site {other} is not among the servers", view.server)),
                Some(micros) if applied_micros < *micros => {
                    missing.push(format!("{}: it has not all changes of site {other} yet", view.server));
                }
                Some(_) => {}
            }
        }
    }
    missing
}

fn show(views: &[View], args: &Args) -> Result<(), Failure> {
    if args.json {
        return output::write_json(&Value::Array(views.iter().map(|view| view.json(args.lag_max)).collect()));
    }
    output::write(|out| {
        views.iter().try_for_each(|view| table::write(out, view, args.lag_max)).map_err(Failure::of_output)
    })
}

const PAUSE: Duration = Duration::from_millis(200);
