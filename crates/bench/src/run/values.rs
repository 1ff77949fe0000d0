//! What is in a value, where it is not verified.

use fastrand::Rng;

use super::mix;
use crate::scenario::Content;

/// Hands out values as slices of one large piece, made once.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    pool: Vec<u8>,
    /// Values begin at any of so many places of the pool, so that those of different keys differ.
    places: u64,
    is_number: bool,
}

impl Contents {
    /// For values of up to `bytes_max`.
    pub(crate) fn new(content: &Content, bytes_max: usize, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let (places, is_number) = match content {
            Content::Random | Content::Text => (PLACES, false),
            Content::Repeated(_) => (1, false),
            Content::Number => (1, true),
        };
        let bytes = bytes_max + places as usize;
        let mut pool = Vec::with_capacity(bytes);
        match content {
            Content::Random => pool.resize_with(bytes, || random.u8(..)),
            Content::Text => {
                while pool.len() < bytes {
                    write_word(&mut pool, &mut random);
                }
            }
            Content::Repeated(pattern) => pool.extend(pattern.bytes().cycle().take(bytes)),
            Content::Number => {}
        }
        pool.resize(bytes, b' ');
        Self { pool, places, is_number }
    }

    /// A value of `bytes` for key `number`. A number has as many digits as it needs; it is written into `buffer`.
    #[inline]
    pub(crate) fn of<'a>(&'a self, number: u64, bytes: usize, buffer: &'a mut itoa::Buffer) -> &'a [u8] {
        if self.is_number {
            return buffer.format(mix(number) % NUMBER_MAX).as_bytes();
        }
        let place = if self.places == 1 { 0 } else { mix(number) % self.places } as usize;
        &self.pool[place..place + bytes]
    }

    /// Values are decimal numbers, for incr and decr.
    pub(crate) fn is_number(&self) -> bool {
        self.is_number
    }
}

/// A word of a few letters, common words more often than rare ones: about what a page of text compresses like.
fn write_word(text: &mut Vec<u8>, random: &mut Rng) {
    // Squaring favours the low numbers.
    let share = random.f64() * random.f64();
    let mut word = Rng::with_seed((share * WORDS) as u64);
    for _ in 0..word.usize(2..10) {
        text.push(b'a' + word.u8(0..26));
    }
    text.push(b' ');
}

const PLACES: u64 = 64 << 10;
const WORDS: f64 = 600.0;
/// Leaves room for many an incr before the number wraps.
const NUMBER_MAX: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_length_and_stay_the_same() {
        for content in
            [Content::Random, Content::Text, Content::Repeated("abc".into()), Content::Repeated("".into())]
        {
            let contents = Contents::new(&content, 1000, 1);
            for bytes in [0, 1, 1000] {
                let mut buffer = itoa::Buffer::new();
                let value = contents.of(7, bytes, &mut buffer).to_vec();
                assert_eq!(value.len(), bytes);
                assert_eq!(contents.of(7, bytes, &mut buffer), value);
            }
        }
        let repeated = Contents::new(&Content::Repeated("abc".into()), 10, 1);
        assert_eq!(repeated.of(5, 7, &mut itoa::Buffer::new()), b"abcabca");
    }

    #[test]
    fn a_number_is_one() {
        let contents = Contents::new(&Content::Number, 100, 1);
        let mut buffer = itoa::Buffer::new();
        let text = std::str::from_utf8(contents.of(3, 100, &mut buffer)).unwrap();
        assert!(text.parse::<u64>().unwrap() < NUMBER_MAX);
    }
}
