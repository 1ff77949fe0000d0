//! Every key goes to the server where each client sent it.

use larder_client::placement::{
    Chars, Distribution as D, KeyHash as H, Locator, Names, Placement, Rehash, jump_hash,
};
use larder_client::{Address, Servers};

use crate::vectors::{Placed, hashed, keys, placed};

/// Compares all that is recorded of a client with our placement of it.
fn check(client: &str, cases: usize, locator_of: impl Fn(&Placed) -> Locator) {
    check_without(client, cases, |_, _| false, locator_of);
}

/// The same without some keys.
fn check_without(
    client: &str,
    cases: usize,
    is_left_out: impl Fn(&Placed, &[u8]) -> bool,
    locator_of: impl Fn(&Placed) -> Locator,
) {
    let keys = keys();
    let found = placed(client);
    assert_eq!(found.len(), cases, "{client}");
    for case in found {
        assert_eq!(case.positions.len(), keys.len(), "{client} {}", case.options);
        let locator = locator_of(&case);
        let answers = keys.iter().zip(&case.positions).filter_map(|(key, there)| Some((key, (*there)?)));
        let answers = answers.filter(|(key, _)| !is_left_out(&case, key));
        let (all, wrong): (Vec<_>, Vec<_>) =
            answers.map(|(key, there)| (key, there, locator.server_of(key))).map(|it| (it.0, it)).unzip();
        let wrong: Vec<_> = wrong.into_iter().filter(|(_, there, here)| Some(*there) != *here).collect();
        let first = wrong.first().map(|(key, there, here)| (key.escape_ascii().to_string(), there, here));
        let what = format!("{client} [{}] {:?}", case.options, case.servers.0);
        assert!(all.len() > keys.len() / 2, "{what}: the client refused most keys");
        assert_eq!(first, None, "{what}: {} of {} keys are elsewhere", wrong.len(), all.len());
    }
}

fn value<'o>(options: &'o str, name: &str) -> Option<&'o str> {
    options.split(' ').find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
}

fn has(options: &str, name: &str) -> bool {
    options.split(' ').any(|option| option == name)
}

/// A hash function by its name in C.
fn hash(name: &str) -> H {
    match name.trim_start_matches("HASH_").to_lowercase().as_str() {
        "default" | "one_at_a_time" => H::OneAtATime,
        "md5" => H::Md5,
        "crc" | "crc32" => H::Crc,
        "crc32a" => H::Crc32,
        "crc16" => H::Crc16,
        "fnv1_32" => H::Fnv32,
        "fnv1a_32" => H::Fnv32a,
        "fnv1_64" => H::Fnv64,
        "fnv1a_64" => H::Fnv64a,
        "hsieh" => H::Hsieh,
        "murmur" => H::Murmur,
        "murmur3" => H::Murmur3,
        "jenkins" => H::Jenkins,
        name => panic!("no hash {name}"),
    }
}

/// A hash function of spymemcached.
fn java_hash(name: &str) -> H {
    match name {
        "NATIVE_HASH" => H::JavaString,
        "CRC_HASH" => H::Crc,
        "FNV1_64_HASH" => H::Fnv64,
        "FNV1A_64_HASH" => H::Fnv64a,
        "FNV1_32_HASH" => H::Fnv32,
        "FNV1A_32_HASH" => H::Fnv32a,
        "KETAMA_HASH" => H::Md5,
        name => panic!("no hash {name}"),
    }
}

#[test]
fn hashes_are_libmemcacheds() {
    for function in hashed("libmemcached") {
        for (key, there) in keys().iter().zip(function.hashes) {
            assert_eq!(
                Some(hash(&function.name).of(key, Chars::Signed)),
                there,
                "{}: {key:?}",
                function.name
            );
        }
    }
}

#[test]
fn hashes_are_spymemcacheds() {
    for function in hashed("spymemcached") {
        for (key, there) in keys().iter().zip(function.hashes).filter_map(|(key, there)| Some((key, there?)))
        {
            assert_eq!(java_hash(&function.name).of(key, Chars::Utf16), there, "{}: {key:?}", function.name);
        }
    }
}

#[test]
fn keys_go_where_libmemcached_sends_them() {
    // libmemcached takes zeros for what follows a zero, if it copies the key behind a namespace.
    let is_cut = |case: &Placed, key: &[u8]| has(&case.options, "hash_with_namespace") && key.contains(&0);
    check_without("libmemcached", 106, is_cut, |case| {
        let options = &case.options;
        let is_spy = options.contains("consistent_ketama_spy");
        let distribution = if is_spy && has(options, "ketama_weighted") {
            D::KetamaSpyWeighted
        } else if is_spy {
            D::KetamaSpy
        } else if has(options, "ketama_weighted") {
            D::KetamaWeighted
        } else if has(options, "ketama") || value(options, "distribution") == Some("consistent") {
            D::Ketama
        } else if options.contains("bucket") {
            D::VirtualBuckets
        } else {
            D::Modula
        };
        let mut placement = Placement::libmemcached(distribution);
        if let Some(name) = value(options, "hash") {
            placement = placement.hash(hash(name));
        }
        if has(options, "sort_hosts") {
            placement = placement.sort_hosts();
        }
        if has(options, "hash_with_namespace") {
            placement = placement.prefix(value(options, "namespace").expect("there is one"));
        }
        if let Some(map) = value(options, "buckets") {
            placement =
                placement.buckets(map.bytes().map(|digit| u32::from(digit - b'0')).collect::<Vec<_>>());
        }
        let are_added_before = options.starts_with("servers ");
        let servers = if are_added_before { case.even() } else { case.servers.clone() };
        let locator = Locator::new(&servers.0, placement);
        match value(options, "dead") {
            Some(dead) if distribution != D::Modula => locator.without(&[case.position(dead)]),
            _ => locator,
        }
    });
}

#[test]
fn keys_go_where_phps_memcached_sends_them() {
    check("php-memcached", 21, |case| {
        let options = &case.options;
        let distribution = if has(options, "LIBKETAMA_COMPATIBLE=1") {
            D::KetamaWeighted
        } else if value(options, "DISTRIBUTION") == Some("DISTRIBUTION_CONSISTENT") {
            D::Ketama
        } else {
            D::Modula
        };
        let mut placement = Placement::libmemcached(distribution).names(Names::PhpMemcached);
        if let Some(name) = value(options, "HASH") {
            placement = placement.hash(hash(name));
        }
        if has(options, "SORT_HOSTS=1") {
            placement = placement.sort_hosts();
        }
        if has(options, "HASH_WITH_PREFIX_KEY=1") {
            placement = placement.prefix("shop:");
        }
        Locator::new(&case.servers.0, placement)
    });
}

#[test]
fn keys_go_where_pylibmc_sends_them() {
    check("pylibmc", 20, |case| {
        let options = &case.options;
        let distribution = if has(options, "ketama_weighted=1") {
            D::KetamaWeighted
        } else if has(options, "ketama=1") || has(options, "distribution=consistent") {
            D::Ketama
        } else {
            D::Modula
        };
        let placement = Placement::libmemcached(distribution);
        let placement = match value(options, "hash") {
            Some(name) => placement.hash(hash(name)),
            None => placement,
        };
        Locator::new(&case.even().0, placement)
    });
}

#[test]
fn keys_go_where_twemproxy_sends_them() {
    check("twemproxy", 44, |case| {
        let option = |name| value(&case.options, name);
        let is_ring = option("distribution") == Some("ketama");
        let distribution = if is_ring { D::KetamaWeighted } else { D::ModulaWeighted };
        let mut placement = Placement::twemproxy(distribution, hash(option("hash").expect("a hash")));
        if option("hash_tag").is_some() {
            placement = placement.hash_tag(b'{', b'}');
        }
        if let Some(names) = option("names") {
            placement = placement.names(Names::Given(names.split(',').map(str::to_owned).collect()));
        }
        let locator = Locator::new(&case.servers.0, placement);
        match option("dead") {
            Some(dead) => locator.without(&[case.position(dead)]),
            None => locator,
        }
    });
}

#[test]
fn keys_go_where_spymemcached_sends_them() {
    /// Names as Java writes addresses whose host it has resolved.
    fn resolved(servers: &Servers) -> Names {
        let name = |address: &Address| match address {
            Address::Inet { host, port } if host == "localhost" => format!("localhost/127.0.0.1:{port}"),
            address => address.to_string(),
        };
        Names::Given(servers.0.iter().map(|server| name(&server.address)).collect())
    }
    check("spymemcached", 33, |case| {
        let words: Vec<_> = case.options.split(' ').collect();
        let hash = java_hash(words[1]);
        let distribution = match (words[0], words.last()) {
            ("modula", _) => D::Modula,
            (_, Some(&"weighted")) => D::SpymemcachedKetamaWeighted,
            _ => D::SpymemcachedKetama,
        };
        let placement = Placement::spymemcached(distribution, hash);
        let placement = match words.get(2) {
            Some(&"LIBMEMCACHED") => placement.names(Names::Libmemcached),
            Some(_)
                if case
                    .servers
                    .0
                    .iter()
                    .any(|server| server.address.to_string().starts_with("localhost")) =>
            {
                placement.names(resolved(&case.servers))
            }
            _ => placement,
        };
        Locator::new(&case.servers.0, placement)
    });
}

#[test]
fn keys_go_where_whalins_client_sends_them() {
    check("whalin", 25, |case| {
        let placement = match case.options.trim_end_matches(" weighted") {
            "native" => Placement::from(D::ModulaWeighted).hash(H::JavaStringAmount),
            "old" => Placement::from(D::ModulaWeighted).hash(H::Times33),
            "new" => Placement::from(D::ModulaWeighted),
            _ => Placement::from(D::WhalinConsistent),
        };
        let servers = if has(&case.options, "weighted") { case.servers.clone() } else { case.even() };
        Locator::new(&servers.0, placement)
    });
}

#[test]
fn keys_go_where_phps_memcache_sends_them() {
    check("php-memcache", 24, |case| {
        let is_ring = has(&case.options, "consistent");
        let distribution = if is_ring { D::PhpMemcacheConsistent } else { D::PhpMemcacheStandard };
        let placement = Placement::from(distribution);
        let has_fnv = has(&case.options, "fnv");
        Locator::new(&case.servers.0, if has_fnv { placement.hash(H::Fnv32a) } else { placement })
    });
}

#[test]
fn keys_go_where_clients_without_options_send_them() {
    check("cache-memcached", 7, |case| Locator::new(&case.servers.0, D::ModulaWeighted));
    check("cache-memcached-fast", 8, |case| {
        let placement = Placement::from(D::ModulaWeighted);
        let is_hashed = has(&case.options, "hash_namespace");
        Locator::new(&case.servers.0, if is_hashed { placement.prefix("shop:") } else { placement })
    });
    check("pymemcache", 6, |case| Locator::new(&case.servers.0, D::Rendezvous));
    check("uhashring", 6, |case| Locator::new(&case.servers.0, D::UhashringKetama));
}

#[test]
fn keys_go_where_python_memcached_sends_them() {
    check("python-memcached", 12, |case| {
        let hash = if case.options == "old" { H::Crc32 } else { H::Crc };
        Locator::new(&case.servers.0, Placement::from(D::ModulaWeighted).hash(hash))
    });
    check("python-memcached-1.59", 4, |case| {
        Locator::new(&case.servers.0, Placement::from(D::ModulaWeighted).hash(H::CrcNonzero))
    });
}

#[test]
fn keys_go_where_dalli_sends_them() {
    // dalli shortens keys that are too long with their namespace.
    let is_shortened = |case: &Placed, key: &[u8]| case.options == "namespace=shop" && key.len() > 245;
    check_without("dalli", 8, is_shortened, |case| {
        let placement = Placement::from(D::DalliRing);
        let placement = match value(&case.options, "namespace") {
            Some(name) => placement.prefix(format!("{name}:")),
            None => placement,
        };
        Locator::new(&case.servers.0, placement)
    });
}

#[test]
fn jump_hash_is_that_of_the_python_package() {
    for case in placed("jump") {
        let buckets = case.servers.0.len() as u32;
        for (key, there) in keys().iter().zip(&case.positions) {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(key).for_each(|(byte, of_key)| *byte = *of_key);
            assert_eq!(Some(jump_hash(u64::from_le_bytes(bytes), buckets) as usize), *there, "{key:?}");
        }
    }
}

/// The servers of the keys `key:0` to `key:9999` as memcached_generate_hash of libmemcached 1.1.4 numbers them: of the
/// first 32, and the FNV-1a hash of the sequence of all of them.
#[test]
fn ten_thousand_keys_go_where_libmemcached_sends_them() {
    const EVEN: &str = "10.0.1.1:11211,10.0.1.2:11211,10.0.1.3:11212,cache.example:11213,10.0.1.5:11211";
    const WEIGHTED: &str = "10.0.1.1:11211:600,10.0.1.2:11211:300,10.0.1.3:11212:200,cache.example:11213:350,10.0.1.5:11211:1000";
    for (distribution, servers, first, fold) in [
        (D::Modula, EVEN, "34133211313012303440104211041024", 1030307608),
        (D::Modula, WEIGHTED, "34133211313012303440104211041024", 1030307608),
        (D::Ketama, EVEN, "31410400301420134344401342312243", 3119011292),
        (D::Ketama, WEIGHTED, "33230403024404040424044011410440", 1486887115),
        (D::KetamaWeighted, EVEN, "04421143032131321204202112003141", 1982926848),
        (D::KetamaWeighted, WEIGHTED, "04424143032430301204404002004140", 4067573616),
        (D::KetamaWeighted, "10.0.1.1:11211", "00000000000000000000000000000000", 1943471365),
        (D::KetamaWeighted, "a:1,b:2", "10100010000000000011101000011110", 1236279732),
    ] {
        let locator = Locator::new(&servers.parse::<Servers>().expect("servers").0, distribution);
        let owner = |n: usize| locator.server_of(format!("key:{n}").as_bytes()).expect("there are servers");
        let owners: Vec<_> = (0..10_000).map(owner).collect();
        let start: String = owners[..32].iter().map(usize::to_string).collect();
        assert_eq!(start, first, "{distribution:?}");
        let all =
            owners.iter().fold(2166136261u32, |sum, owner| (sum ^ *owner as u32).wrapping_mul(16777619));
        assert_eq!(all, fold, "{distribution:?}");
    }
}

/// With a server that is down: the first of the others that a client tries.
#[test]
fn keys_of_a_server_that_is_away_go_where_clients_send_them() {
    const DEAD: &str = "127.0.1.66:11211";
    let keys = keys();
    for case in placed("failover") {
        let words: Vec<_> = case.options.split(' ').collect();
        let weighted = case.servers.clone();
        let (servers, placement) = match words[..] {
            ["spymemcached", "modula", hash] => {
                (case.even(), Placement::spymemcached(D::Modula, java_hash(hash)))
            }
            ["spymemcached", "ketama", hash, _] => {
                let placement = Placement::spymemcached(D::SpymemcachedKetama, java_hash(hash));
                (case.even(), placement.names(Names::Libmemcached))
            }
            ["whalin", "new", _] => (weighted, Placement::from(D::ModulaWeighted).rehash(Rehash::Whalin)),
            ["whalin", ..] => (weighted, D::WhalinConsistent.into()),
            ["php-memcache", "standard", _] => (weighted, D::PhpMemcacheStandard.into()),
            ["php-memcache", _, "fnv"] => {
                (weighted, Placement::from(D::PhpMemcacheConsistent).hash(H::Fnv32a))
            }
            ["php-memcache", ..] => (weighted, D::PhpMemcacheConsistent.into()),
            ["dalli"] => (weighted, D::DalliRing.into()),
            ["cache-memcached"] => {
                (weighted, Placement::from(D::ModulaWeighted).rehash(Rehash::CacheMemcached))
            }
            ["python-memcached"] => {
                let placement = Placement::from(D::ModulaWeighted).hash(H::CrcNonzero);
                (weighted, placement.rehash(Rehash::PythonMemcached))
            }
            _ => panic!("{words:?}"),
        };
        let locator = Locator::new(&servers.0, placement);
        let dead = case.position(DEAD);
        let mut moved = 0;
        for (key, there) in keys.iter().zip(&case.positions) {
            let Some(there) = there else { continue };
            let own = locator.server_of(key);
            assert_eq!(locator.failover(key).next(), own);
            let here = locator.failover(key).find(|server| *server != dead);
            assert_eq!(here, Some(*there), "{words:?} {}", key.escape_ascii());
            moved += usize::from(own == Some(dead));
        }
        assert!(moved > 20, "{words:?} {moved}");
    }
}
