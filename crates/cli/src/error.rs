//! `larder error`: the meaning of a code of libmemcached, or of an error line of a server.

use std::io::Write;

use crate::{Failure, output};

/// Explain an error
///
/// For a number: the text of libmemcached's `memcached_return_t`, as memerror prints it. For a line of a server: when
/// it is sent, and what helps. Without either: all of them.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A number, or an error line
    #[arg(value_name = "ERROR")]
    error: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let error = args.error.join(" ");
    output::write(|out| {
        if error.is_empty() {
            return all(out).map_err(Failure::of_output);
        }
        let text = match error.parse::<usize>() {
            Ok(code) => CODES.get(code).map(|text| (*text).to_owned()),
            Err(_) => meaning(&error).map(str::to_owned),
        };
        let text = text.ok_or_else(|| Failure::Failed(format!("{error}: no such error is known")))?;
        writeln!(out, "{text}").map_err(Failure::of_output)
    })
}

/// What an error line of a server means; `None`: not known.
pub(crate) fn meaning(line: &str) -> Option<&'static str> {
    let wanted = line.trim().to_ascii_lowercase();
    LINES.iter().find(|(line, _)| wanted.starts_with(&line.to_ascii_lowercase())).map(|(_, meaning)| *meaning)
}

fn all(out: &mut dyn Write) -> std::io::Result<()> {
    for (code, text) in CODES.iter().enumerate() {
        writeln!(out, "{code:>3}  {text}")?;
    }
    for (line, meaning) in LINES {
        writeln!(out, "\n{line}\n    {meaning}")?;
    }
    Ok(())
}

/// memcached_strerror of libmemcached 1.1.4, by code.
const CODES: [&str; 49] = [
    "SUCCESS",
    "FAILURE",
    "getaddrinfo() or getnameinfo() HOSTNAME LOOKUP FAILURE",
    "CONNECTION FAILURE",
    "CONNECTION BIND FAILURE",
    "WRITE FAILURE",
    "READ FAILURE",
    "UNKNOWN READ FAILURE",
    "PROTOCOL ERROR",
    "CLIENT ERROR",
    "SERVER ERROR",
    "ERROR was returned by server",
    "CONNECTION DATA EXISTS",
    "CONNECTION DATA DOES NOT EXIST",
    "NOT STORED",
    "STORED",
    "NOT FOUND",
    "MEMORY ALLOCATION FAILURE",
    "PARTIAL READ",
    "SOME ERRORS WERE REPORTED",
    "NO SERVERS DEFINED",
    "SERVER END",
    "SERVER DELETE",
    "SERVER VALUE",
    "STAT VALUE",
    "ITEM VALUE",
    "SYSTEM ERROR",
    "COULD NOT OPEN UNIX SOCKET",
    "ACTION NOT SUPPORTED",
    "A KEY LENGTH OF ZERO WAS PROVIDED",
    "FETCH WAS NOT COMPLETED",
    "A TIMEOUT OCCURRED",
    "ACTION QUEUED",
    "A BAD KEY WAS PROVIDED/CHARACTERS OUT OF RANGE",
    "THE HOST TRANSPORT PROTOCOL DOES NOT MATCH THAT OF THE CLIENT",
    "SERVER IS MARKED DEAD",
    "ENCOUNTERED AN UNKNOWN STAT KEY",
    "ITEM TOO BIG",
    "INVALID ARGUMENTS",
    "KEY RETURNED FROM SERVER WAS TOO LARGE",
    "FAILED TO SEND AUTHENTICATION TO SERVER",
    "AUTHENTICATION FAILURE",
    "CONTINUE AUTHENTICATION",
    "ERROR OCCURED WHILE PARSING",
    "USER INITIATED ERROR OCCURED WHILE PARSING",
    "DEPRECATED",
    "OPERATION IN PROCESS",
    "SERVER HAS FAILED AND IS DISABLED UNTIL TIMED RETRY",
    "SERVER FAILED TO ALLOCATE OBJECT",
];

/// Error lines, longer ones before shorter ones: the first match counts. memcached, doc/protocol.txt and its source.
const LINES: &[(&str, &str)] = &[
    (
        "SERVER_ERROR object too large for cache",
        "The item is larger than the server takes: raise its -I, or store less.",
    ),
    (
        "SERVER_ERROR out of memory storing object",
        "No memory could be freed: items that may not be evicted (-M), or larger ones, have all of it. Raise -m.",
    ),
    (
        "SERVER_ERROR out of memory reading item from store",
        "The item is on disk, and for 30 s memory had no room to read it: read fewer such items at once, or raise -m.",
    ),
    (
        "SERVER_ERROR out of memory",
        "The server has no memory for the answer or the connection. Raise -m, or read answers faster.",
    ),
    (
        "SERVER_ERROR too large for UDP",
        "The reply is larger than may be sent to this address over UDP: ask over TCP, or see docs/udp.md.",
    ),
    (
        "SERVER_ERROR namespace is read-only",
        "The file of --namespaces lets no client change keys with this prefix.",
    ),
    (
        "SERVER_ERROR read-only for maintenance",
        "An operator has told the server to refuse changes for now: larder read-only status ADDRESS. Reads go on.",
    ),
    (
        "SERVER_ERROR new site takes no changes before it has heard all others",
        "Reads go on. stats replication says which peer is not connected, or is still copied: see docs/replication.md.",
    ),
    (
        "SERVER_ERROR site has an older copy of its store and waits for a copy of another site",
        "Reads go on. The site copies from another one by itself; larder sites says why, and how far it is.",
    ),
    (
        "SERVER_ERROR site takes no changes while another server has its number",
        "Two servers were started with the same --site: larder sites names both addresses. Stop one of them.",
    ),
    (
        "SERVER_ERROR namespace is over its disk quota",
        "Its items take the disk that the file of --namespaces allows: delete or flush some, or raise its disk.",
    ),
    (
        "SERVER_ERROR store is full",
        "The disk of the store has no room: no change is taken, reads go on. Make room; no restart is needed.",
    ),
    (
        "SERVER_ERROR store is read-only after a failed write",
        "An fsync of the store failed, so no change is taken; reads go on. Look at the disk, then restart larderd.",
    ),
    (
        "SERVER_ERROR store cannot write",
        "The store could not append the change, and tries again: the log of larderd says why.",
    ),
    (
        "SERVER_ERROR store cannot read this item",
        "A read of the store failed, or a checksum does not match: run larder check, or delete the item.",
    ),
    (
        "SERVER_ERROR home site of this key is away",
        "Another site runs such commands of this key (rmw = \"home\") and is not connected: nothing was changed.",
    ),
    (
        "SERVER_ERROR home site of this key is busy",
        "Too many commands wait for the site that runs them (rmw = \"home\"): nothing was changed. Try again.",
    ),
    (
        "SERVER_ERROR home site did not answer and may have run this",
        "The connection to the site that runs such commands ended meanwhile, or 5 s passed: look before you repeat it.",
    ),
    (
        "SERVER_ERROR value too large for home site of this key",
        "Another site runs this command (rmw = \"home\"), and takes no item so large: give all sites the same -I.",
    ),
    (
        "SERVER_ERROR",
        "The server failed, for the reason it gives; the connection can go on unless it closes.",
    ),
    (
        "CLIENT_ERROR not allowed in this namespace",
        "The user of this connection is not among those whom the file of --namespaces lets read or write such keys.",
    ),
    (
        "CLIENT_ERROR bad data chunk",
        "The value did not end where the command said: the length is wrong, or CR LF is missing behind the value.",
    ),
    (
        "CLIENT_ERROR bad command line format",
        "The words of the command cannot be read: too few, too many, no numbers, or a key of more than 250 bytes.",
    ),
    (
        "CLIENT_ERROR cannot increment or decrement non-numeric value",
        "The value under this key is not a decimal number of 64 bits.",
    ),
    ("CLIENT_ERROR invalid exptime argument", "The time to live is no number."),
    ("CLIENT_ERROR invalid numeric delta argument", "What is to be added is no number from 0 to 2^64-1."),
    ("CLIENT_ERROR unauthenticated", "The server wants a login first: --user and --password-file."),
    ("CLIENT_ERROR authentication failure", "Name or password is wrong."),
    (
        "CLIENT_ERROR not over UDP",
        "Commands about the server, and on items in a store, are answered over TCP and unix sockets only.",
    ),
    (
        "CLIENT_ERROR CAS values of replicated items come from the server",
        "The server is one of several sites, and CAS values order the changes of all: send no value of your own (E).",
    ),
    ("CLIENT_ERROR backups not enabled", "The server has no --backup-dir, so it takes no backups."),
    (
        "CLIENT_ERROR backups need the right to everything or the backup token",
        "A backup holds all items: a user whom the file of --namespaces keeps from some needs --backup-token-file, \
         with the token of the server's.",
    ),
    (
        "CLIENT_ERROR comparisons need the right to everything",
        "A comparison reads and mends all items: a user whom the file of --namespaces keeps from some cannot begin \
         one.",
    ),
    ("CLIENT_ERROR line too long", "A line of more than 2048 bytes that is no get."),
    ("CLIENT_ERROR", "The request is wrong, for the reason that the server gives; nothing was changed."),
    (
        "BUSY currently taking a backup",
        "Another backup of the store is under way: stats store shows how far it is.",
    ),
    ("BUSY", "Another dump of keys, or crawl, is under way: try again later."),
    (
        "ERROR Too many open connections",
        "The server has as many connections as it takes, and closes this one: raise its -c, or open fewer.",
    ),
    ("ERROR", "The server does not know this command, or it is turned off."),
    ("NOT_STORED", "No error: the condition of add, replace, append or prepend did not hold."),
    ("EXISTS", "No error: somebody has changed the item since it was read for cas."),
    ("NOT_FOUND", "No error: there is no such key (any more)."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_hides_another_behind_it() {
        for (at, (line, meaning_of_line)) in LINES.iter().enumerate() {
            assert_eq!(meaning(line), Some(*meaning_of_line), "{at}: {line}");
        }
    }

    #[test]
    fn what_a_store_or_a_namespace_refuses_is_explained() {
        use larder_protocol::Error;
        let generic = ["SERVER_ERROR x", "CLIENT_ERROR x"].map(|line| meaning(line).expect("is known"));
        for error in [
            Error::ReadOnly,
            Error::Maintenance,
            Error::NotForUser,
            Error::NewSite,
            Error::OutdatedSite,
            Error::SameSite,
            Error::OverDiskQuota,
            Error::StoreFull,
            Error::StoreReadOnly,
            Error::StoreFailed,
            Error::StoreUnreadable,
            Error::NotOverUdp,
            Error::BackupNotAllowed,
            Error::BackupNotForUser,
            Error::CompareNotForUser,
            Error::OutOfMemoryFetching,
            Error::OwnVersion,
            Error::HomeAway,
            Error::HomeBusy,
            Error::HomeSilent,
            Error::HomeTooLarge,
            Error::BackupRunning,
        ] {
            let meaning = meaning(error.line()).expect("is known");
            assert!(!generic.contains(&meaning), "{error:?}: {meaning}");
        }
    }
}
