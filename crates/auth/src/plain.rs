//! SASL PLAIN (RFC 4616): `[authzid] NUL authcid NUL password`.

/// User and password of a PLAIN message; `None`: it is none, or somebody wants to act for another.
pub(crate) fn parse(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = message.split(|byte| *byte == 0);
    let (on_behalf_of, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = parts.next().is_none() && !user.is_empty() && !password.is_empty();
    (is_whole && (on_behalf_of.is_empty() || on_behalf_of == user)).then_some((user, password))
}
