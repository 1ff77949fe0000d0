//! Notes of the own log: how far this site is, and how far it is in the others' logs.

use larder_replication::entry::Beat;
use larder_replication::lineage::{EndedRun, Lineage};
use larder_replication::members::{CopyExtent, Cursor, Position, Standing};
use larder_store::NOTE_BYTES_MAX;

/// The name of the note of the last beat.
pub(super) const BEAT: &[u8] = b"replication/beat";
/// The name of the note of this site: [`encode_own`].
pub(super) const OWN: &[u8] = b"replication/own";
/// The name of the note that this site has heard all others once, or was the first: its value says nothing.
pub(super) const READY: &[u8] = b"replication/ready";
/// Name of the note that holds the log's runs: [`encode_runs`].
pub(super) const RUNS: &[u8] = b"replication/runs";
/// Name of the note that the log goes on under another incarnation: [`encode_renewed`].
pub(super) const RENEWED: &[u8] = b"replication/renewed";
const COPY: &[u8] = b"replication/copy/";
const COPY_FOR: &[u8] = b"replication/copy-for/";
const POSITION: &[u8] = b"replication/site/";

/// The name of the note of another site's position.
pub(super) fn name_of(site: u8) -> Vec<u8> {
    [POSITION, site.to_string().as_bytes()].concat()
}

/// True if a note of this name is a position.
pub(super) fn is_position(name: &[u8]) -> bool {
    name.starts_with(POSITION)
}

/// A copy of another site that is being taken, up to the last piece that is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TakenCopy {
    /// Of the log that it is a copy of; 0: there is no copy.
    pub(super) incarnation: u64,
    /// The sequence that it ends with.
    pub(super) start: u64,
    /// Applied so far.
    pub(super) bytes: u64,
    /// Keys that it has named, if it is to be swept.
    pub(super) named: u64,
    /// Of the file that has them.
    pub(super) named_id: u64,
    /// Behind which it goes on; empty: it begins.
    pub(super) position: Vec<u8>,
}

/// The name of the note of the copy of another site.
pub(super) fn name_of_copy(site: u8) -> Vec<u8> {
    [COPY, site.to_string().as_bytes()].concat()
}

/// The site whose copy a note of this name is about.
pub(super) fn site_of_copy(name: &[u8]) -> Option<u8> {
    std::str::from_utf8(name.strip_prefix(COPY)?).ok()?.parse().ok()
}

/// The name of the note of the copy of this site that another one takes.
pub(super) fn name_of_copy_for(site: u8) -> Vec<u8> {
    [COPY_FOR, site.to_string().as_bytes()].concat()
}

/// The site for which the copy is that a note of this name is about.
pub(super) fn site_of_copy_for(name: &[u8]) -> Option<u8> {
    std::str::from_utf8(name.strip_prefix(COPY_FOR)?).ok()?.parse().ok()
}

pub(super) fn encode_extent(copy: &CopyExtent) -> Vec<u8> {
    let CopyExtent { start, horizon, others } = copy;
    let numbers = [start, horizon].map(|number| number.to_le_bytes());
    others.iter().fold(numbers.concat(), |bytes, position| [bytes, encode_position(position)].concat())
}

/// `None`: there is no copy.
pub(super) fn decode_extent(bytes: &[u8]) -> Option<CopyExtent> {
    let (numbers, others) = bytes.split_at_checked(16)?;
    let [start, horizon] = numbers_of(numbers)?;
    let others = others.chunks(POSITION_BYTES).map(decode_position).collect::<Option<_>>()?;
    Some(CopyExtent { start, horizon, others })
}

/// `None`: it is too long for a note.
pub(super) fn encode_copy(copy: &TakenCopy) -> Option<Vec<u8>> {
    let TakenCopy { incarnation, start, bytes, named, named_id, position } = copy;
    let numbers = [incarnation, start, bytes, named, named_id].map(|number| number.to_le_bytes());
    let encoded = [numbers.as_flattened(), position].concat();
    (encoded.len() <= NOTE_BYTES_MAX).then_some(encoded)
}

pub(super) fn decode_copy(bytes: &[u8]) -> Option<TakenCopy> {
    let (numbers, position) = bytes.split_at_checked(40)?;
    let [incarnation, start, bytes, named, named_id] = numbers_of(numbers)?;
    let position = position.to_vec();
    let copy = TakenCopy { incarnation, start, bytes, named, named_id, position };
    (incarnation != 0).then_some(copy)
}

pub(super) fn encode_position(position: &Position) -> Vec<u8> {
    let Position { site, standing, incarnation, cursor, beat, confirmed } = *position;
    let standing = match standing {
        Standing::In => 0,
        Standing::Joining => 1,
        Standing::Restored => 2,
        Standing::Silent => 3,
        Standing::Removed => 4,
    };
    let mut bytes = vec![site, standing];
    for number in [incarnation, cursor.incarnation, cursor.sequence] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&encode_beat(&beat));
    for number in [cursor.run, confirmed.incarnation, confirmed.sequence] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes
}

pub(super) fn decode_position(bytes: &[u8]) -> Option<Position> {
    let (&[site, standing], numbers) = bytes.split_first_chunk()?;
    let standing = match standing {
        0 => Standing::In,
        1 => Standing::Joining,
        2 => Standing::Restored,
        3 => Standing::Silent,
        4 => Standing::Removed,
        _ => return None,
    };
    // A note without the last three fields was written before they existed.
    let later = numbers.get(48..).filter(|later| !later.is_empty());
    let [run, own, confirmed] = later.map_or(Some([0; 3]), numbers_of)?;
    let [incarnation, of_log, sequence, clock, stable, horizon] = numbers_of(numbers.get(..48)?)?;
    let cursor = Cursor { incarnation: of_log, run, sequence };
    let confirmed = Cursor { incarnation: own, run: 0, sequence: confirmed };
    Some(Position { site, standing, incarnation, cursor, beat: Beat { clock, stable, horizon }, confirmed })
}

pub(super) fn encode_beat(beat: &Beat) -> Vec<u8> {
    [beat.clock, beat.stable, beat.horizon].iter().flat_map(|number| number.to_le_bytes()).collect()
}

pub(super) fn decode_beat(bytes: &[u8]) -> Option<Beat> {
    let [clock, stable, horizon] = numbers_of(bytes)?;
    Some(Beat { clock, stable, horizon })
}

/// The number of this site, and the incarnation that its log had when it last ran.
pub(super) fn encode_own(site: u8, incarnation: u64) -> Vec<u8> {
    [&[site][..], &incarnation.to_le_bytes()].concat()
}

pub(super) fn decode_own(bytes: &[u8]) -> Option<(u8, u64)> {
    let (&site, incarnation) = bytes.split_first()?;
    Some((site, u64::from_le_bytes(incarnation.try_into().ok()?)))
}

pub(super) fn encode_runs(lineage: &Lineage) -> Vec<u8> {
    let Lineage { unknown_to, ended, last } = lineage;
    let ended = ended.iter().flat_map(|EndedRun { run, end }| [*run, *end]);
    [*unknown_to, *last].into_iter().chain(ended).flat_map(u64::to_le_bytes).collect()
}

pub(super) fn decode_runs(bytes: &[u8]) -> Option<Lineage> {
    let (numbers, ended) = bytes.split_at_checked(16)?;
    let [unknown_to, last] = numbers_of(numbers)?;
    let ended = ended.chunks(16).map(|ended| numbers_of(ended).map(|[run, end]| EndedRun { run, end }));
    Some(Lineage { unknown_to, ended: ended.collect::<Option<_>>()?, last })
}

/// Note that the log goes on under another incarnation, since the store was found to be an older copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Renewed {
    /// The store's own incarnation at the time: if the store has another one, this note no longer applies.
    pub(super) of: u64,
    /// Incarnation of the log from here on.
    pub(super) incarnation: u64,
    /// Reason for the finding; empty: the site has taken a copy of another one since.
    pub(super) why: String,
}

pub(super) fn encode_renewed(renewed: &Renewed) -> Vec<u8> {
    let numbers = [renewed.of, renewed.incarnation].map(u64::to_le_bytes);
    let room = NOTE_BYTES_MAX - numbers.as_flattened().len();
    let end = (0..=renewed.why.len().min(room)).rev().find(|end| renewed.why.is_char_boundary(*end));
    [numbers.as_flattened(), &renewed.why.as_bytes()[..end.unwrap_or_default()]].concat()
}

pub(super) fn decode_renewed(bytes: &[u8]) -> Option<Renewed> {
    let (numbers, why) = bytes.split_at_checked(16)?;
    let [of, incarnation] = numbers_of(numbers)?;
    Some(Renewed { of, incarnation, why: String::from_utf8(why.to_vec()).ok()? })
}

/// Exactly so many numbers.
fn numbers_of<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (numbers, []) = bytes.as_chunks::<8>() else { return None };
    <[[u8; 8]; N]>::try_from(numbers).ok().map(|numbers| numbers.map(u64::from_le_bytes))
}

/// Two bytes and nine numbers.
const POSITION_BYTES: usize = 74;

#[cfg(test)]
mod tests {
    use larder_replication::lineage::RUNS_MAX;

    use super::*;

    #[test]
    fn notes_are_read_as_they_were_written() {
        let beat = Beat { clock: 3, stable: 2, horizon: 1 };
        use Standing::{In, Joining, Removed, Restored, Silent};
        for standing in [In, Joining, Restored, Silent, Removed] {
            let cursor = Cursor { incarnation: 8, run: 4, sequence: 9 };
            let confirmed = Cursor { incarnation: 3, run: 0, sequence: 2 };
            let position = Position { site: 7, standing, incarnation: 6, cursor, beat, confirmed };
            let bytes = encode_position(&position);
            assert_eq!(decode_position(&bytes), Some(position));
            assert_eq!((decode_position(&bytes[1..]), decode_position(&bytes[..58])), (None, None));
            let cursor = Cursor { run: 0, ..cursor };
            let earlier = Position { cursor, confirmed: Cursor::default(), ..position };
            assert_eq!(
                decode_position(&bytes[..50]),
                Some(earlier),
                "as it was noted before there were runs"
            );
            let extent = CopyExtent { start: 10, horizon: 11, others: vec![position; 7] };
            let bytes = encode_extent(&extent);
            assert!(bytes.len() <= NOTE_BYTES_MAX);
            assert_eq!((decode_extent(&bytes), decode_extent(&bytes[1..])), (Some(extent), None));
        }
        let ended = (0..RUNS_MAX as u64).map(|run| EndedRun { run, end: 10 * run }).collect();
        let lineage = Lineage { unknown_to: 5, ended, last: 9 };
        let bytes = encode_runs(&lineage);
        assert!(bytes.len() <= NOTE_BYTES_MAX);
        assert_eq!((decode_runs(&bytes), decode_runs(&bytes[8..])), (Some(lineage), None));
        for why in ["", "it is behind"] {
            let renewed = Renewed { of: 1, incarnation: 2, why: why.into() };
            assert_eq!(decode_renewed(&encode_renewed(&renewed)), Some(renewed));
        }
        let long = Renewed { of: 1, incarnation: 2, why: "\u{e4}".repeat(600) };
        assert_eq!(encode_renewed(&long).len(), NOTE_BYTES_MAX);
        assert_eq!(decode_extent(b""), None);
        assert_eq!(
            (site_of_copy_for(&name_of_copy_for(7)), site_of_copy(&name_of_copy_for(7))),
            (Some(7), None)
        );
        assert_eq!(decode_beat(&encode_beat(&beat)), Some(beat));
        let position = b"here".to_vec();
        let copy = TakenCopy { incarnation: 1, start: 2, bytes: 4, named: 5, named_id: 6, position };
        let encoded = encode_copy(&copy).expect("it is short");
        assert_eq!((decode_copy(&encoded), decode_copy(&encoded[..39])), (Some(copy.clone()), None));
        assert_eq!(encode_copy(&TakenCopy { position: vec![0; 1000], ..copy }), None);
        assert_eq!(encode_copy(&TakenCopy::default()).and_then(|none| decode_copy(&none)), None);
        assert_eq!((site_of_copy(&name_of_copy(7)), site_of_copy(&name_of(7))), (Some(7), None));
        assert_eq!((decode_own(&encode_own(5, 77)), decode_own(b"x")), (Some((5, 77)), None));
    }
}
