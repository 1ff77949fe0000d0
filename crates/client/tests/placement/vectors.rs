//! Reads what clients did with the keys: `tests/data/placement`, which its `generate/generate.sh` records.

use std::fs;
use std::path::PathBuf;

use larder_client::Servers;

/// What a client did, set to some options, with some servers.
pub(crate) struct Placed {
    pub(crate) servers: Servers,
    pub(crate) options: String,
    /// The position of each key's server. `None`: the client refuses the key.
    pub(crate) positions: Vec<Option<usize>>,
}

impl Placed {
    /// The servers without their weights.
    pub(crate) fn even(&self) -> Servers {
        let mut servers = self.servers.clone();
        servers.0.iter_mut().for_each(|server| server.weight = 1);
        servers
    }

    /// The position of the server at an address.
    pub(crate) fn position(&self, address: &str) -> usize {
        self.servers.0.iter().position(|server| server.address.to_string() == address).expect("it is listed")
    }
}

/// The hashes of all keys by one function. `None`: the client refuses the key.
pub(crate) struct Hashed {
    pub(crate) name: String,
    pub(crate) hashes: Vec<Option<u64>>,
}

/// The keys, in the order of the positions.
pub(crate) fn keys() -> Vec<Vec<u8>> {
    text("keys").lines().map(unescaped).collect()
}

/// What a client did, at all its options.
pub(crate) fn placed(client: &str) -> Vec<Placed> {
    let mut servers = Servers::default();
    let mut found: Vec<Placed> = Vec::new();
    for line in text(client).lines().skip(1).filter(|line| !line.is_empty()) {
        if let Some(list) = line.strip_prefix("servers ") {
            // A path may end in a colon and a number, so that a weight stands apart.
            let apart =
                |server: &str| server.rsplit_once(':').map(|(address, weight)| format!("{address} {weight}"));
            servers =
                list.split(',').filter_map(apart).collect::<Vec<_>>().join(",").parse().expect("servers");
        } else if let Some(options) = line.strip_prefix("options") {
            let options = options.trim().to_owned();
            found.push(Placed { servers: servers.clone(), options, positions: Vec::new() });
        } else {
            let row = line.chars().map(|digit| digit.to_digit(36).map(|position| position as usize));
            found.last_mut().expect("options stand before").positions.extend(row);
        }
    }
    found
}

/// The hashes of a client.
pub(crate) fn hashed(client: &str) -> Vec<Hashed> {
    let mut found: Vec<Hashed> = Vec::new();
    for line in text(&format!("{client}-hashes")).lines().skip(1) {
        if let Some(name) = line.strip_prefix("hash ") {
            found.push(Hashed { name: name.to_owned(), hashes: Vec::new() });
        } else {
            let row = line.split(' ').map(|digits| u64::from_str_radix(digits, 16).ok());
            found.last_mut().expect("a name stands before").hashes.extend(row);
        }
    }
    found
}

fn text(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/placement/{name}.txt"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A key of `keys.txt`: `%XX` is a byte.
fn unescaped(line: &str) -> Vec<u8> {
    let mut parts = line.split('%');
    let mut key = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        key.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits"));
        key.extend_from_slice(rest.as_bytes());
    }
    key
}
