//! Lists of servers, and servers that are added to a client.

use super::servers::{DEFAULT_HOST, or_default};
use super::{number, session};
use crate::abi::{Chars, HOST_SIZE, Memc, Out, Return, ServerList, ServerSt, Session, export};
use crate::core::{Core, Kind, Options};

export! {
    fn memcached_servers_parse(servers: Chars) -> *mut ServerSt {
        let servers = servers.text().map_or(&b""[..], |servers| servers.to_bytes());
        parse(servers).address()
    }

    fn memcached_server_list_append(
        list: ServerList, host: Chars, port: u16, error: Out<Return>,
    ) -> *mut ServerSt {
        append(&list, &host, port, 0, error).address()
    }

    fn memcached_server_list_append_with_weight(
        list: ServerList, host: Chars, port: u16, weight: u32, error: Out<Return>,
    ) -> *mut ServerSt {
        append(&list, &host, port, weight, error).address()
    }

    fn memcached_server_list_count(list: ServerList) -> u32 {
        list.count()
    }

    fn memcached_server_list_free(list: ServerList) {
        list.free();
    }

    fn memcached_server_free(list: ServerList) {
        if list.count() > 0 {
            list.free();
        }
    }

    /// Entries of a list have no errors.
    fn memcached_server_error_reset(_server: ServerList) {}

    fn memcached_server_push(memc: Memc, list: ServerList) -> Return {
        if memc.is_null() && !list.servers().is_empty() {
            return Return::INVALID_ARGUMENTS;
        }
        if list.servers().is_empty() {
            return Return::SUCCESS;
        }
        push(&memc, list.servers().iter().map(|server| {
            let (host, port, weight, kind) = server.parts();
            (host, port, weight, Kind::of(kind))
        }))
    }
}

/// Adds servers: all of them, or none. A weight makes a ring weighted, even one that is chosen later.
pub(super) fn push<'h>(memc: &Memc, servers: impl Iterator<Item = (&'h [u8], u16, u32, Kind)>) -> Return {
    let Some((mut session, options)) = session(memc) else { return Return::INVALID_ARGUMENTS };
    let before = session.core.instances.len();
    let mut is_weighted = false;
    for (host, port, weight, kind) in servers {
        let added = check(&mut session.core, &options, host, kind)
            .and_then(|()| session.core.add_server(&options, host, port, weight, kind));
        if let Err(code) = added {
            session.core.instances.truncate(before);
            return code;
        }
        is_weighted |= weight > 1;
    }
    place(session, options, before, is_weighted)
}

/// Places servers that were added behind the first ones. Without memory for it they are removed again.
fn place(mut session: Session<'_>, mut options: Options, before: usize, is_weighted: bool) -> Return {
    options.weighted |= is_weighted;
    match session.core.distribute(&options) {
        Ok(()) => {
            if is_weighted {
                session.settings.ketama_weighted.set(true);
            }
            Return::SUCCESS
        }
        Err(code) => {
            session.core.instances.truncate(before);
            code
        }
    }
}

/// Adds a server. A weight makes a ring weighted that has been chosen.
pub(super) fn add(memc: &Memc, host: &[u8], port: u16, weight: u32, kind: Kind) -> Return {
    let Some((mut session, options)) = session(memc) else { return Return::INVALID_ARGUMENTS };
    let before = session.core.instances.len();
    if let Err(code) = check(&mut session.core, &options, host, kind) {
        return code;
    }
    if let Err(code) = session.core.add_server(&options, host, port, weight, kind) {
        return code;
    }
    place(session, options, before, weight > 1 && options.is_consistent())
}

fn check(core: &mut Core, options: &Options, host: &[u8], kind: Kind) -> Result<(), Return> {
    if !can_name(host) {
        return Err(core.fail(options, Return::INVALID_ARGUMENTS, "Invalid hostname provided"));
    }
    if options.udp && kind == Kind::Unix {
        return Err(core.fail(options, Return::INVALID_HOST_PROTOCOL, ""));
    }
    Ok(())
}

fn append(list: &ServerList, host: &Chars, port: u16, weight: u32, error: Out<Return>) -> ServerList {
    let host = host.text().map_or(DEFAULT_HOST, |host| host.to_bytes());
    let appended = append_named(list, host, port, weight);
    // As in libmemcached; without memory the list stays.
    if !can_name(host) {
        list.free();
    }
    let is_there = !appended.servers().is_empty();
    error.set(if is_there { Return::SUCCESS } else { Return::MEMORY_ALLOCATION_FAILURE });
    appended
}

/// A list with one more server. Empty: the list is as it was.
fn append_named(list: &ServerList, host: &[u8], port: u16, weight: u32) -> ServerList {
    match host.first() {
        _ if !can_name(host) => ServerList::empty(),
        Some(b'/') => list.append(host, 0, weight, Kind::Unix as u32),
        _ => list.append(host, or_default(port), weight, Kind::Tcp as u32),
    }
}

/// Can it be the host of a server?
fn can_name(host: &[u8]) -> bool {
    !host.is_empty() && host.len() < HOST_SIZE
}

/// `host[:port[:weight]]` or `host:port weight`, with commas between. Numbers end where digits do.
fn parse(servers: &[u8]) -> ServerList {
    let mut list = ServerList::empty();
    let mut rest = servers;
    while !rest.is_empty() {
        let (entry, after) = split(rest, b',').unwrap_or((rest, b""));
        let (host, port, weight) = parse_entry(entry);
        let host = if host.is_empty() { DEFAULT_HOST } else { host };
        let appended = append_named(&list, host, port, weight);
        // A list without it would place keys elsewhere.
        if appended.servers().is_empty() {
            list.free();
            return appended;
        }
        list = appended;
        rest = match after {
            [space, after @ ..] if space.is_ascii_whitespace() => after,
            after => after,
        };
    }
    list
}

fn parse_entry(entry: &[u8]) -> (&[u8], u16, u32) {
    let bracket = split(entry, b'[').and_then(|(before, inner)| {
        let (address, _) = split(inner, b']')?;
        Some(before.len() + address.len() + 2)
    });
    let start = bracket.unwrap_or(0);
    let Some((host_rest, numbers)) = entry.get(start..).and_then(|tail| split(tail, b':')) else {
        return (entry, 0, 0);
    };
    let host = entry.get(..start + host_rest.len()).unwrap_or(entry);
    let weight =
        split(numbers, b' ').or_else(|| split(numbers, b':')).map_or(0, |(_, weight)| number(weight));
    (host, number(numbers) as u16, weight as u32)
}

fn split(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // As memcached_servers_parse of libmemcached 1.1.4 reads them.
    #[test]
    fn entries_have_hosts_ports_and_weights() {
        for (entry, expected) in [
            (&b"localhost"[..], (&b"localhost"[..], 0, 0)),
            (b"a:1", (b"a", 1, 0)),
            (b"a:1:7", (b"a", 1, 7)),
            (b"b:2 9", (b"b", 2, 9)),
            (b"[::1]:5", (b"[::1]", 5, 0)),
            (b"[::1]:5:2", (b"[::1]", 5, 2)),
            (b"[::1]", (b"[::1]", 0, 0)),
            (b"/tmp/sock", (b"/tmp/sock", 0, 0)),
            (b"a:x", (b"a", 0, 0)),
        ] {
            assert_eq!(parse_entry(entry), expected, "{}", entry.escape_ascii());
        }
    }
}
