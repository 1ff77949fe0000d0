//! What the floor server answers to binary requests. See memcached, doc/protocol-binary.txt.

use larder_protocol::binary::{HEADER_BYTES, REPLY_MAGIC, opcode};

use super::reply::{Taken, Values};

/// Appends the reply to the request at the head of `input`. `None`: its header or its key has not arrived.
pub(super) fn take(input: &[u8], values: &Values, output: &mut Vec<u8>) -> Option<Taken> {
    let (header, body) = input.split_first_chunk::<HEADER_BYTES>()?;
    let key_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let extras_bytes = usize::from(header[4]);
    let body_bytes = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let key = body.get(extras_bytes..extras_bytes + key_bytes)?;

    let reply = Reply { opcode: header[1], opaque: [header[12], header[13], header[14], header[15]] };
    match header[1] {
        opcode::GET | opcode::GETQ | opcode::GAT | opcode::GATQ => {
            reply.write(&NO_FLAGS, b"", &values.value, output);
        }
        opcode::GETK | opcode::GETKQ | opcode::GATK | opcode::GATKQ => {
            reply.write(&NO_FLAGS, key, &values.value, output);
        }
        opcode::TOUCH => reply.write(&NO_FLAGS, b"", b"", output),
        opcode::INCR | opcode::DECR => reply.write(b"", b"", &1_u64.to_be_bytes(), output),
        opcode::VERSION => reply.write(b"", b"", b"floor", output),
        opcode::STAT => {
            reply.write(b"", b"pid", std::process::id().to_string().as_bytes(), output);
            reply.write(b"", b"", b"", output);
        }
        // SETQ to PREPENDQ: success is not told.
        opcode::SETQ..=opcode::PREPENDQ => {}
        _ => reply.write(b"", b"", b"", output),
    }
    let head_bytes = HEADER_BYTES + extras_bytes + key_bytes;
    Some(Taken { bytes: head_bytes, block_bytes: (HEADER_BYTES + body_bytes).saturating_sub(head_bytes) })
}

/// Client flags, the extras of whatever tells of an item.
const NO_FLAGS: [u8; 4] = [0; 4];

struct Reply {
    opcode: u8,
    opaque: [u8; 4],
}

impl Reply {
    fn write(&self, extras: &[u8], key: &[u8], value: &[u8], output: &mut Vec<u8>) {
        let body_bytes = (extras.len() + key.len() + value.len()) as u32;
        let mut header = [0; HEADER_BYTES];
        header[0] = REPLY_MAGIC;
        header[1] = self.opcode;
        header[2..4].copy_from_slice(&(key.len() as u16).to_be_bytes());
        header[4] = extras.len() as u8;
        header[8..12].copy_from_slice(&body_bytes.to_be_bytes());
        header[12..16].copy_from_slice(&self.opaque);
        // A CAS value, the same for all.
        header[HEADER_BYTES - 1] = 1;
        for part in [&header[..], extras, key, value] {
            output.extend_from_slice(part);
        }
    }
}
