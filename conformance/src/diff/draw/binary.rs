//! Packets.

use super::{Draw, Drawn, KEYS, Kind, ODD_KEYS, cas_of};
use crate::diff::request::{Piece, Request};

/// A packet before its lengths are known.
struct Packet {
    opcode: u8,
    extras: Vec<u8>,
    key: &'static [u8],
    value: Vec<u8>,
}

impl Draw {
    pub(super) fn packet(&mut self, is_large: bool) -> Drawn {
        let among = if self.one_in(4) { KEYS.len() + ODD_KEYS.len() } else { 3 };
        let mut index = self.rng.usize(..among);
        let opcode = self.choice(if is_large { &LARGE_OPCODES[..] } else { &OPCODES });
        if index >= KEYS.len()
            && matches!(opcode, INCR | DECR | APPEND | PREPEND | INCRQ | DECRQ | APPENDQ | PREPENDQ)
        {
            index = 0;
        }
        let key = key_of_opaque(index as u32).unwrap_or(KEYS[0]);
        let mut packet = self.well_formed(opcode, key, is_large);
        let kind = match packet.opcode {
            GET | GETQ | GETK | GETKQ | TOUCH | GAT | GATQ | GATK | GATKQ => Kind::Fetch,
            INCR | DECR | INCRQ | DECRQ => Kind::Arithmetic,
            _ => Kind::Other,
        };
        if self.one_in(100) {
            self.misshape(&mut packet);
        }
        let body_bytes = packet.extras.len() + packet.key.len() + packet.value.len();
        let mut request = Request::default();
        request.push(&[0x80, packet.opcode]);
        request.push(&(packet.key.len() as u16).to_be_bytes());
        // Data type and vbucket are nobody's business.
        let vbucket = if self.one_in(10) { self.rng.u8(..) } else { 0 };
        request.push(&[packet.extras.len() as u8, 0, vbucket, vbucket]);
        request.push(&(body_bytes as u32).to_be_bytes());
        request.push(&(index as u32).to_be_bytes());
        match self.rng.u32(..6) {
            0 => match self.age() {
                Some(age) => request.pieces.push(Piece::BinaryCas(cas_of(key, age))),
                None => request.push(&1u64.to_be_bytes()),
            },
            _ => request.push(&[0; 8]),
        }
        request.push(&[&packet.extras[..], packet.key, &packet.value[..]].concat());
        Drawn { request, kind }
    }

    fn well_formed(&mut self, opcode: u8, key: &'static [u8], is_large: bool) -> Packet {
        let mut packet = Packet { opcode, extras: Vec::new(), key, value: Vec::new() };
        match opcode {
            SET | ADD | REPLACE | SETQ | ADDQ | REPLACEQ => {
                packet.extras =
                    [self.choice(&[0, 5, u32::MAX]), self.binary_exptime()].map(u32::to_be_bytes).concat();
                packet.value = self.value(is_large);
            }
            APPEND | PREPEND | APPENDQ | PREPENDQ => packet.value = self.value(false),
            INCR | DECR | INCRQ | DECRQ => {
                let delta: u64 = self.choice(&[0, 1, 5, 91, 1 << 40]);
                let initial: u64 = self.choice(&[0, 13, 1 << 50]);
                let exptime = self.choice(&[0, 100, u32::MAX, u32::MAX]);
                packet.extras =
                    [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &exptime.to_be_bytes()].concat();
            }
            TOUCH | GAT | GATQ | GATK | GATKQ => packet.extras = self.binary_exptime().to_be_bytes().to_vec(),
            NOOP | VERSION | QUIT | QUITQ => packet.key = b"",
            FLUSH | FLUSHQ => {
                packet.key = b"";
                packet.extras = if self.rng.bool() { Vec::new() } else { 0u32.to_be_bytes().to_vec() };
            }
            _ => {}
        }
        packet
    }

    /// Changes the shape: too much or too little of something.
    fn misshape(&mut self, packet: &mut Packet) {
        match self.rng.u32(..6) {
            0 => packet.extras.push(0),
            1 => drop(packet.extras.pop()),
            2 => packet.key = b"",
            3 => packet.key = &[b'L'; 251],
            // The reference does not mind a value here.
            4 if matches!(packet.opcode, TOUCH | GAT | GATQ | GATK | GATKQ) => packet.extras.push(0),
            4 => packet.value.push(b'x'),
            _ => packet.extras.clear(),
        }
    }

    fn binary_exptime(&mut self) -> u32 {
        self.choice(&[0, 0, 0, 100, 2_592_000, 2_592_001, u32::MAX])
    }
}

/// The key that a request with this opaque is about: its index.
pub(crate) fn key_of_opaque(opaque: u32) -> Option<&'static [u8]> {
    let index = opaque as usize;
    KEYS.get(index).copied().or_else(|| ODD_KEYS.get(index.checked_sub(KEYS.len())?).map(|(key, _)| *key))
}

const GET: u8 = 0x00;
const SET: u8 = 0x01;
const ADD: u8 = 0x02;
const REPLACE: u8 = 0x03;
const DELETE: u8 = 0x04;
const INCR: u8 = 0x05;
const DECR: u8 = 0x06;
const QUIT: u8 = 0x07;
const FLUSH: u8 = 0x08;
const GETQ: u8 = 0x09;
const NOOP: u8 = 0x0a;
const VERSION: u8 = 0x0b;
const GETK: u8 = 0x0c;
const GETKQ: u8 = 0x0d;
const APPEND: u8 = 0x0e;
const PREPEND: u8 = 0x0f;
const SETQ: u8 = 0x11;
const ADDQ: u8 = 0x12;
const REPLACEQ: u8 = 0x13;
const DELETEQ: u8 = 0x14;
const INCRQ: u8 = 0x15;
const DECRQ: u8 = 0x16;
const QUITQ: u8 = 0x17;
const FLUSHQ: u8 = 0x18;
const APPENDQ: u8 = 0x19;
const PREPENDQ: u8 = 0x1a;
const TOUCH: u8 = 0x1c;
const GAT: u8 = 0x1d;
const GATQ: u8 = 0x1e;
const GATK: u8 = 0x23;
const GATKQ: u8 = 0x24;

/// What is drawn, the usual more often.
const OPCODES: [u8; 60] = [
    GET, GET, GET, GETQ, GETQ, GETQ, GETK, GETK, GETKQ, GETKQ, SET, SET, SET, SET, SETQ, SETQ, ADD, ADD,
    ADDQ, ADDQ, REPLACE, REPLACE, REPLACEQ, REPLACEQ, DELETE, DELETE, DELETEQ, INCR, INCR, INCR, INCRQ,
    INCRQ, DECR, DECR, DECR, DECRQ, APPEND, APPEND, APPENDQ, PREPEND, PREPEND, PREPENDQ, TOUCH, TOUCH, GAT,
    GAT, GATQ, GATK, GATK, GATKQ, NOOP, NOOP, VERSION, NOOP, NOOP, GET, FLUSH, FLUSHQ, QUIT, QUITQ,
];
const LARGE_OPCODES: [u8; 8] = [SET, ADD, REPLACE, SETQ, GET, GETK, GETQ, GAT];
