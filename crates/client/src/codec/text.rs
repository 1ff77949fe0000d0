//! The text protocol. Source: memcached, doc/protocol.txt.

use super::due::Queue;
use super::{Arith, Delete, Event, Get, Store, Touch, Violation};

pub(super) fn get(output: &mut Vec<u8>, get: &Get<'_>, key: &[u8]) {
    begin_get(output, get);
    output.push(b' ');
    output.extend_from_slice(key);
    output.extend_from_slice(b"\r\n");
}

pub(super) fn begin_get(_output: &mut Vec<u8>, _get: &Get<'_>) {
    todo!()
}
pub(super) fn store(_output: &mut Vec<u8>, _store: &Store<'_>, _noreply: bool) {
    todo!()
}
pub(super) fn delete(_output: &mut Vec<u8>, _delete: &Delete<'_>, _noreply: bool) {
    todo!()
}
pub(super) fn arith(_output: &mut Vec<u8>, _arith: &Arith<'_>, _noreply: bool) {
    todo!()
}
pub(super) fn touch(_output: &mut Vec<u8>, _touch: &Touch<'_>, _noreply: bool) {
    todo!()
}
pub(super) fn flush_all(_output: &mut Vec<u8>, _delay_secs: u32, _noreply: bool) {
    todo!()
}
pub(super) fn stats(_output: &mut Vec<u8>, _group: &[u8]) {
    todo!()
}
pub(super) fn receive<'i, T>(
    _due: &mut Queue<T>,
    _input: &mut &'i [u8],
) -> Result<Option<Event<'i, T>>, Violation> {
    todo!()
}
