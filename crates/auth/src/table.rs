//! The passwords of a file, ready for checking.

use std::sync::{Arc, OnceLock};

use crate::file::{Entry, Password};
use crate::keyed::{Digest, Secret, is_same};
use crate::verifier::{ITERATIONS_DEFAULT, SALT_BYTES, SALT_BYTES_MAX, Verifier, salted_password};

/// Who may come in. Holds no password: of those that the file shows, fingerprints and verifiers.
///
/// To check a password against a verifier takes thousands of hashes, on a thread that others wait for. So a fingerprint
/// is tried first: there is one from the start of each password that the file shows, and from its first right use of
/// each other. A right password costs a microsecond from then on. A wrong one costs the same whoever is named, known or
/// unknown: nothing more if the file shows all its passwords, and as much as the dearest verifier if it does not.
#[derive(Debug)]
pub struct Table {
    secret: Arc<Secret>,
    /// Of the passwords that the file shows.
    fingerprints: Vec<Digest>,
    hashed: Vec<Hashed>,
    /// One of each user, for SCRAM.
    verifiers: Vec<(Vec<u8>, Verifier)>,
}

#[derive(Debug)]
struct Hashed {
    user: Vec<u8>,
    verifier: Verifier,
    /// Of the password, once it was said.
    fingerprint: OnceLock<Digest>,
}

impl Table {
    /// The table of these entries. With `for_scram` a verifier is derived from every password that is written out,
    /// about a millisecond each.
    pub fn new(entries: Vec<Entry>, secret: Arc<Secret>, for_scram: bool) -> Self {
        let mut table = Self { secret, fingerprints: Vec::new(), hashed: Vec::new(), verifiers: Vec::new() };
        for Entry { user, password } in entries {
            let is_new = for_scram && table.verifiers.iter().all(|(other, _)| *other != user);
            match password {
                Password::Plain(password) => {
                    table.fingerprints.push(table.secret.fingerprint(&user, &password));
                    if is_new {
                        let salt = &table.secret.salt(&user)[..SALT_BYTES];
                        let verifier = Verifier::derive(&password, salt, ITERATIONS_DEFAULT);
                        table.verifiers.push((user, verifier));
                    }
                }
                Password::Hashed(verifier) => {
                    if is_new {
                        table.verifiers.push((user.clone(), verifier.clone()));
                    }
                    table.hashed.push(Hashed { user, verifier, fingerprint: OnceLock::new() });
                }
            }
        }
        table
    }

    /// Whether this is the user's password, if that can be said at once; `None`: only [`Table::check_dearly`] knows.
    pub fn check(&self, user: &[u8], password: &[u8]) -> Option<bool> {
        let fingerprint = self.secret.fingerprint(user, password);
        let known = self.hashed.iter().filter_map(|hashed| hashed.fingerprint.get());
        // All are compared, whichever matches.
        let is_right = self
            .fingerprints
            .iter()
            .chain(known)
            .fold(false, |is_right, known| is_right | is_same(known, &fingerprint));
        match is_right {
            true => Some(true),
            false if self.hashed.is_empty() => Some(false),
            false => None,
        }
    }

    /// As [`Table::check`], by the verifiers: milliseconds, the same for every user.
    pub fn check_dearly(&self, user: &[u8], password: &[u8]) -> bool {
        let mut is_right = false;
        for hashed in self.hashed_of(user) {
            if hashed.verifier.is_of(password) {
                let _ = hashed.fingerprint.set(self.secret.fingerprint(user, password));
                is_right = true;
            }
        }
        let iterations_left = self.dearest_iterations().saturating_sub(self.iterations_of(user));
        if iterations_left > 0 {
            std::hint::black_box(salted_password(password, &self.secret.salt(user), iterations_left));
        }
        is_right
    }

    /// The verifier for SCRAM, and whether there is such a user. One who does not exist gets one that nobody can tell
    /// from another's, and that no password fits.
    pub(crate) fn verifier(&self, user: &[u8]) -> (Verifier, bool) {
        // Both are always made ready, so that the time tells nothing either.
        let like = self.verifiers.get(self.secret.pick(user, self.verifiers.len()));
        let (iterations, salt_bytes) =
            like.map_or((ITERATIONS_DEFAULT, SALT_BYTES), |(_, like)| (like.iterations, like.salt.len()));
        let mut salt = self.secret.salt(user).repeat(SALT_BYTES_MAX.div_ceil(32));
        salt.truncate(salt_bytes);
        let nobody =
            Verifier { iterations, salt, stored_key: self.secret.salt(b""), server_key: Digest::default() };
        let known = self.verifiers.iter().rfind(|(known, _)| known == user);
        known.map_or((nobody, false), |(_, verifier)| (verifier.clone(), true))
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    fn hashed_of(&self, user: &[u8]) -> impl Iterator<Item = &Hashed> {
        self.hashed.iter().filter(move |hashed| hashed.user == user)
    }

    /// What the check of the user with the dearest verifiers costs.
    fn dearest_iterations(&self) -> u32 {
        self.hashed.iter().map(|hashed| self.iterations_of(&hashed.user)).max().unwrap_or(0)
    }

    fn iterations_of(&self, user: &[u8]) -> u32 {
        self.hashed_of(user).fold(0, |sum, hashed| sum.saturating_add(hashed.verifier.iterations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::{ITERATED, ITERATIONS_MIN};

    /// Else the time of a refusal would tell which users there are (CVE-2026-47783).
    #[test]
    fn a_refusal_costs_as_many_hashes_whoever_is_named() {
        let hashed = |user: &str, iterations: u32| Entry {
            user: user.into(),
            password: Password::Hashed(Verifier::derive(b"password", b"salt", iterations)),
        };
        let entries = vec![
            hashed("ann", ITERATIONS_MIN),
            hashed("bob", ITERATIONS_MIN + 1000),
            // Twice the same user: either password is right.
            hashed("ann", ITERATIONS_MIN + 1),
        ];
        let table = Table::new(entries, Arc::new(Secret::new([7; 32])), false);
        for user in ["ann", "bob", "nobody", ""] {
            let before = ITERATED.get();
            assert!(!table.check_dearly(user.as_bytes(), b"guess"));
            assert_eq!(ITERATED.get() - before, u64::from(2 * ITERATIONS_MIN + 1), "{user:?}");
        }
    }
}
