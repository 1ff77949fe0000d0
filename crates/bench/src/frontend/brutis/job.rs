//! A jobset as a scenario: its operations, in turn, on as many connections as it has forks.

use std::collections::BTreeMap;

use super::xml::{Element, Job, Test};
use super::{Refusal, WITHOUT_END_SECS};
use crate::Scenario;
use crate::scenario::{
    Arrival, Command, Content, Group, Keys, Kind, Order, Popularity, Protocol, Sizes, Target, Transport, Ttl,
    Until, Values,
};

pub(super) fn scenarios(
    path: &str,
    test: Test,
    servers: &[String],
    notes: &mut Vec<String>,
) -> Result<Vec<Scenario>, Refusal> {
    let (name, description) = (test.name, test.description);
    test.jobs
        .into_iter()
        .map(|job| {
            let job_name = job.attributes.get("name").unwrap_or_default().to_owned();
            let scenario = scenario(job, servers, notes).map_err(|reason| Refusal::File {
                path: path.into(),
                reason: format!("jobset {job_name}: {reason}"),
            })?;
            Ok(Scenario { name: format!("{name}: {job_name}"), description: description.clone(), ..scenario })
        })
        .collect()
}

fn scenario(job: Job, servers: &[String], notes: &mut Vec<String>) -> Result<Scenario, String> {
    let forks = number(&job.attributes, "forks")?.unwrap_or(1).max(1);
    let mut library = Library::of(&job, servers)?;
    let sets = Sets::of(&job, &library.key_prefix)?;
    let cycle = shortest_cycle(&job.operations);
    let operations =
        cycle.iter().map(|operation| read_operation(operation, &sets)).collect::<Result<Vec<_>, _>>()?;

    let slept_secs: u64 = operations.iter().map(|operation| operation.sleep_secs).sum();
    let mut commands: Vec<Command> =
        operations.iter().filter_map(|operation| operation.command.clone()).collect();
    let requests_per_cycle: f64 = commands.iter().map(|command| command.weight).sum();
    if commands.is_empty() {
        return Err("it has no operations but sleep".into());
    }
    let keys = commands[0].key_set.take().unwrap_or_default();
    let values = commands.iter().find_map(|command| command.value_set.clone()).unwrap_or_default();
    for command in &mut commands {
        command.value_set.take_if(|set| *set == values);
    }
    let arrival = match slept_secs {
        0 => Arrival::Closed,
        secs => {
            library
                .notes
                .push(format!("sleep: the {secs} s of each round are spread evenly between its requests"));
            Arrival::Paced { rate_per_sec: forks as f64 * requests_per_cycle / secs as f64 }
        }
    };
    let requests = number(&job.attributes, "operations")?.map(|count| {
        // An operation on several keys is one operation there, and several sets here.
        (count as f64 * forks as f64 * requests_per_cycle / cycle.len() as f64).round() as u64
    });
    let secs = number(&job.attributes, "time")?.map(|secs| secs as f64);
    if secs.is_none() && requests.is_none() {
        library.notes.push("a jobset without time and operations runs until it is interrupted".into());
    }
    notes.append(&mut library.notes);
    Ok(Scenario {
        target: Target { servers: servers.to_vec(), ..Target::default() },
        until: Until {
            secs: secs.or_else(|| requests.is_none().then_some(WITHOUT_END_SECS)),
            requests,
            trace_ends: false,
        },
        // What Brutis refreshes its screen at.
        period_secs: 5.0,
        groups: vec![Group {
            connections: forks as usize,
            protocol: library.protocol,
            transport: library.transport,
            arrival,
            order: Order::Turn,
            commands,
            keys,
            values,
            ..Group::default()
        }],
        ..Scenario::default()
    })
}

/// What the library's options come to.
struct Library {
    protocol: Protocol,
    transport: Transport,
    key_prefix: String,
    notes: Vec<String>,
}

impl Library {
    fn of(job: &Job, servers: &[String]) -> Result<Self, String> {
        let mut library = Self {
            protocol: Protocol::Text,
            transport: Transport::Tcp,
            key_prefix: String::new(),
            notes: Vec::new(),
        };
        match job.attributes.get("library") {
            // An unknown library is Brutis's default one.
            None | Some("danga" | "libmemcache" | "libmemcached") => {}
            Some(other) => return Err(format!("library {other}: there are danga and libmemcache")),
        }
        for (name, value) in &job.options {
            library.set(name.trim_start_matches("Memcached::"), value, servers.len())?;
        }
        Ok(library)
    }

    fn set(&mut self, name: &str, value: &str, servers: usize) -> Result<(), String> {
        let is_on = !matches!(value.to_ascii_lowercase().as_str(), "" | "0" | "false");
        match name {
            "OPT_BINARY_PROTOCOL" => self.protocol = if is_on { Protocol::Binary } else { Protocol::Text },
            "OPT_USE_UDP" => self.transport = if is_on { Transport::Udp } else { Transport::Tcp },
            "OPT_PREFIX_KEY" => self.key_prefix = value.into(),
            "OPT_NO_BLOCK" | "OPT_TCP_NODELAY" => {}
            "OPT_COMPRESSION" | "OPT_BUFFER_WRITES" | "OPT_NOREPLY" if !is_on => {}
            "OPT_HASH" | "OPT_DISTRIBUTION" | "OPT_LIBKETAMA_COMPATIBLE" if servers > 1 => {
                self.notes.push(format!("{name}: keys are shared out by larder's own hash"));
            }
            "OPT_HASH" | "OPT_DISTRIBUTION" | "OPT_LIBKETAMA_COMPATIBLE" => {}
            "OPT_SERIALIZER" => self.notes.push(format!("{name}: values are bytes, and sent as they are")),
            "OPT_COMPRESSION" => {
                return Err(format!("option {name}: values are not compressed; give their compressed size"));
            }
            "OPT_BUFFER_WRITES" => {
                return Err(format!("option {name}: then no answer has a time of its own"));
            }
            _ => return Err(format!("option {name} ({value}): larder has nothing like it")),
        }
        Ok(())
    }
}

/// Keysets and valuesets by name.
struct Sets {
    keys: BTreeMap<String, Keys>,
    values: BTreeMap<String, Values>,
}

impl Sets {
    fn of(job: &Job, key_prefix: &str) -> Result<Self, String> {
        let keys = job.keys.iter().map(|key| read_keys(key, key_prefix)).collect::<Result<_, _>>()?;
        let values = job.values.iter().map(read_values).collect::<Result<_, _>>()?;
        Ok(Self { keys, values })
    }
}

fn read_keys(key: &Element, key_prefix: &str) -> Result<(String, Keys), String> {
    let name = key.get("name").ok_or("a key set without a name")?;
    let needed =
        |attribute| number(key, attribute)?.ok_or_else(|| format!("key set {name}: {attribute} is needed"));
    let (start, end) = (needed("start")?, needed("end")?);
    let popularity = match key.get("pattern").unwrap_or("random").to_ascii_lowercase().as_str() {
        "sequential" => Popularity::Sequential,
        "random" => Popularity::Uniform,
        "reverse_sequential" => Popularity::Reverse,
        other => {
            return Err(format!("key set {name}: pattern {other}: sequential, random or reverse_sequential"));
        }
    };
    let (first, last) = (start.min(end), start.max(end));
    let keys = Keys {
        count: (last - first).saturating_add(1),
        first,
        prefix: format!("{key_prefix}{}", key.get("prefix").unwrap_or("brutis-")),
        bytes: Sizes::Fixed(1),
        popularity,
    };
    Ok((name.into(), keys))
}

fn read_values(value: &Element) -> Result<(String, Values), String> {
    let name = value.get("name").ok_or("a value set without a name")?;
    let (bytes, content) = match value.get("mode").unwrap_or("generated") {
        "static" => (value.text.len() as u64, Content::Repeated(value.text.clone())),
        "generated" => {
            let size = number(value, "size")?.ok_or_else(|| format!("value set {name}: size is needed"))?;
            (size, Content::Random)
        }
        other => return Err(format!("value set {name}: mode {other}: generated or static")),
    };
    Ok((name.into(), Values { bytes: Sizes::Fixed(bytes), content, ..Values::default() }))
}

/// A step of the loop.
struct Operation {
    /// `None`: it sleeps.
    command: Option<Command>,
    sleep_secs: u64,
}

fn read_operation(operation: &Element, sets: &Sets) -> Result<Operation, String> {
    let kind = operation.get("type").unwrap_or("sleep");
    let count = number(operation, "count")?;
    let command = |kind| Command { kind, ..Command::default() };
    let needed =
        || count.filter(|count| *count > 0).ok_or_else(|| format!("operation {kind}: count is needed"));
    let (mut command, has_value) = match kind.to_ascii_lowercase().as_str() {
        "set" => (command(Kind::Set), true),
        "setmulti" => (Command { weight: needed()? as f64, ..command(Kind::Set) }, true),
        "get" => (command(Kind::Get), false),
        "getmulti" => (Command { keys: needed()? as usize, ..command(Kind::Get) }, false),
        "append" => (command(Kind::Append), true),
        "replace" => (command(Kind::Replace), true),
        "delete" => (command(Kind::Delete), false),
        "increment" => (command(Kind::Incr), false),
        "decrement" => (command(Kind::Decr), false),
        "sleep" => return Ok(Operation { command: None, sleep_secs: needed()? }),
        _ => return Err(format!("operation {kind}: there is no such operation")),
    };
    let key_set = operation.get("keyset").unwrap_or_default();
    let keys = sets.keys.get(key_set).ok_or_else(|| format!("operation {kind}: unknown keyset {key_set}"))?;
    command.key_set = Some(keys.clone());
    if has_value {
        let value_set = operation.get("valueset").unwrap_or_default();
        let values = sets.values.get(value_set);
        command.value_set =
            Some(values.ok_or_else(|| format!("operation {kind}: unknown valueset {value_set}"))?.clone());
    }
    if let Some(secs) = number(operation, "expire")?.filter(|secs| *secs > 0) {
        let secs = u32::try_from(secs).map_err(|_| format!("operation {kind}: expire {secs}"))?;
        command.ttl = vec![Ttl { secs, weight: 1.0 }];
    }
    command.delta = number(operation, "offset")?.unwrap_or(1);
    Ok(Operation { command: Some(command), sleep_secs: 0 })
}

/// A list that repeats itself, once: one of Brutis's own samples has some thousand operations that are the same four.
fn shortest_cycle(operations: &[Element]) -> &[Element] {
    let length = (1..=operations.len()).find(|length| {
        operations.len().is_multiple_of(*length)
            && operations[*length..].iter().eq(operations[..operations.len() - length].iter())
    });
    &operations[..length.unwrap_or(0)]
}

fn number(element: &Element, attribute: &str) -> Result<Option<u64>, String> {
    element
        .get(attribute)
        .filter(|value| !value.trim().is_empty())
        .map(|value| value.trim().parse().map_err(|_| format!("{attribute}='{value}': a number is needed")))
        .transpose()
}
