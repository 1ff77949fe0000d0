//! How keys and values become bytes.

use std::fmt;
use std::sync::Arc;

use arrayvec::ArrayVec;

/// Turns keys and values into bytes: the third parameter of [`Cache`](crate::Cache).
///
/// [`Plain`] does it for strings, bytes, numbers and tuples of them, without a copy where the value is bytes already.
/// `Postcard` (with the feature `postcard`) does it for every type that serde knows. Another codec, say one that
/// compresses, is an empty type that implements this trait and, for values, [`Decode`]:
///
/// ```
/// use larder_engine::{Buffer, Cache, Decode, Encode, EncodeError};
///
/// #[derive(Debug, PartialEq)]
/// struct Point { x: i32, y: i32 }
///
/// enum Points {}
///
/// impl Encode<str> for Points {
///     fn encode<'a>(key: &'a str, _: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
///         Ok(key.as_bytes())
///     }
/// }
///
/// impl Encode<Point> for Points {
///     fn encode<'a>(point: &'a Point, buffer: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
///         buffer.extend_from_slice(&point.x.to_le_bytes());
///         buffer.extend_from_slice(&point.y.to_le_bytes());
///         Ok(buffer.as_slice())
///     }
/// }
///
/// impl Decode<Point> for Points {
///     fn decode(bytes: &[u8]) -> Option<Point> {
///         let (x, y) = bytes.split_first_chunk()?;
///         Some(Point { x: i32::from_le_bytes(*x), y: i32::from_le_bytes(y.try_into().ok()?) })
///     }
/// }
///
/// let cache: Cache<String, Point, Points> = Cache::with_codec(1 << 20)?;
/// cache.insert("origin", &Point { x: 0, y: 0 });
/// assert_eq!(cache.get("origin"), Some(Point { x: 0, y: 0 }));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Keys are compared by their bytes, so equal keys must have equal bytes, and others different ones. A type and what it
/// borrows as, such as `String` and `str`, must have the same bytes.
#[diagnostic::on_unimplemented(
    message = "the codec `{Self}` does not encode `{T}`",
    note = "`Plain` encodes strings, bytes, numbers and tuples; for types with serde, `Cache<K, V, Postcard>`"
)]
pub trait Encode<T: ?Sized> {
    /// The bytes of a value: its own, or what this writes to the buffer, which is empty.
    ///
    /// Errors: the value has no bytes in this encoding. Then it is not stored.
    fn encode<'a>(value: &'a T, buffer: &'a mut Buffer) -> Result<&'a [u8], EncodeError>;
}

/// Turns bytes into values again: see [`Encode`].
#[diagnostic::on_unimplemented(
    message = "the codec `{Self}` does not decode `{T}`",
    note = "`Plain` decodes strings, bytes, numbers and tuples; for types with serde, `Cache<K, V, Postcard>`"
)]
pub trait Decode<T> {
    /// The value that was encoded as these bytes. `None`: they are no value. That is a miss, counted in
    /// [`CacheStats::decode_errors`](crate::CacheStats::decode_errors).
    ///
    /// The bytes lie in the cache, which cannot reuse any memory before this returns. Do not wait for anything here.
    fn decode(bytes: &[u8]) -> Option<T>;
}

/// A value that a codec could not encode. The message says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodeError(Arc<str>);

impl EncodeError {
    /// With a message for people.
    pub fn new(message: impl fmt::Display) -> Self {
        Self(message.to_string().into())
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EncodeError {}

/// Where a codec writes what it encodes. Up to 128 bytes are on the stack.
#[derive(Debug, Default)]
pub struct Buffer {
    /// All that was written, or nothing once there is more.
    short: ArrayVec<u8, 128>,
    long: Vec<u8>,
}

impl Buffer {
    pub(super) const fn new() -> Self {
        Self { short: ArrayVec::new_const(), long: Vec::new() }
    }

    /// Appends bytes.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        if !self.long.is_empty() || self.short.try_extend_from_slice(bytes).is_err() {
            self.extend_long(bytes);
        }
    }

    #[cold]
    fn extend_long(&mut self, bytes: &[u8]) {
        self.long.extend_from_slice(&self.short);
        self.short.clear();
        self.long.extend_from_slice(bytes);
    }

    /// What was written.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        if self.long.is_empty() { &self.short } else { &self.long }
    }
}

impl Extend<u8> for Buffer {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, bytes: I) {
        bytes.into_iter().for_each(|byte| self.extend_from_slice(&[byte]));
    }
}

/// The codec of simple types: `str`, `String`, `[u8]`, `Vec<u8>`, `[u8; N]`, boxes and `Arc`s of strings and bytes,
/// integers, floats, `bool`, `char`, `()`, and tuples of up to four of these.
///
/// Strings and bytes are stored as they are. Numbers have their size in bytes, little-endian; `usize` and `isize` have
/// eight. In a tuple, each part has its length in four bytes before it.
#[derive(Clone, Copy, Debug)]
pub enum Plain {}

/// Types that are bytes already.
macro_rules! bytes {
    ($($type:ty: $as_bytes:expr, $from_bytes:expr;)*) => {$(
        impl Encode<$type> for Plain {
            #[inline]
            fn encode<'a>(value: &'a $type, _: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
                let as_bytes: fn(&$type) -> &[u8] = $as_bytes;
                Ok(as_bytes(value))
            }
        }

        impl Decode<$type> for Plain {
            #[inline]
            fn decode(bytes: &[u8]) -> Option<$type> {
                let from_bytes: fn(&[u8]) -> Option<$type> = $from_bytes;
                from_bytes(bytes)
            }
        }
    )*};
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

bytes! {
    String: |text| text.as_bytes(), |bytes| text(bytes).map(str::to_owned);
    Box<str>: |text| text.as_bytes(), |bytes| text(bytes).map(Self::from_text);
    Arc<str>: |text| text.as_bytes(), |bytes| text(bytes).map(Self::from_text);
    Vec<u8>: |bytes| bytes, |bytes| Some(bytes.to_vec());
    Box<[u8]>: |bytes| bytes, |bytes| Some(bytes.into());
    Arc<[u8]>: |bytes| bytes, |bytes| Some(bytes.into());
    (): |()| &[], |bytes| bytes.is_empty().then_some(());
}

impl Plain {
    fn from_text<'a, T: From<&'a str>>(text: &'a str) -> T {
        text.into()
    }
}

impl Encode<str> for Plain {
    #[inline]
    fn encode<'a>(text: &'a str, _: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
        Ok(text.as_bytes())
    }
}

impl Encode<[u8]> for Plain {
    #[inline]
    fn encode<'a>(bytes: &'a [u8], _: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
        Ok(bytes)
    }
}

impl<const N: usize> Encode<[u8; N]> for Plain {
    #[inline]
    fn encode<'a>(bytes: &'a [u8; N], _: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
        Ok(bytes)
    }
}

impl<const N: usize> Decode<[u8; N]> for Plain {
    #[inline]
    fn decode(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
}

macro_rules! numbers {
    ($($type:ty as $stored:ty),*) => {$(
        impl Encode<$type> for Plain {
            #[inline]
            fn encode<'a>(number: &'a $type, buffer: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
                buffer.extend_from_slice(&(*number as $stored).to_le_bytes());
                Ok(buffer.as_slice())
            }
        }

        impl Decode<$type> for Plain {
            #[inline]
            fn decode(bytes: &[u8]) -> Option<$type> {
                Some(<$stored>::from_le_bytes(bytes.try_into().ok()?) as $type)
            }
        }
    )*};
}

numbers! {
    u8 as u8, u16 as u16, u32 as u32, u64 as u64, u128 as u128, usize as u64,
    i8 as i8, i16 as i16, i32 as i32, i64 as i64, i128 as i128, isize as i64,
    f32 as f32, f64 as f64
}

impl Encode<bool> for Plain {
    #[inline]
    fn encode<'a>(value: &'a bool, _: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
        Ok(if *value { &[1] } else { &[0] })
    }
}

impl Decode<bool> for Plain {
    #[inline]
    fn decode(bytes: &[u8]) -> Option<bool> {
        match bytes {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl Encode<char> for Plain {
    #[inline]
    fn encode<'a>(value: &'a char, buffer: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
        buffer.extend_from_slice(&u32::from(*value).to_le_bytes());
        Ok(buffer.as_slice())
    }
}

impl Decode<char> for Plain {
    #[inline]
    fn decode(bytes: &[u8]) -> Option<char> {
        char::from_u32(u32::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// Encodes a part of a tuple.
fn encode_part<T: ?Sized>(part: &T, buffer: &mut Buffer) -> Result<(), EncodeError>
where
    Plain: Encode<T>,
{
    let mut part_buffer = Buffer::new();
    let bytes = Plain::encode(part, &mut part_buffer)?;
    let part_bytes =
        u32::try_from(bytes.len()).map_err(|_| EncodeError::new("a part of a tuple is over 4 GiB"))?;
    buffer.extend_from_slice(&part_bytes.to_le_bytes());
    buffer.extend_from_slice(bytes);
    Ok(())
}

/// Decodes the first part, and leaves the others.
fn decode_part<T>(bytes: &mut &[u8]) -> Option<T>
where
    Plain: Decode<T>,
{
    let (part_bytes, rest) = bytes.split_first_chunk()?;
    let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*part_bytes) as usize)?;
    *bytes = rest;
    Plain::decode(part)
}

macro_rules! tuples {
    ($(($($part:ident),*);)*) => {$(
        impl<$($part),*> Encode<($($part,)*)> for Plain
        where
            $(Self: Encode<$part>,)*
        {
            fn encode<'a>(
                tuple: &'a ($($part,)*),
                buffer: &'a mut Buffer,
            ) -> Result<&'a [u8], EncodeError> {
                #[allow(non_snake_case)]
                let ($($part,)*) = tuple;
                $(encode_part($part, buffer)?;)*
                Ok(buffer.as_slice())
            }
        }

        impl<$($part),*> Decode<($($part,)*)> for Plain
        where
            $(Self: Decode<$part>,)*
        {
            fn decode(mut bytes: &[u8]) -> Option<($($part,)*)> {
                let tuple = ($(decode_part::<$part>(&mut bytes)?,)*);
                bytes.is_empty().then_some(tuple)
            }
        }
    )*};
}

tuples! {
    (A);
    (A, B);
    (A, B, C);
    (A, B, C, D);
}

/// The codec of all types that serde knows, by [postcard](https://docs.rs/postcard): numbers take as few bytes as they
/// need, and names of fields take none.
///
/// Types whose serialization depends on their contents, as with `skip_serializing_if`, cannot be read back. Such a
/// value is a miss and counts in [`CacheStats::decode_errors`](crate::CacheStats::decode_errors). Values that are bytes
/// are much faster with [`Plain`], or with `serde_bytes`: to serde a `Vec<u8>` is a sequence of numbers.
#[cfg(feature = "postcard")]
#[derive(Clone, Copy, Debug)]
pub enum Postcard {}

#[cfg(feature = "postcard")]
impl<T: serde::Serialize + ?Sized> Encode<T> for Postcard {
    fn encode<'a>(value: &'a T, buffer: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
        postcard::serialize_with_flavor(value, Writer(buffer)).map_err(EncodeError::new)?;
        Ok(buffer.as_slice())
    }
}

/// Postcard's way to a buffer.
#[cfg(feature = "postcard")]
struct Writer<'b>(&'b mut Buffer);

#[cfg(feature = "postcard")]
impl postcard::ser_flavors::Flavor for Writer<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.extend_from_slice(&[byte]);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

#[cfg(feature = "postcard")]
impl<T: serde::de::DeserializeOwned> Decode<T> for Postcard {
    fn decode(bytes: &[u8]) -> Option<T> {
        match postcard::take_from_bytes(bytes) {
            Ok((value, [])) => Some(value),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn check<T: Debug + PartialEq>(values: impl IntoIterator<Item = T>)
    where
        Plain: Encode<T> + Decode<T>,
    {
        let mut encodings = std::collections::HashSet::new();
        for value in values {
            let mut buffer = Buffer::new();
            let bytes = Plain::encode(&value, &mut buffer).unwrap().to_vec();
            assert_eq!(<Plain as Decode<T>>::decode(&bytes).as_ref(), Some(&value));
            assert!(encodings.insert(bytes), "{value:?} has the bytes of another");
        }
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        check(["", "a", "ä"].map(str::to_owned));
        check(["", "a", "ä"].map(Box::<str>::from));
        check(["", "a", "ä"].map(Arc::<str>::from));
        check([&b""[..], b"\0", b"\0\0", &[255; 300]].map(<[u8]>::to_vec));
        check([&b""[..], b"\0", b"\0\0", &[255; 300]].map(Box::<[u8]>::from));
        check([&b""[..], b"\0", b"\0\0", &[255; 300]].map(Arc::<[u8]>::from));
        check([[0; 3], [1; 3]]);
        check([0, 1, u8::MAX]);
        check([0, 1, u128::MAX]);
        check([0, 1, usize::MAX]);
        check([0, -1, i64::MIN, i64::MAX]);
        check([0, -1, isize::MIN]);
        check([0.0, -0.5, f64::INFINITY, f64::MIN_POSITIVE]);
        check([true, false]);
        check(['a', '\0', char::MAX]);
        check([()]);
        check([("a".to_owned(), "bc".to_owned()), ("ab".to_owned(), "c".to_owned())]);
        check([(1_u8, -2_i32, true, ()), (1, -2, false, ())]);
        check([(("a".to_owned(), 1_u64), 'x')]);
    }

    #[test]
    fn what_is_no_encoding_is_not_decoded() {
        assert_eq!(<Plain as Decode<u32>>::decode(&[1, 2, 3]), None);
        assert_eq!(<Plain as Decode<bool>>::decode(&[2]), None);
        assert_eq!(<Plain as Decode<char>>::decode(&[0, 0xd8, 0, 0]), None);
        assert_eq!(<Plain as Decode<String>>::decode(&[0xff]), None);
        assert_eq!(<Plain as Decode<()>>::decode(&[0]), None);
        assert_eq!(<Plain as Decode<(u8,)>>::decode(&[1, 0, 0, 0, 7, 7]), None);
        assert_eq!(<Plain as Decode<(u8, u8)>>::decode(&[1, 0, 0, 0, 7]), None);
        assert_eq!(<Plain as Decode<(u8,)>>::decode(&[255, 255, 255, 255, 7]), None);
    }

    #[cfg(feature = "postcard")]
    #[test]
    fn postcard_encodes_what_serde_knows() {
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        struct User {
            name: String,
            logins: Vec<u32>,
            email: Option<String>,
        }
        let user = User { name: "Ada".into(), logins: (0..500).collect(), email: None };
        let mut buffer = Buffer::new();
        let bytes = Postcard::encode(&user, &mut buffer).unwrap();
        assert_eq!(<Postcard as Decode<User>>::decode(bytes), Some(user.clone()));
        assert_eq!(<Postcard as Decode<User>>::decode(&bytes[1..]), None);
        assert_eq!(<Postcard as Decode<u8>>::decode(bytes), None, "more follows");
        let mut other = Buffer::new();
        assert_eq!(Postcard::encode("Ada", &mut other).unwrap(), b"\x03Ada");
    }
}
