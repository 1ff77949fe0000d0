//! FastLZ, which php-memcached compresses by unless told otherwise. Read only: it reads zlib as well.
//!
//! The format is that of FastLZ 0.1's `fastlz_decompress`. The three upper bits of the first byte are the level, less
//! one. Instructions follow; the first is in the lower five bits of that byte:
//!
//! - below 32, itself and 1 more: that many bytes follow as they are;
//! - else a match: the upper three bits, and 2 more, are how many bytes (7: more follows), the lower five bits and the
//!   next byte how far back they are, less one. At level 2, `more` goes on after a byte of 255, and the largest
//!   distance means that two more bytes tell how much further it is.

/// What was compressed to these bytes, of which there are `length` at most. `None`: they are not FastLZ's, or it is
/// longer. No more memory is taken than for that length.
pub(super) fn decompress(input: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut input = Input { rest: input };
    let first = input.byte()?;
    let is_level_2 = match first >> 5 {
        0 => false,
        1 => true,
        _ => return None,
    };
    let mut output = Vec::new();
    let mut instruction = usize::from(first & 31);
    loop {
        if instruction < 32 {
            let literal = input.bytes(instruction + 1)?;
            grow(&mut output, literal.len(), length)?;
            output.extend_from_slice(literal);
        } else {
            let mut count = (instruction >> 5) + 2;
            let mut distance = (instruction & 31) << 8;
            if instruction >> 5 == 7 {
                loop {
                    let more = input.byte()?;
                    count = count.checked_add(more.into())?;
                    if !is_level_2 || more != 255 {
                        break;
                    }
                }
            }
            let near = input.byte()?;
            distance += usize::from(near) + 1;
            if is_level_2 && distance == LEVEL_2_NEAR_MAX + 1 {
                let further = usize::from(input.byte()?) << 8 | usize::from(input.byte()?);
                distance += further;
            }
            let start = output.len().checked_sub(distance)?;
            grow(&mut output, count, length)?;
            // What is copied may be what was just written: a run.
            for from in start..start + count {
                output.push(*output.get(from)?);
            }
        }
        match input.byte() {
            Some(next) => instruction = next.into(),
            None => return Some(output),
        }
    }
}

/// The largest distance, less one, that an instruction has in itself.
const LEVEL_2_NEAR_MAX: usize = 8191;

/// Makes space for `count` more bytes, up to `length` in all; memory grows with what comes.
fn grow(output: &mut Vec<u8>, count: usize, length: usize) -> Option<()> {
    let needed = output.len().checked_add(count).filter(|needed| *needed <= length)?;
    if needed > output.capacity() {
        let grown = needed.max(output.capacity().saturating_mul(2)).min(length);
        output.reserve_exact(grown - output.len());
    }
    Some(())
}

struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_never_take_more_than_the_length() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200_000 {
            let mut input = [0; 40];
            random.fill(&mut input);
            let input = &mut input[..random.usize(..=40)];
            // Mostly a known level, and first a literal, or nothing could be copied.
            if let Some(first) = input.first_mut().filter(|_| random.u8(..10) > 0) {
                *first &= 0b0010_0111;
            }
            let length = random.usize(..=300);
            if let Some(output) = decompress(input, length) {
                assert!(output.len() <= length && output.capacity() <= length, "{input:?}");
            }
        }
    }

    #[test]
    fn a_run_is_as_long_as_it_says() {
        // One literal, then 9 + 255 * 4 + 3 bytes at distance 1.
        let input = [0b0010_0000, b'a', 0b1110_0000, 255, 255, 255, 255, 3, 0];
        let count = 1 + 9 + 255 * 4 + 3;
        assert_eq!(decompress(&input, count), Some(vec![b'a'; count]));
        assert_eq!(decompress(&input, count - 1), None);
        assert_eq!(decompress(&input[..input.len() - 1], count), None);
    }
}
