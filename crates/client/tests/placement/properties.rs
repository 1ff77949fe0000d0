//! What holds for placements of any keys.

use larder_client::placement::{Distribution as D, KeyHash, Locator, Names, Placement};
use larder_client::{Server, Servers};

const ALL: [D; 17] = [
    D::Modula,
    D::ModulaWeighted,
    D::Ketama,
    D::KetamaWeighted,
    D::KetamaSpy,
    D::KetamaSpyWeighted,
    D::VirtualBuckets,
    D::SpymemcachedKetama,
    D::SpymemcachedKetamaWeighted,
    D::WhalinConsistent,
    D::UhashringKetama,
    D::DalliRing,
    D::PhpMemcacheStandard,
    D::PhpMemcacheConsistent,
    D::Rendezvous,
    D::Jump,
    D::Random,
];
/// With them a server that comes or goes moves its own keys only.
const CONSISTENT: [D; 11] = [
    D::Ketama,
    D::KetamaWeighted,
    D::KetamaSpy,
    D::KetamaSpyWeighted,
    D::SpymemcachedKetama,
    D::SpymemcachedKetamaWeighted,
    D::WhalinConsistent,
    D::UhashringKetama,
    D::DalliRing,
    D::PhpMemcacheConsistent,
    D::Rendezvous,
];
const KEYS: usize = 5_000;

fn servers(weights: &[u32]) -> Vec<Server> {
    let server = |(n, weight): (usize, &u32)| format!("10.0.7.{n}:{} {weight}", 11211 + n % 3);
    let list: Vec<_> = weights.iter().enumerate().map(server).collect();
    list.join(",").parse::<Servers>().expect("servers").0
}

/// The servers of many keys.
fn owners(locator: &Locator) -> Vec<usize> {
    (0..KEYS).map(|n| locator.server_of(format!("user:{n}").as_bytes()).expect("there are servers")).collect()
}

/// How many keys each of `count` servers has.
fn shares(owners: &[usize], count: usize) -> Vec<usize> {
    (0..count).map(|server| owners.iter().filter(|owner| **owner == server).count()).collect()
}

fn is_about(count: usize, expected: f64, tolerance: f64) -> bool {
    (count as f64 - expected).abs() <= expected * tolerance
}

#[test]
fn ejecting_a_server_moves_only_its_keys() {
    for distribution in CONSISTENT {
        let all = Locator::new(&servers(&[1; 7]), distribution);
        let before = owners(&all);
        let after = owners(&all.without(&[3]));
        for (before, after) in before.iter().zip(&after) {
            assert!(
                *after != 3 && (before == after || *before == 3),
                "{distribution:?}: {before} -> {after}"
            );
        }
        // And they are back with the server.
        assert_eq!(owners(&all.without(&[3]).without(&[])), before, "{distribution:?}");
        let heirs = before.iter().zip(&after).filter(|(before, _)| **before == 3).map(|(_, after)| *after);
        assert!(shares(&heirs.collect::<Vec<_>>(), 7).iter().filter(|share| **share > 0).count() == 6);
    }
}

#[test]
fn a_modulus_without_a_server_is_that_of_the_others() {
    for distribution in [D::Modula, D::ModulaWeighted, D::PhpMemcacheStandard, D::Jump] {
        let all = servers(&[2, 1, 3, 1]);
        let others = [all[0].clone(), all[2].clone(), all[3].clone()];
        let expected: Vec<_> =
            owners(&Locator::new(&others, distribution)).iter().map(|n| [0, 2, 3][*n]).collect();
        assert_eq!(owners(&Locator::new(&all, distribution).without(&[1])), expected, "{distribution:?}");
    }
}

#[test]
fn an_ejected_server_leaves_its_buckets_empty() {
    let placement = Placement::from(D::VirtualBuckets).buckets([0, 1, 2, 1]);
    let all = Locator::new(&servers(&[1; 3]), placement);
    let less = all.without(&[1]);
    for n in 0..100 {
        let key = format!("user:{n}");
        let before = all.server_of(key.as_bytes());
        assert_eq!(less.server_of(key.as_bytes()), before.filter(|server| *server != 1));
    }
}

#[test]
fn a_new_last_server_takes_its_share_from_the_others() {
    for distribution in CONSISTENT.into_iter().chain([D::Jump]) {
        let before = owners(&Locator::new(&servers(&[1; 9]), distribution));
        let after = owners(&Locator::new(&servers(&[1; 10]), distribution));
        let moved: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
        assert!(moved.iter().all(|(_, after)| **after == 9), "{distribution:?}");
        assert!(is_about(moved.len(), KEYS as f64 / 10.0, 0.35), "{distribution:?}: {} moved", moved.len());
    }
}

#[test]
fn keys_are_shared_evenly() {
    for distribution in ALL {
        // Points on a ring are at random: with 100 a server, its share varies by a tenth. 1024 places vary more.
        let is_ring = CONSISTENT.contains(&distribution) && distribution != D::Rendezvous;
        let tolerance = if is_ring { 0.4 } else { 0.15 };
        let locator = Locator::new(&servers(&[1; 8]), distribution);
        let shares = shares(&owners(&locator), 8);
        let are_even = shares.iter().all(|share| is_about(*share, KEYS as f64 / 8.0, tolerance));
        assert!(are_even, "{distribution:?}: {shares:?}");
    }
}

#[test]
fn keys_are_shared_by_weight() {
    let weights = [1, 2, 3, 4];
    for distribution in [
        D::ModulaWeighted,
        D::Ketama,
        D::KetamaWeighted,
        D::KetamaSpy,
        D::KetamaSpyWeighted,
        D::SpymemcachedKetamaWeighted,
        D::WhalinConsistent,
        D::UhashringKetama,
        D::DalliRing,
        D::PhpMemcacheStandard,
        D::PhpMemcacheConsistent,
    ] {
        let shares = shares(&owners(&Locator::new(&servers(&weights), distribution)), 4);
        for (share, weight) in shares.iter().zip(weights) {
            let expected = KEYS as f64 * f64::from(weight) / 10.0;
            assert!(is_about(*share, expected, 0.4), "{distribution:?}: {shares:?}");
        }
    }
}

#[test]
fn one_server_has_all_keys_and_none_has_none() {
    for distribution in ALL {
        let one = Locator::new(&servers(&[3]), distribution);
        assert!(owners(&one).iter().all(|owner| *owner == 0), "{distribution:?}");
        for none in [one.without(&[0]), Locator::new(&[], distribution)] {
            assert_eq!(none.server_of(b"a"), None, "{distribution:?}");
        }
    }
}

#[test]
fn the_largest_weights_are_placed_in_bounded_memory() {
    for distribution in ALL {
        let shares = shares(&owners(&Locator::new(&servers(&[u32::MAX, 1, u32::MAX]), distribution)), 3);
        // Fifteen bits reach the first server only, and bits without a map one of the first two.
        let are_few = [D::ModulaWeighted, D::PhpMemcacheStandard, D::VirtualBuckets].contains(&distribution);
        assert!(are_few || (shares[0] > KEYS / 5 && shares[2] > KEYS / 5), "{distribution:?}: {shares:?}");
    }
}

#[test]
fn any_server_is_drawn_at_random() {
    let locator = Locator::new(&servers(&[1; 3]), D::Random);
    let drawn = |locator: &Locator| (0..100).filter_map(|_| locator.server_of(b"a")).collect::<Vec<_>>();
    assert!(shares(&drawn(&locator), 3).iter().all(|share| *share > 0));
    let less = shares(&drawn(&locator.without(&[0])), 3);
    assert!(less[0] == 0 && less[1] > 0 && less[2] > 0, "{less:?}");
}

#[test]
fn a_hash_tag_is_all_that_counts_of_a_key_that_has_one() {
    let placement = Placement::twemproxy(D::ModulaWeighted, KeyHash::Fnv32).hash_tag(b'{', b'}');
    let locator = Locator::new(&servers(&[1; 40]), placement.clone());
    let whole = Locator::new(&servers(&[1; 40]), Placement::twemproxy(D::ModulaWeighted, KeyHash::Fnv32));
    for (key, tag) in [
        ("{user}:name", "user"),
        ("a{user}", "user"),
        ("{{a}}", "{a"),
        ("{}{a}", "{}{a}"),
        ("{user", "{user"),
        ("}user{", "}user{"),
        ("user}", "user}"),
    ] {
        assert_eq!(locator.server_of(key.as_bytes()), whole.server_of(tag.as_bytes()), "{key}");
    }
    let names = Names::Given(["b".to_owned()].into());
    assert!(Locator::new(&servers(&[1; 3]), placement.names(names)).server_of(b"a").is_some());
}

#[test]
fn a_hash_of_the_callers_finds_the_same_server() {
    for distribution in [D::Modula, D::Ketama, D::KetamaWeighted, D::KetamaSpy, D::VirtualBuckets] {
        let hash = KeyHash::Fnv32a;
        let locator = Locator::new(&servers(&[1; 8]), Placement::libmemcached(distribution).hash(hash));
        for n in 0..KEYS {
            let key = format!("user:{n}");
            let own = hash.of(key.as_bytes(), Default::default()) as u32;
            let found = locator.server_of_hash(own);
            assert_eq!(found, locator.server_of(key.as_bytes()), "{distribution:?}, {key}");
        }
    }
}
