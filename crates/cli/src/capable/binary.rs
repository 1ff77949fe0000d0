//! The binary protocol, command by command.

use larder_client::client::StoreOutcome;
use larder_client::{Client, Error};

use super::{Feature, Finding, Subject};
use crate::Failure;
use crate::target::Dialect;

type Check = fn(&mut Client, &str) -> Result<bool, Error>;

pub(super) fn features() -> Vec<Feature> {
    CHECKS
        .iter()
        .map(|&(name, check)| Feature::new("binary", name, move |subject| attempt(subject, check)))
        .collect()
}

const CHECKS: &[(&str, Check)] = &[
    ("version", |client, _| Ok(client.version().iter().all(|(_, answer)| answer.is_ok()))),
    ("get", |client, key| Ok(client.get(key)?.is_none())),
    ("set", |client, key| {
        client.set(key, "a", 60)?;
        Ok(client.get(key)?.is_some_and(|item| item.value == b"a"))
    }),
    ("add", |client, key| {
        let first = client.add(key, "a", 60)?;
        Ok(first == StoreOutcome::Stored && client.add(key, "a", 60)? != StoreOutcome::Stored)
    }),
    ("replace", |client, key| {
        let first = client.replace(key, "a", 60)?;
        client.set(key, "a", 60)?;
        Ok(first != StoreOutcome::Stored && client.replace(key, "b", 60)? == StoreOutcome::Stored)
    }),
    ("append", |client, key| {
        client.set(key, "a", 60)?;
        client.append(key, "b")?;
        Ok(client.get(key)?.is_some_and(|item| item.value == b"ab"))
    }),
    ("prepend", |client, key| {
        client.set(key, "a", 60)?;
        client.prepend(key, "b")?;
        Ok(client.get(key)?.is_some_and(|item| item.value == b"ba"))
    }),
    ("cas", |client, key| {
        client.set(key, "a", 60)?;
        let cas = client.gets(key)?.and_then(|item| item.cas).unwrap_or(0);
        let wrong = client.cas(key, "b", 60, cas ^ 1)?;
        Ok(wrong == StoreOutcome::Exists && client.cas(key, "b", 60, cas)? == StoreOutcome::Stored)
    }),
    ("increment", |client, key| {
        client.set(key, "9", 60)?;
        Ok(client.incr(key, 3)? == Some(12))
    }),
    ("decrement", |client, key| {
        client.set(key, "9", 60)?;
        Ok(client.decr(key, 10)? == Some(0))
    }),
    ("delete", |client, key| {
        client.set(key, "a", 60)?;
        Ok(client.delete(key)? && !client.delete(key)?)
    }),
    ("touch", |client, key| {
        client.set(key, "a", 60)?;
        client.touch(key, 50)
    }),
    ("gat", |client, key| {
        client.set(key, "a", 60)?;
        Ok(client.get_and_touch(key, 50)?.is_some())
    }),
    ("quiet gets (getkq, noop)", |client, key| {
        client.set(key, "a", 60)?;
        let found = client.multi_get(&[key, "larder-capable-nokey", key]);
        Ok(found.failures.is_empty() && found.items.iter().flatten().count() == 2)
    }),
    ("keys of any bytes", |client, key| {
        let key = format!("{key}\0 \n");
        client.set(&key, "a", 60)?;
        client.delete(&key)
    }),
    ("stat", |client, _| Ok(client.stats("").iter().all(|(_, answer)| answer.is_ok()))),
];

fn attempt(subject: &Subject, check: Check) -> Result<Finding, Failure> {
    let mut client = subject.target.speaking(Dialect::Binary).client()?;
    let key = subject.key();
    let checked = check(&mut client, &key);
    subject.forget(&key);
    let can = checked.map_err(|error| Failure::of(&subject.address, &error))?;
    Ok(if can { Finding::yes("") } else { Finding::no("the answer is wrong") })
}
