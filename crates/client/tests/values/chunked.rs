//! Values in pieces, on a server.

use larder_client::Client;
use larder_client::value::Encoded;
use larder_client::value::chunked::{Chunked, Error, HeadError, KEY_BYTES_MAX};

use crate::start;

#[test]
fn a_value_in_pieces_is_all_of_it_or_a_miss() {
    let (_server, mut client) = start();
    let value = |bytes: usize, salt: usize| Encoded {
        bytes: (0..bytes).map(|index| ((index + salt) % 251) as u8).collect(),
        client_flags: 5,
    };

    // Larger than any item, with the pieces of the default.
    let large = value(3_500_000, 0);
    Chunked::new(&mut client).set("key", &large, 0).expect("it stores");
    assert_eq!(items(&mut client), 1 + 4);
    assert_eq!(Chunked::new(&mut client).get("key").expect("it gets"), Some(large.clone()));

    // Overwritten: other pieces, and the old ones are gone.
    let other = value(2_100_000, 1);
    Chunked::new(&mut client).set("key", &other, 0).expect("it stores");
    assert_eq!(items(&mut client), 1 + 3);
    assert_eq!(Chunked::new(&mut client).get("key").expect("it gets"), Some(other));
    let small = value(10, 2);
    Chunked::new(&mut client).set("key", &small, 0).expect("it stores");
    assert_eq!(items(&mut client), 1);
    assert_eq!(Chunked::new(&mut client).get("key").expect("it gets"), Some(small.clone()));
    let plain = client.get("key").expect("it gets").expect("it is there");
    assert_eq!((plain.value, plain.client_flags), (small.bytes, 5));

    // Deleted with its pieces.
    Chunked::new(&mut client).set("key", &large, 0).expect("it stores");
    assert!(Chunked::new(&mut client).delete("key").expect("it deletes"));
    assert_eq!(items(&mut client), 0);
    assert_eq!(Chunked::new(&mut client).get("key").expect("it gets"), None);
    assert!(!Chunked::new(&mut client).delete("key").expect("it deletes"));

    // Without a piece, or with one of another write, it is a miss.
    let mut chunked = Chunked::new(&mut client).piece_bytes(1000);
    chunked.set("key", &value(2500, 3), 0).expect("it stores");
    let head = client.get("key").expect("it gets").expect("it is there");
    let line = String::from_utf8(head.value).expect("text");
    let generation = line.trim_end().rsplit(' ').next().expect("a generation");
    let piece = format!("key:{generation}:1");
    let stored = client.get(&piece).expect("it gets").expect("it is there");
    assert_eq!(stored.value, value(2500, 3).bytes[1000..2000]);
    client.set(&piece, &value(1000, 77).bytes, 0).expect("it stores");
    assert_eq!(Chunked::new(&mut client).get("key").expect("it gets"), None);
    client.delete(&piece).expect("it deletes");
    assert_eq!(Chunked::new(&mut client).get("key").expect("it gets"), None);
    client.set(&piece, &stored.value, 0).expect("it stores");
    assert_eq!(Chunked::new(&mut client).get("key").expect("it gets"), Some(value(2500, 3)));

    // Refused before anything is stored.
    client.flush_all(0);
    let refused = Chunked::new(&mut client).value_bytes_max(100).set("key", &value(101, 0), 0);
    assert!(matches!(refused, Err(Error::Head(HeadError::TooLarge))));
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    assert!(Chunked::new(&mut client).piece_bytes(10).set(&long, &value(11, 0), 0).is_err());
    Chunked::new(&mut client).piece_bytes(10).set(&long[1..], &value(999_999, 0), 0).expect("it stores");
    let refused = Chunked::new(&mut client).value_bytes_max(100).get(&long[1..]);
    assert!(matches!(refused, Err(Error::Head(HeadError::TooLarge))));
}

fn items(client: &mut Client) -> u64 {
    let (_, stats) = client.stats("").pop().expect("there is a server");
    let stats = stats.expect("it answers");
    let (_, count) = stats.iter().find(|(name, _)| name == "curr_items").expect("it counts");
    count.parse().expect("a number")
}
