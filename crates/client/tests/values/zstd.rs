//! Values that are compressed by zstd: what `zstd` 1.5.4 made of 400 lines, and what it makes of ours.

use std::io::Write;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use larder_client::value::{Dialect, Error, Transcoder, Value};

/// Of a file: the frame says how long the value is.
const FROM_FILE: &str = "KLUv/WSiDP0KAKaaNRKwpZADjuCSQEm7IiLlK4ILAAIxADAALgAh/v///5mZmZkZERERERHbtm27bdu2\
    JUmSJLdt2zZJkiQpIiIiIj7icgpBGA\
    AMBAgEQUFBQUH/////zMzMzIyIiIiIiG3btt22bduSJEmS27ZtmyRJkhQRERERQgghhBACCwsL+////2dmZmZmRERERERs27bttm3bliRJkty2\
    bdskSZKkiIiIiIigoKCgoIL/////MzMzMzMiIiIiIrZt23bbtm1LkiRJbtu2bZIkSVJERERERFhYWFhYWAiBj6gh8G4GwSfVahEkCJIfA68YKS\
    EiIkJESBj0j/7JL/0Te2OEhIgICREhAVeIP/nTX+JfEDEyIiQkhITYON0HAZeqpcpN2aa0qdkUNuWaYk2tphI10nrtev16bXltdW1tbT1tvWy9\
    an13okq0iA5RH6pDN3SGai5UQdd1Xa/repVWRUBaBT2BbJ8=";
/// Of standard input, with `-19`: it does not, and its window is larger.
const FROM_STDIN: &str = "KLUv/QRo/AgA1t45EqCloDnRIwDwW1qypZQW+0WrFTgANwAuAJTJEqSCYkIiosFYHCGq1Kk02rLrDS0\
    Sh8JgSY4zsEabyWIdt72wmp7luPP94a\
    KRKLcgDAAGAgQCy8f3+fs/fIUpPGEJR7hhhhc+HMJVVFNSUS3W6gpVRDQkFFQijaZANTQzMjEdzuYJU0IyIhJSCfHEEkfcmPHi4xBXpz5devR2\
    9vV76MWJDxcevJx8fB54bdqzZcfu5t5+h11PPwdUTy111K1Zr74OddFEDy100KVJj54OdM00zyxzzJ05b34Oc8kkjyxyyJUpT14OcsUUgMeoEB\
    jP5+DXEBI/29s3b+9evXt79u3ttbd3ejZYNBgsGAwOCoYGAwuDaSYAAQAA9gICKQVdCADGZUAKwOUY5UqSPHDANzkAPwA5AIbRxhppnPHRUcYY\
    b8Pa1tLOvq5s7GlQ01LS0VUVDT0xiCaWSOKIi4oihnhhCC2skMIJDw0ljPBOAmc47ayTzjk/PeWM84IhaMEKUnCCBw1KMIJnBtPMMskcc1NTzD\
    CvDKWVVVI55aWllFEeGUgjiyRyyElJIYO8CTeH2eaaaZ752VnmmO/D29fTz/++fPx5cPNy8vFdFw8/Ocgml0zyyMvKIod8cYgtrpjiiY+NJY74\
    AuDucNtdN91zf3vLHfeFQ9jCFabwhA8blnCEzw622WWTPfa2tthhXx1qq6umeupra6mjPjrQRhdN9NDT0kIHHYDIVAMAAwE9gWyf";

fn lines() -> Vec<u8> {
    (0..400).flat_map(|n| format!("line {n}\n").into_bytes()).collect()
}

/// As php-memcached 3.3 keeps it: the length of the value (32 bits, little-endian) before it.
fn sized(length: usize, frame: &[u8]) -> Vec<u8> {
    [&(length as u32).to_le_bytes(), frame].concat()
}

const PHP: u32 = 16 | 128;
const PLAIN: u32 = 32;

#[test]
fn what_others_compress_is_read() {
    for frame in [FROM_FILE, FROM_STDIN] {
        let frame = STANDARD.decode(frame).expect("base64");
        let plain = Transcoder::new(Dialect::Plain).decode(&frame, PLAIN);
        assert!(plain == Ok(Value::Bytes(lines())));
        let php = sized(lines().len(), &frame);
        assert!(Transcoder::new(Dialect::PhpMemcached).decode(&php, PHP) == Ok(Value::Bytes(lines())));
        let json = Transcoder::new(Dialect::PhpMemcached).decode(&php, PHP | 6);
        assert!(matches!(json, Ok(Value::Serialized { bytes, .. }) if bytes == lines()));
    }
}

#[test]
fn what_is_compressed_is_what_zstd_reads() {
    for (dialect, client_flags, prefix) in [(Dialect::Plain, PLAIN, 0), (Dialect::PhpMemcached, PHP, 4)] {
        let transcoder = Transcoder::new(dialect).compressed_from_bytes(Some(1000)).zstd();
        let encoded = transcoder.encode(&Value::Bytes(lines())).expect("it can");
        assert_eq!(encoded.client_flags, client_flags);
        assert!(encoded.bytes.len() < lines().len() / 2);
        assert_eq!(encoded.bytes[..prefix], (lines().len() as u32).to_le_bytes()[..prefix]);
        assert_eq!(transcoder.decode(&encoded.bytes, client_flags), Ok(Value::Bytes(lines())));
        let mut command = Command::new("zstd");
        let Ok(mut child) = command.arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
            eprintln!("zstd is not installed");
            continue;
        };
        child.stdin.take().expect("it is a pipe").write_all(&encoded.bytes[prefix..]).expect("it reads");
        assert_eq!(child.wait_with_output().expect("it ends").stdout, lines());
        // Below the threshold, or where it makes nothing smaller, values stay as they are.
        for value in [
            vec![b'x'; 999],
            (0..2000_u32).flat_map(|n| (n.wrapping_mul(0x9e37_79b1)).to_le_bytes()).collect(),
        ] {
            let encoded = transcoder.encode(&Value::Bytes(value.clone())).expect("it can");
            assert_eq!((encoded.bytes, encoded.client_flags), (value, 0));
        }
    }
    // Others have no such flag.
    let pylibmc = Transcoder::new(Dialect::Pylibmc).compressed_from_bytes(Some(1000)).zstd();
    assert_eq!(pylibmc.encode(&Value::Bytes(lines())).expect("it can").client_flags, 8);
}

#[test]
fn a_bomb_is_refused() {
    let bound = 100_000;
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 3).expect("it can");
    assert!(bomb.len() < 10_000);
    let decode =
        |dialect, bytes: &[u8], flags| Transcoder::new(dialect).value_bytes_max(bound).decode(bytes, flags);
    let too_large = Err(Error::TooLarge { value_bytes_max: bound });
    assert_eq!(decode(Dialect::Plain, &bomb, PLAIN), too_large);
    assert_eq!(decode(Dialect::PhpMemcached, &sized(64 << 20, &bomb), PHP), too_large);
    let damaged = Err(Error::Damaged { compression: "zstd" });
    for length in [0, 1000, bound] {
        assert_eq!(decode(Dialect::PhpMemcached, &sized(length, &bomb), PHP), damaged);
    }
    // By RFC 8878, 3.1.1: a byte, in a frame that wants a window of 64 MiB, or of 8 MiB.
    let frame = |window: u8| [&b"\x28\xb5\x2f\xfd\0"[..], &[window << 3], b"\x09\0\0x"].concat();
    assert_eq!(decode(Dialect::Plain, &frame(16), PLAIN), damaged);
    assert_eq!(decode(Dialect::Plain, &frame(13), PLAIN), Ok(Value::Bytes(b"x".to_vec())));
    // Cut anywhere, it is not a value.
    let frame = STANDARD.decode(FROM_FILE).expect("base64");
    for end in 0..frame.len() {
        assert!(decode(Dialect::PhpMemcached, &sized(lines().len(), &frame[..end]), PHP).is_err(), "{end}");
    }
}
