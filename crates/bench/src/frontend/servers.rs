//! Lists of servers.

use larder_client::Address;

use super::{Refusal, Surroundings};

/// libmemcached's: hosts with or without a port, paths of unix sockets, between commas or spaces; from `given`, or else
/// from the variable MEMCACHED_SERVERS.
pub(super) fn libmemcached(
    given: Option<&str>,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<String>, Refusal> {
    let list = given.map(str::to_owned).or_else(|| (surroundings.variable)("MEMCACHED_SERVERS"));
    let Some(list) = list else {
        return Err(Refusal::Words(
            "no server: --servers=HOST:PORT, or the variable MEMCACHED_SERVERS".into(),
        ));
    };
    if list.contains("/?") {
        return Err(Refusal::Words(format!(
            "--servers={list}: weights (/?) are not supported; keys are shared out evenly"
        )));
    }
    let words = list.split([',', ' ', '\t']).filter(|word| !word.is_empty());
    let servers: Vec<String> = words.map(with_port).collect::<Result<_, _>>()?;
    match servers.is_empty() {
        true => Err(Refusal::Words("--servers: the list is empty".into())),
        false => Ok(servers),
    }
}

/// `host`, `host:port`, `[v6]:port`, or a path. Errors: a bad port.
pub(super) fn with_port(word: &str) -> Result<String, Refusal> {
    match word.parse::<Address>() {
        Ok(address) => Ok(address.to_string()),
        Err(bad) => Err(Refusal::Words(bad.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::with_port;

    #[test]
    fn a_port_is_added_where_there_is_none() {
        for (word, server) in [
            ("127.0.0.1", "127.0.0.1:11211"),
            ("cache-1:11212", "cache-1:11212"),
            ("/run/memcached.sock", "/run/memcached.sock"),
            ("::1", "[::1]:11211"),
            ("[::1]", "[::1]:11211"),
            ("[::1]:5", "[::1]:5"),
        ] {
            assert_eq!(with_port(word), Ok(server.to_owned()));
        }
        assert!(with_port("cache-1:99999").is_err());
    }
}
