//! The rules of Prometheus and the dashboard of Grafana. promtool reads all their expressions and runs the tests of the
//! rules; each series that they select, and each label that they group by, must be one that a larderd exports.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use larder_conformance::Result;
use larder_conformance::folder::Folder;
use larder_conformance::server::{self, Server};
use serde_json::Value;

use super::promql::{self, Selector};
use crate::exposition::{self, Sample};
use crate::shell;

/// Checks both. Prints how many expressions there are.
pub(super) fn check() -> Result<()> {
    let packaging = shell::root().join("packaging");
    let rules = shell::root().join(RULES);
    let told = shell::output(Command::new("promtool").args(["check", "rules"]).arg(&rules))?;
    shell::output(
        Command::new("promtool").args(["test", "rules"]).arg(packaging.join("prometheus/larder.test.yml")),
    )?;
    let rules = Rules::read(&fs::read_to_string(rules)?);
    if !told.contains(&format!(" {} rules found", rules.expressions.len())) {
        return Err(
            format!("{} rules are read here, but promtool says {told}", rules.expressions.len()).into()
        );
    }
    let json = serde_json::from_str(&fs::read_to_string(packaging.join("grafana/larder.json"))?)?;
    let unbounded = unbounded_variables(&json);
    if !unbounded.is_empty() {
        return Err(format!("allValue: All of {unbounded:?} selects the series of others").into());
    }
    let dashboard = dashboard(&json);
    read_by_promtool(&dashboard)?;

    let mut known = exported()?;
    known.extend(rules.recorded.iter().map(|name| sample(name)));
    // Prometheus' own.
    known.push(sample("up"));
    let mut wrong = Vec::new();
    for expression in rules.expressions.iter().chain(&dashboard) {
        let complaints = complaints(expression, &known)?;
        wrong.extend(complaints.iter().map(|complaint| format!("{complaint} in: {expression}")));
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n").into());
    }
    println!("{} rules, {} expressions of the dashboard", rules.expressions.len(), dashboard.len());
    Ok(())
}

/// What the rules ask for, and what they add.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rules {
    expressions: Vec<String>,
    recorded: Vec<String>,
}

impl Rules {
    /// An expression stands behind `expr:`, or in the deeper lines below.
    fn read(text: &str) -> Self {
        let mut rules = Self::default();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let key = line.trim_start_matches([' ', '-']);
            let indent = line.len() - key.len();
            if let Some(name) = key.strip_prefix("record:") {
                rules.recorded.push(name.trim().to_owned());
            } else if let Some(expression) = key.strip_prefix("expr:") {
                let mut expression = expression.trim().trim_start_matches('|').to_owned();
                while let Some(deeper) = lines.next_if(|line| line.len() - line.trim_start().len() > indent) {
                    let _ = write!(expression, " {}", deeper.trim());
                }
                rules.expressions.push(expression.trim().to_owned());
            }
        }
        rules
    }
}

/// The expressions of a dashboard: of panels and annotations, and the series that variables take their values from.
fn dashboard(json: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(json, &mut found);
    found
}

fn collect(json: &Value, found: &mut Vec<String>) {
    match json {
        Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(expression) if name == "expr" => found.push(expression.to_owned()),
                    Some(variable) if name == "definition" => {
                        let values = variable.strip_prefix("label_values(").and_then(|v| v.rsplit_once(','));
                        found.extend(values.map(|(series, label)| {
                            format!("count by ({}) ({series})", label.trim_end_matches(')').trim())
                        }));
                    }
                    _ => collect(value, found),
                }
            }
        }
        _ => {}
    }
}

/// The variables of a dashboard whose "All" is a pattern (`allValue`) instead of the values that were found.
fn unbounded_variables(json: &Value) -> Vec<&str> {
    let variables = json["templating"]["list"].as_array().into_iter().flatten();
    let unbounded =
        variables.filter(|variable| variable["allValue"].as_str().is_some_and(|all| !all.is_empty()));
    unbounded.map(|variable| variable["name"].as_str().unwrap_or_default()).collect()
}

/// Lets promtool read the expressions of the dashboard, as rules.
fn read_by_promtool(dashboard: &[String]) -> Result<()> {
    let expressions = dashboard.iter().map(|expression| expression.replace("$__rate_interval", "5m"));
    let rules: Vec<_> = expressions
        .enumerate()
        .map(|(n, expr)| serde_json::json!({"record": format!("n{n}"), "expr": expr}))
        .collect();
    let groups = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]});
    let folder = Folder::create();
    // JSON is YAML, too.
    let file = folder.write("dashboard.yml", groups.to_string());
    shell::output(Command::new("promtool").args(["check", "rules"]).arg(file)).map(drop)
}

/// What is wrong with an expression.
fn complaints(expression: &str, known: &[Sample]) -> Result<Vec<String>> {
    let query = promql::query(expression)?;
    let mut complaints = Vec::new();
    let mut labels: BTreeSet<&str> = OF_TARGETS.into();
    for selector in &query.selectors {
        let selected: Vec<_> = known.iter().filter(|sample| selects(selector, sample)).collect();
        if selected.is_empty() {
            complaints.push(format!("larderd exports no {selector:?}"));
        }
        labels.extend(
            selected.iter().flat_map(|sample| &sample.labels).filter_map(|label| label.split('=').next()),
        );
    }
    let unknown = query.labels.iter().filter(|label| !labels.contains(label.as_str()));
    complaints.extend(unknown.map(|label| format!("no series has a label {label}")));
    Ok(complaints)
}

fn selects(selector: &Selector, sample: &Sample) -> bool {
    selector.name == sample.name
        && selector.matchers.iter().filter(|matcher| !OF_TARGETS.contains(&matcher.label.as_str())).all(
            |matcher| {
                let has = |label: &String| match &matcher.value {
                    Some(value) => *label == format!("{}=\"{value}\"", matcher.label),
                    None => label.split('=').next() == Some(&matcher.label),
                };
                sample.labels.iter().any(has)
            },
        )
}

fn sample(name: &str) -> Sample {
    Sample { name: name.to_owned(), labels: Vec::new(), value: 0.0 }
}

/// All that larderd exports: with UDP, after traffic that has filled it; with TLS; with a store; and as a site.
fn exported() -> Result<Vec<Sample>> {
    let larderd = server::larderd()?;
    let folder = Folder::create();
    let (key, certificate) = (folder.file("key.pem"), folder.file("certificate.pem"));
    shell::output(&mut shell::certificate("localhost", &certificate, &key))?;
    shell::run(Command::new("chmod").arg("644").arg(&key))?;
    let files = format!("ssl_key={},ssl_chain_cert={}", key.display(), certificate.display());
    let admin = ["--admin-listen", "127.0.0.1:0"];

    let mut with_tls = server::command(&larderd);
    with_tls.args(admin).args(["-Z", "-o", &files]);
    let with_tls = Server::start_command(with_tls)?;
    let mut with_udp = server::command(&larderd);
    with_udp.args(admin).args(["-m", "4", "-U", &server::free_port().to_string()]);
    let with_udp = Server::start_command(with_udp)?;

    let mut with_store = server::command(&larderd);
    with_store.args(admin).args(["-u", "root", "--store"]).arg(folder.file("store"));
    let with_store = Server::start_command(with_store)?;
    fill(&with_store)?;

    let sites = sites(&larderd, &folder)?;

    let mut samples = samples_of(&with_tls)?;
    samples.extend(samples_of(&with_store)?);
    // Once they know each other.
    samples.extend(late_samples(&sites[0], LATE_OF_SITES, || Ok(()))?);
    // These come with traffic, the predictions once a second.
    samples.extend(late_samples(&with_udp, LATE, || fill(&with_udp))?);
    Ok(samples)
}

/// All samples, once they have these; `each_time` is done before each look.
fn late_samples(server: &Server, late: &str, each_time: impl Fn() -> Result<()>) -> Result<Vec<Sample>> {
    let selectors = promql::query(late)?.selectors;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        each_time()?;
        let told = samples_of(server)?;
        if selectors.iter().all(|selector| told.iter().any(|sample| selects(selector, sample))) {
            return Ok(told);
        }
        if Instant::now() > deadline {
            return Err(format!("larderd does not export {late}").into());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Two that hold the same data.
fn sites(larderd: &Path, folder: &Folder) -> Result<[Server; 2]> {
    let token = folder.write("token", "a-token-that-both-sites-know\n");
    let listens = [server::free_port(), server::free_port()].map(|port| format!("127.0.0.1:{port}"));
    let start = |site: usize| {
        let mut command = server::command(larderd);
        command.args(["--admin-listen", "127.0.0.1:0", "-u", "root", "--store"]);
        command.arg(folder.file(&format!("store-{site}")));
        command.args(["--site", &(site + 1).to_string(), "--replication-listen", &listens[site]]);
        command.args(["--peer", &listens[1 - site], "--replication-token-file"]).arg(&token);
        Server::start_command(command)
    };
    Ok([start(0)?, start(1)?])
}

fn samples_of(server: &Server) -> Result<Vec<Sample>> {
    exposition::samples(&exposition::get(server.admin_address().ok_or("it has no admin listener")?)?)
}

/// Stores more than its memory holds, and reads all of it twice.
fn fill(server: &Server) -> Result<()> {
    let mut stream = server.connect()?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let value = "v".repeat(VALUE_BYTES);
    for key in 0..KEYS {
        write!(stream, "set {key} 0 0 {VALUE_BYTES} noreply\r\n{value}\r\n")?;
        write!(stream, "get {key}\r\nget {key}\r\n")?;
        let mut reply = vec![0; 2 * (format!("VALUE {key} 0 {VALUE_BYTES}\r\n").len() + VALUE_BYTES + 7)];
        stream.read_exact(&mut reply)?;
    }
    Ok(())
}

/// The rules.
pub(super) const RULES: &str = "packaging/prometheus/larder.rules.yml";
/// Labels that Prometheus gives to each target.
const OF_TARGETS: [&str; 2] = ["instance", "job"];
const LATE: &str = "larder_predicted_hit_ratio + memcached_slab_items_evicted_time_seconds{slab=\"2\"}";
const LATE_OF_SITES: &str = "larder_replication_lag_seconds + larder_replication_standing \
    + larder_replication_in_flight_bytes";
const PAUSE: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(60);
const VALUE_BYTES: usize = 1000;
const KEYS: usize = 8000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_rules_are_read_in_both_forms() {
        let text = "groups:\n  - rules:\n      - record: a:b\n        expr: |\n          sum(c)\n            / d\n\
            \x20     - alert: E\n        expr: f > 1\n        for: 2m\n";
        let rules = Rules::read(text);
        assert_eq!(rules.expressions, ["sum(c) / d", "f > 1"]);
        assert_eq!(rules.recorded, ["a:b"]);
    }

    #[test]
    fn what_is_not_exported_is_found() {
        let text = "a{b=\"1\",c=\"2\"} 3\nd 4\n";
        let known = exposition::samples(text).expect("they are samples");
        for fine in ["a + d", "a{b=\"1\",instance=\"x\"}", "a{c=~\"3|4\"}", "sum by (c, job) (a)", "sum(d)"] {
            assert_eq!(complaints(fine, &known).expect("it is one"), [] as [&str; 0], "{fine}");
        }
        for wrong in ["e", "a{b=\"2\"}", "a{e!=\"\"}", "sum by (e) (a)", "sum by (b) (d)", "a_total"] {
            assert_eq!(complaints(wrong, &known).expect("it is one").len(), 1, "{wrong}");
        }
    }

    #[test]
    fn expressions_of_a_dashboard_are_found_wherever_they_are() {
        let json = serde_json::json!({
            "panels": [{"targets": [{"expr": "a"}], "panels": [{"targets": [{"expr": "b"}]}]}],
            "templating": {"list": [{"definition": "label_values(c{d=\"e\"}, f)"}, {"type": "datasource"}]},
        });
        let mut found = dashboard(&json);
        found.sort_unstable();
        assert_eq!(found, ["a", "b", "count by (f) (c{d=\"e\"})"]);
    }

    #[test]
    fn all_is_what_was_found_and_no_pattern() {
        let json = serde_json::json!({"templating": {"list": [
            {"name": "a"}, {"name": "b", "allValue": null}, {"name": "c", "allValue": ""},
            {"name": "d", "allValue": ".*"}, {"name": "e", "allValue": ".+"},
        ]}});
        assert_eq!(unbounded_variables(&json), ["d", "e"]);
    }
}
