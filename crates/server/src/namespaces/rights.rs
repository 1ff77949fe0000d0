//! What a client may do in each namespace.

use larder_policy::{NAMESPACES_MAX, Policy, Table};
use larder_protocol::Error;

/// What the user of a connection may do, a bit for each namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    read: u64,
    write: u64,
}

/// What a command does with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// It shows it.
    Read,
    /// It changes it.
    Write,
    /// It shows and changes it.
    Both,
}

impl Right {
    pub(crate) fn writes(self) -> bool {
        self != Self::Read
    }

    fn reads(self) -> bool {
        self != Self::Write
    }
}

impl Rights {
    /// To everything.
    pub(crate) const ALL: Self = Self { read: u64::MAX, write: u64::MAX };

    /// Those of a user. `None`: a client without a name.
    pub(super) fn of(table: &Table, user: Option<&[u8]>) -> Self {
        let bits = |may: fn(&Policy, Option<&[u8]>) -> bool| {
            let allowed = table.numbers().filter(|number| may(table.policy(*number), user));
            allowed.fold(0, |bits, number| bits | 1 << number)
        };
        Self {
            read: bits(|policy, user| policy.users.may_read(user)),
            write: bits(|policy, user| policy.users.may_write(user)),
        }
    }

    pub(crate) fn may_read(self, number: u8) -> bool {
        self.read >> number & 1 == 1
    }

    pub(crate) fn may_write(self, number: u8) -> bool {
        self.write >> number & 1 == 1
    }

    /// Whether a policy lets a client with these rights do that. Errors: what to answer.
    pub(crate) fn check(self, number: u8, policy: &Policy, right: Right) -> Result<(), Error> {
        if right.reads() && !self.may_read(number) || right.writes() && !self.may_write(number) {
            return Err(Error::NotForUser);
        }
        if right.writes() && policy.is_read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }
}

/// Each namespace has a bit, and so has the default.
const _: () = assert!(NAMESPACES_MAX < u64::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_the_rights_that_the_lists_name() {
        let table = Table::parse(
            "[default]\nusers.write = [\"root\"]\n\
             [namespace.a]\nusers = { read = [\"anna\"], write = [] }\n[namespace.b]\nread_only = true\n",
        )
        .expect("it is a table");
        let check = |user: Option<&str>, number: u8, right| {
            let rights = Rights::of(&table, user.map(str::as_bytes));
            rights.check(number, table.policy(number), right)
        };
        for (user, number, right, result) in [
            (None, 0, Right::Read, Ok(())),
            (None, 0, Right::Write, Err(Error::NotForUser)),
            (Some("root"), 0, Right::Both, Ok(())),
            (Some("anna"), 1, Right::Read, Ok(())),
            (Some("anna"), 1, Right::Both, Err(Error::NotForUser)),
            (Some("root"), 1, Right::Read, Err(Error::NotForUser)),
            (None, 1, Right::Read, Err(Error::NotForUser)),
            (None, 2, Right::Read, Ok(())),
            (Some("anna"), 2, Right::Write, Err(Error::ReadOnly)),
        ] {
            assert_eq!(check(user, number, right), result, "{user:?} {number} {right:?}");
        }
    }
}
