//! SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side: the password never travels, and the server proves that it
//! knows the verifier.
//!
//! Without channel binding. Passwords and user names are taken as bytes, not normalized: what RFC 5802 asks for
//! (SASLprep) changes nothing in ASCII and hardly anything that people type beyond it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::Table;
use crate::keyed::{Digest, hmac, is_same, sha256};
use crate::verifier::Verifier;

/// An exchange whose first message was answered.
#[derive(Debug)]
pub(crate) struct Pending {
    user: String,
    verifier: Verifier,
    is_known: bool,
    /// The GS2 header, in base64, as the client has to say it again.
    binding: String,
    nonce: String,
    /// `client-first-message-bare,server-first-message`.
    said: String,
}

impl Pending {
    /// Reads the client's first message, and answers it. `None`: it is none.
    pub(crate) fn start(table: &Table, client_first: &[u8]) -> Option<(Self, String)> {
        Self::start_with(|user| table.verifier(user), client_first, &table.secret().nonce())
    }

    fn start_with(
        verifier_of: impl FnOnce(&[u8]) -> (Verifier, bool),
        client_first: &[u8],
        server_nonce: &str,
    ) -> Option<(Self, String)> {
        // gs2-header [reserved-mext ","] username "," nonce ["," extensions]
        let message = std::str::from_utf8(client_first).ok()?;
        let (binding_flag, rest) = message.split_once(',')?;
        // "p=" asks for channel binding, which was not offered.
        matches!(binding_flag, "n" | "y").then_some(())?;
        let (on_behalf_of, bare) = rest.split_once(',')?;
        let mut attributes = bare.split(',');
        // A mandatory extension ("m=") would stand before the user: none is known here.
        let user = unescape(attributes.next()?.strip_prefix("n=")?)?;
        let client_nonce = attributes.next()?.strip_prefix("r=").filter(|nonce| is_printable(nonce))?;
        match on_behalf_of.strip_prefix("a=") {
            None if on_behalf_of.is_empty() => {}
            Some(other) if unescape(other)? == user => {}
            _ => return None,
        }

        let (verifier, is_known) = verifier_of(user.as_bytes());
        let nonce = format!("{client_nonce}{server_nonce}");
        let server_first =
            format!("r={nonce},s={},i={}", STANDARD.encode(&verifier.salt), verifier.iterations);
        let binding = STANDARD.encode(&message[..message.len() - bare.len()]);
        let said = format!("{bare},{server_first}");
        Some((Self { user, verifier, is_known, binding, nonce, said }, server_first))
    }

    /// How many bytes of messages it keeps.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.user.capacity() + self.binding.capacity() + self.nonce.capacity() + self.said.capacity()
    }

    /// The user that the client says to be.
    pub(crate) fn into_user(self) -> Vec<u8> {
        self.user.into_bytes()
    }

    /// Reads the client's final message. If it proves that the client knows the password: the server's own proof.
    pub(crate) fn finish(&self, client_final: &[u8]) -> Option<String> {
        // channel-binding "," nonce ["," extensions] "," proof
        let message = std::str::from_utf8(client_final).ok()?;
        let (without_proof, proof) = message.rsplit_once(",p=")?;
        let mut attributes = without_proof.split(',');
        let binding = attributes.next()?.strip_prefix("c=")?;
        let nonce = attributes.next()?.strip_prefix("r=")?;
        let mut client_key: Digest = STANDARD.decode(proof).ok()?.try_into().ok()?;

        let said = format!("{},{without_proof}", self.said);
        let signature = hmac(&self.verifier.stored_key, &[said.as_bytes()]);
        client_key.iter_mut().zip(signature).for_each(|(byte, mask)| *byte ^= mask);
        let is_proven = is_same(&sha256(&client_key), &self.verifier.stored_key);
        let is_right = is_proven && self.is_known && binding == self.binding && nonce == self.nonce;
        is_right.then(|| {
            let signature = hmac(&self.verifier.server_key, &[said.as_bytes()]);
            format!("v={}", STANDARD.encode(signature))
        })
    }
}

/// A user's name with its `=2C` and `=3D` turned back into comma and equals sign.
fn unescape(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut user = parts.next()?.to_owned();
    for part in parts {
        let (escaped, rest) = part.split_at_checked(2)?;
        user.push(match escaped {
            "2C" => ',',
            "3D" => '=',
            _ => return None,
        });
        user.push_str(rest);
    }
    (!user.is_empty()).then_some(user)
}

/// RFC 5802: any printable ASCII but the comma.
fn is_printable(nonce: &str) -> bool {
    !nonce.is_empty() && nonce.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677, section 3.
    fn rfc_7677() -> (Pending, String) {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("it is base64");
        let verifier = Verifier::derive(b"pencil", &salt, 4096);
        let verifier_of = |user: &[u8]| {
            assert_eq!(user, b"user");
            (verifier, true)
        };
        Pending::start_with(
            verifier_of,
            b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        )
        .expect("the message is right")
    }

    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";

    #[test]
    fn the_exchange_of_the_rfc() {
        let (pending, server_first) = rfc_7677();
        assert_eq!(server_first, format!("r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"));
        let client_final = format!("c=biws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        let server_final = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(pending.finish(client_final.as_bytes()).as_deref(), Some(server_final));
    }

    #[test]
    fn what_is_not_exactly_the_proof_fails() {
        let (pending, _) = rfc_7677();
        let proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        for client_final in [
            String::new(),
            format!("c=biws,r={NONCE}"),
            format!("c=biws,r={NONCE},p="),
            format!("c=biws,r={NONCE},p=AAAA"),
            format!("c=biws,r={NONCE},p={}", proof.replace('d', "e")),
            format!("c=biws,r={NONCE}x,p={proof}"),
            format!("c=eSws,r={NONCE},p={proof}"),
            format!("c=biws,r={NONCE},x=y,p={proof}"),
            format!("r={NONCE},c=biws,p={proof}"),
        ] {
            assert_eq!(pending.finish(client_final.as_bytes()), None, "{client_final}");
        }
        assert_eq!(pending.finish(b"\xff,p="), None);
    }

    #[test]
    fn first_messages_that_are_none_fail() {
        let start = |message: &[u8]| {
            let verifier_of = |_: &[u8]| (Verifier::derive(b"x", b"y", 1), true);
            Pending::start_with(verifier_of, message, "n").is_some()
        };
        for right in [&b"n,,n=u,r=n"[..], b"y,,n=u,r=n", b"n,a=u,n=u,r=n", b"n,,n=u=2C=3D,r=n,x=y"] {
            assert!(start(right), "{}", right.escape_ascii());
        }
        for wrong in [
            &b""[..],
            b"n",
            b"n,",
            b"n,,",
            b"n,,n=u",
            b"n,,n=,r=n",
            b"n,,n=u,r=",
            b"n,,n=u,r=\x7f",
            b"n,,n=u,r=a b",
            b"n,,n=u=,r=n",
            b"n,,n=u=2c,r=n",
            b"n,,n=u=\xc3\xa4\xc3\xa4,r=n",
            b"n,a=v,n=u,r=n",
            b"n,b,n=u,r=n",
            b"p=tls-unique,,n=u,r=n",
            b"x,,n=u,r=n",
            b"n,,m=x,n=u,r=n",
            b"n,,r=n,n=u",
            b"\xff,,n=u,r=n",
        ] {
            assert!(!start(wrong), "{}", wrong.escape_ascii());
        }
    }
}
