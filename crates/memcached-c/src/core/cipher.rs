//! Values that are encrypted, as libmemcached 1.1.4 encrypts them where it is built with OpenSSL, as Debian's is:
//! AES-256 in CBC mode, with the padding of PKCS #7.

use aes::Aes256;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt as _, BlockModeEncrypt as _, KeyIvInit as _};
use cbc::{Decryptor, Encryptor};
use sha2::{Digest as _, Sha256};

use crate::abi::{Return, copied};

/// A key, and the initialization vector: the block that the first one is chained to.
#[derive(Clone, Copy)]
pub(crate) struct Cipher {
    key: [u8; KEY_BYTES],
    iv: [u8; BLOCK_BYTES],
}

impl Cipher {
    /// That of a program's key. The AES key is what the program's begins with, and the vector is derived from all
    /// of it, as by OpenSSL's `EVP_BytesToKey` with five rounds of SHA-256. A key that is shorter than that of AES ends
    /// with zeros here; libmemcached reads what is behind it in memory.
    pub(crate) fn of(key: &[u8]) -> Self {
        let mut cipher = Self { key: [0; KEY_BYTES], iv: [0; BLOCK_BYTES] };
        cipher.key.iter_mut().zip(key).for_each(|(place, byte)| *place = *byte);
        let first = rounds(&[key]);
        let second = rounds(&[&first, key]);
        cipher.iv.iter_mut().zip(second).for_each(|(place, byte)| *place = byte);
        cipher
    }

    /// `None`: there is no memory.
    pub(crate) fn encrypt(&self, value: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = copied(value, BLOCK_BYTES)?;
        bytes.resize(value.len() + BLOCK_BYTES, 0);
        let cipher = Encryptor::<Aes256>::new(&self.key.into(), &self.iv.into());
        let encrypted = cipher.encrypt_padded::<Pkcs7>(&mut bytes, value.len()).ok()?.len();
        bytes.truncate(encrypted);
        Some(bytes)
    }

    /// Errors: `FAILURE` if it was not encrypted with this key; there is no memory.
    pub(crate) fn decrypt(&self, value: &[u8]) -> Result<Vec<u8>, Return> {
        let mut bytes = copied(value, 0).ok_or(Return::MEMORY_ALLOCATION_FAILURE)?;
        let cipher = Decryptor::<Aes256>::new(&self.key.into(), &self.iv.into());
        let decrypted = cipher.decrypt_padded::<Pkcs7>(&mut bytes).map_err(|_| Return::FAILURE)?.len();
        bytes.truncate(decrypted);
        Ok(bytes)
    }
}

/// Five rounds of SHA-256 over all parts.
fn rounds(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    let mut sum: [u8; 32] = hash.finalize().into();
    for _ in 1..5 {
        sum = Sha256::digest(sum).into();
    }
    sum
}

const KEY_BYTES: usize = 32;
const BLOCK_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const IV: [u8; 16] =
        [0xbf, 0xcc, 0x2a, 0xee, 0x4d, 0xfe, 0xc8, 0x9e, 0x97, 0x3a, 0x53, 0x8b, 0xf4, 0x10, 0x96, 0x0a];
    const VALUE: [u8; 16] =
        [0xa7, 0x58, 0x8a, 0x63, 0xe9, 0xca, 0x43, 0x52, 0xd8, 0xdf, 0x7c, 0x98, 0x62, 0xdd, 0x0f, 0xd3];

    /// From `openssl enc -aes-256-cbc` with the key, and the vector that Debian's libcrypto derives from it.
    #[test]
    fn values_are_encrypted_as_openssl_does_it() {
        let cipher = Cipher::of(b"0123456789abcdef0123456789abcdef-and-more");
        assert_eq!(cipher.iv, IV);
        for value in [&b""[..], b"a", b"0123456789abcdef", &[7; 1000]] {
            let encrypted = cipher.encrypt(value).expect("there is memory");
            assert_eq!(encrypted.len(), (value.len() / 16 + 1) * 16);
            assert_eq!(cipher.decrypt(&encrypted).as_deref(), Ok(value));
        }
        assert_eq!(cipher.encrypt(b"value").as_deref(), Some(&VALUE[..]));
        assert_eq!(cipher.decrypt(b"value"), Err(Return::FAILURE));
        assert_eq!(Cipher::of(b"another").decrypt(&VALUE), Err(Return::FAILURE));
    }
}
