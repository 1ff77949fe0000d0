//! Values with types, and JSON.

use super::{AsyncClient, StoreOptions};
use crate::client::StoreOutcome;
use crate::codec::Mode;
use crate::value::{Transcoder, Value};
use crate::{Error, Ttl};

/// Values with their types, as the clients of other languages keep them: [`AsyncClient::values`].
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    client: &'a AsyncClient,
    transcoder: Transcoder,
}

impl AsyncClient {
    /// Values with their types, in the dialect of a transcoder, and compressed as it says.
    ///
    /// ```no_run
    /// # async fn example(client: larder_client::AsyncClient) -> Result<(), larder_client::Error> {
    /// use std::time::Duration;
    /// use larder_client::value::{Dialect, Transcoder, Value};
    ///
    /// // What a PHP application stores, and what it can read.
    /// let php = client.values(Transcoder::new(Dialect::PhpMemcached));
    /// if let Some(Value::Integer(visits)) = php.get("visits").await? {
    ///     println!("{visits} visits");
    /// }
    /// php.set("greeting", "hello", Duration::from_secs(3600)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn values(&self, transcoder: Transcoder) -> Values<'_> {
        Values { client: self, transcoder }
    }
}

/// All fail with the errors of an [`AsyncClient`], and with [`Error::Value`]: the value is not in the dialect, or
/// larger than the transcoder allows. What is refused has not been sent.
impl Values<'_> {
    /// The value of a key.
    ///
    /// # Errors
    /// See [`Values`].
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        let Some(item) = self.client.get(key).await? else { return Ok(None) };
        Ok(Some(self.transcoder.decode(item.value, item.client_flags)?))
    }

    /// Stores a value unconditionally.
    ///
    /// # Errors
    /// See [`Values`].
    pub async fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Value>,
        ttl: impl Into<Ttl>,
    ) -> Result<(), Error> {
        let (value, options) = self.encode(&value.into(), Mode::Set, ttl.into())?;
        self.client.set_with(key.as_ref(), value, options).await
    }

    /// Stores a value if the key does not exist.
    ///
    /// # Errors
    /// See [`Values`].
    pub async fn add(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Value>,
        ttl: impl Into<Ttl>,
    ) -> Result<StoreOutcome, Error> {
        let (value, options) = self.encode(&value.into(), Mode::Add, ttl.into())?;
        self.client.store(key, value, options).await
    }

    fn encode(&self, value: &Value, mode: Mode, ttl: Ttl) -> Result<(Vec<u8>, StoreOptions), Error> {
        let encoded = self.transcoder.encode(value)?;
        let client_flags = encoded.client_flags;
        Ok((encoded.bytes, StoreOptions { mode, ttl, client_flags, compare: None }))
    }
}

#[cfg(feature = "serde")]
mod json {
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::{AsyncClient, Error, StoreOutcome, Transcoder, Ttl, Value, Values};
    use crate::value::Dialect;

    /// Values of any type that serde knows, as JSON. Their flags are those of [`Dialect::Plain`]; for those of another
    /// client, or compressed, see [`AsyncClient::values`].
    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    impl AsyncClient {
        /// The value of a key, read as JSON.
        ///
        /// ```no_run
        /// # async fn example(client: larder_client::AsyncClient) -> Result<(), larder_client::Error> {
        /// use std::time::Duration;
        ///
        /// #[derive(serde::Serialize, serde::Deserialize)]
        /// struct User { name: String, logins: u32 }
        ///
        /// let user = User { name: "Ada".into(), logins: 3 };
        /// client.set_json("user:1", &user, Duration::from_secs(60)).await?;
        /// let found: Option<User> = client.get_json("user:1").await?;
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// # Errors
        /// See [`Values::get_json`].
        pub async fn get_json<T: DeserializeOwned>(&self, key: impl AsRef<[u8]>) -> Result<Option<T>, Error> {
            self.values(PLAIN()).get_json(key).await
        }

        /// Stores a value as JSON.
        ///
        /// # Errors
        /// See [`Values::set_json`].
        pub async fn set_json<T: Serialize + ?Sized>(
            &self,
            key: impl AsRef<[u8]>,
            value: &T,
            ttl: impl Into<Ttl>,
        ) -> Result<(), Error> {
            self.values(PLAIN()).set_json(key, value, ttl).await
        }

        /// Stores a value as JSON if the key does not exist.
        ///
        /// # Errors
        /// See [`Values::set_json`].
        pub async fn add_json<T: Serialize + ?Sized>(
            &self,
            key: impl AsRef<[u8]>,
            value: &T,
            ttl: impl Into<Ttl>,
        ) -> Result<StoreOutcome, Error> {
            self.values(PLAIN()).add_json(key, value, ttl).await
        }
    }

    /// JSON, in the dialects that have it.
    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    impl Values<'_> {
        /// The value of a key, read as JSON: what is kept as JSON, and text, bytes, numbers and booleans that are JSON
        /// as well. Objects that another language serialized are not deserialized.
        ///
        /// # Errors
        /// See [`Values`]; [`Error::Json`]: it is not JSON, or not a `T`.
        pub async fn get_json<T: DeserializeOwned>(&self, key: impl AsRef<[u8]>) -> Result<Option<T>, Error> {
            let Some(value) = self.get(key).await? else { return Ok(None) };
            Ok(Some(value.read_json()?))
        }

        /// Stores a value as JSON.
        ///
        /// # Errors
        /// See [`Values`]; [`Error::Json`]: JSON has no such value.
        pub async fn set_json<T: Serialize + ?Sized>(
            &self,
            key: impl AsRef<[u8]>,
            value: &T,
            ttl: impl Into<Ttl>,
        ) -> Result<(), Error> {
            self.set(key, Value::to_json(value)?, ttl).await
        }

        /// Stores a value as JSON if the key does not exist.
        ///
        /// # Errors
        /// See [`Values::set_json`].
        pub async fn add_json<T: Serialize + ?Sized>(
            &self,
            key: impl AsRef<[u8]>,
            value: &T,
            ttl: impl Into<Ttl>,
        ) -> Result<StoreOutcome, Error> {
            self.add(key, Value::to_json(value)?, ttl).await
        }
    }

    const PLAIN: fn() -> Transcoder = || Transcoder::new(Dialect::Plain);
}
