//! Values of the shared client, with types.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_client::client::StoreOutcome;
use larder_client::value::{Dialect, Error as BadValue, Format, Transcoder, Value};
use larder_client::{Address, AsyncClient, Error};
use larder_conformance::server::{Server, any, larderd};
use serde::{Deserialize, Serialize};

const WELL: &str = "all is well";
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct User {
    name: String,
    logins: u32,
}

#[tokio::test]
async fn values_have_types() {
    for program in [any(), larderd()] {
        let server = Server::start(&program.expect("it builds"), &[""; 0]).expect("it starts");
        let address: Address = server.address().to_string().parse().expect("an address");
        let client = AsyncClient::of(address).with_timeout(MINUTE);
        let ada = User { name: "Ada".into(), logins: 3 };
        assert_eq!(client.get_json::<User>("user").await.expect(WELL), None);
        client.set_json("user", &ada, MINUTE).await.expect(WELL);
        assert_eq!(client.get_json("user").await.expect(WELL), Some(ada));
        let exists = client.add_json("user", &1, MINUTE).await.expect(WELL);
        assert_eq!(exists, StoreOutcome::NotStored);
        let item = client.get("user").await.expect(WELL).expect("it is stored");
        assert_eq!((&item.value[..], item.client_flags), (&br#"{"name":"Ada","logins":3}"#[..], 6));

        // Another type, and what is no JSON.
        let wrong = client.get_json::<Vec<u8>>("user").await;
        assert!(matches!(&wrong, Err(Error::Json(error)) if error.is_data()), "{wrong:?}");
        client.set("text", "{", MINUTE).await.expect(WELL);
        let wrong = client.get_json::<User>("text").await;
        assert!(matches!(&wrong, Err(Error::Json(error)) if error.is_eof()), "{wrong:?}");
        let no_json = client.set_json("no", &BTreeMap::from([((1, 2), 3)]), MINUTE).await;
        assert!(matches!(no_json, Err(Error::Json(_))), "{no_json:?}");
        assert_eq!(client.get("no").await.expect(WELL), None);
        // What is JSON as well: bytes of who has no flags, numbers.
        client.set("text", r#"{"logins":1,"name":"Bob"}"#, MINUTE).await.expect(WELL);
        let bob = User { name: "Bob".into(), logins: 1 };
        assert_eq!(client.get_json("text").await.expect(WELL), Some(bob));
        let plain = client.values(Transcoder::new(Dialect::Plain));
        for (value, json) in [(Value::from(5), "5"), (Value::from(true), "true"), (Value::from(1.5), "1.5")] {
            plain.set("n", value.clone(), MINUTE).await.expect(WELL);
            assert_eq!(plain.get("n").await.expect(WELL), Some(value));
            let read: serde_json::Value = client.get_json("n").await.expect(WELL).expect("it is stored");
            assert_eq!(read.to_string(), json);
        }

        // PHP's flags, and its objects, which nothing here deserializes.
        let php = client.values(Transcoder::new(Dialect::PhpMemcached));
        php.set_json("list", &vec![0; 2000], MINUTE).await.expect(WELL);
        let item = client.get("list").await.expect(WELL).expect("it is stored");
        assert_eq!(item.client_flags, 6 | 16 | 32);
        assert_eq!(php.get_json("list").await.expect(WELL), Some(vec![0; 2000]));
        let object = || Value::Serialized { format: Format::Php, bytes: b"O:8:\"stdClass\":0:{}".to_vec() };
        php.set("object", object(), MINUTE).await.expect(WELL);
        assert_eq!(php.get("object").await.expect(WELL), Some(object()));
        let refused = php.get_json::<serde_json::Value>("object").await;
        assert!(matches!(refused, Err(Error::Value(BadValue::NotJson("an object of PHP")))), "{refused:?}");
        let unknown = client.values(Transcoder::new(Dialect::Plain)).get("list").await;
        assert!(matches!(unknown, Err(Error::Value(_))), "{unknown:?}");
        let small = client.values(Transcoder::new(Dialect::PhpMemcached).value_bytes_max(3000));
        assert!(matches!(small.get("list").await, Err(Error::Value(BadValue::TooLarge { .. }))));
    }
}
