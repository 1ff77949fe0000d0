//! The tables of options, printed: help, manual page, Markdown.

use std::fmt::Write as _;

use super::extended::EXTENDED;
use super::table::COMMAND_LINE;
use super::{Program, Row, Status, Value};
use crate::{LARDER_VERSION, MEMCACHED_VERSION};

/// `-V`. Under the name `memcached`, scripts look for its version in the first line.
pub(super) fn version(program: Program) -> String {
    match program {
        Program::Larderd => format!("larderd {LARDER_VERSION}\n"),
        Program::Memcached => format!("memcached {MEMCACHED_VERSION}\n{}", version(Program::Larderd)),
    }
}

/// `-i`.
pub(super) fn license(program: Program) -> String {
    version(program)
        + "\nCopyright (c) the larder authors. Licensed under either of MIT or Apache-2.0, at your option.\n"
}

/// `-h`. Refused options are left out: tools search the help for the names of features (enable-ssl, sasl, ext_path,
/// proxy_config) to learn what a build has.
pub(super) fn help(program: Program) -> String {
    let mut help = version(program);
    for row in COMMAND_LINE.iter().filter(|row| !row.is_refused()) {
        entry(&mut help, row, &row.spelled("--"));
    }
    help += "\nExtended options, for -o:\n";
    for row in EXTENDED.iter().filter(|row| !row.is_refused()) {
        entry(&mut help, row, &format!("   {}", row.spelled("")));
    }
    help += "\n[no effect]: taken so that command lines made for memcached work. The manual (--man) says why,\n\
             and which options of memcached this version refuses.\n";
    help
}

/// The manual page.
pub(super) fn manual(_: Program) -> String {
    let mut manual = format!(
        ".TH LARDERD 1 \"\" \"larder {}\" \"User Commands\"\n\
         .SH NAME\n\
         larderd \\- in\\-memory cache that stands where memcached stood\n\
         .SH SYNOPSIS\n\
         .B larderd\n\
         [\\fIoptions\\fR]\n\
         .SH DESCRIPTION\n\
         Keeps small values under short keys in memory and serves them over TCP or a Unix socket, by the protocol of\n\
         memcached and with its command line. Options are processed from left to right.\n",
        LARDER_VERSION
    );
    for (title, rows, dashes) in [("OPTIONS", COMMAND_LINE, "--"), ("EXTENDED OPTIONS", EXTENDED, "")] {
        let _ = writeln!(manual, ".SH {title}");
        for row in rows {
            let _ = writeln!(manual, ".TP\n.B {}\n{}", roff(&row.spelled(dashes)), roff(&row.sentence()));
        }
    }
    manual += ".SH ENVIRONMENT\n\
               .TP\n\
               .B MEMCACHED_PORT_FILENAME\n\
               After binding, one line for each address listened on is written to this file: TCP INET: and the port,\n\
               or TCP INET6: and the port.\n\
               .TP\n\
               .B MEMCACHED_SASL_PWDB\n\
               The password file of \\-S: one user and password a line, with a colon between.\n\
               .TP\n\
               .B LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES\n\
               Sockets that were opened by systemd: then \\-l, \\-p, \\-s and \\-U have no effect. One named admin serves\n\
               HTTP.\n\
               .TP\n\
               .B NOTIFY_SOCKET, WATCHDOG_USEC\n\
               The socket for notifications to systemd, and the watchdog interval.\n\
               .SH SIGNALS\n\
               SIGINT, SIGTERM and SIGUSR1 stop the server, the last when it has finished what it is at. SIGHUP lets it\n\
               read passwords, certificates and the token of \\-\\-admin\\-token\\-file again.\n\
               .SH EXIT STATUS\n\
               0 after a stop or a printing option, 1 for a bad value, 64 for options that exclude each other, that\n\
               this version refuses, or words that are no options, 67 for an unknown user, 71 when an address\n\
               cannot be listened on.\n";
    manual
}

/// The tables of docs/options.md.
pub(super) fn markdown(_: Program) -> String {
    let mut markdown = String::new();
    for (title, rows, dashes) in
        [("Command line", COMMAND_LINE, "--"), ("Extended options (`-o`)", EXTENDED, "")]
    {
        let _ =
            write!(markdown, "## {title}\n\n| option | default | what it does | here |\n|---|---|---|---|\n");
        for row in rows {
            let status = match row.status {
                Status::Honoured => "honoured".to_owned(),
                Status::Accepted(reason) => format!("accepted without effect: {reason}"),
                Status::Refused(reason) => format!("refused: {reason}"),
            };
            let spelled = row.spelled(dashes).replace('|', "\\|");
            let _ = writeln!(markdown, "| `{spelled}` | {} | {} | {status} |", row.default, row.help);
        }
        markdown.push('\n');
    }
    markdown.truncate(markdown.trim_end().len());
    markdown + "\n"
}

impl Row {
    pub(super) fn is_refused(&self) -> bool {
        // -U 0 is not refused, but no feature either.
        matches!(self.status, Status::Refused(_))
    }

    /// `-p, --port=<num>`; an extended option has no `dashes`.
    fn spelled(&self, dashes: &str) -> String {
        let value = match self.value {
            Value::None => String::new(),
            Value::Needed(value) => format!("={value}"),
            Value::Possible(value) => format!("[={value}]"),
        };
        let short = self.short.map(|short| format!("-{short}, ")).unwrap_or_default();
        format!("{short}{dashes}{}{value}", self.name)
    }

    /// Help, default and status as prose.
    fn sentence(&self) -> String {
        let mut sentence = self.help.to_owned();
        if !self.default.is_empty() {
            let _ = write!(sentence, " (default: {})", self.default);
        }
        match self.status {
            Status::Honoured => sentence.push('.'),
            Status::Accepted(reason) => {
                let _ = write!(sentence, ". Accepted without effect: {reason}.");
            }
            Status::Refused(reason) => {
                let _ = write!(sentence, ". Refused: {reason}.");
            }
        }
        sentence
    }
}

/// One entry of the help: the option on the left, its effect in a separate column.
fn entry(help: &mut String, row: &Row, spelled: &str) {
    let mut text = row.help.to_owned();
    if !row.default.is_empty() {
        let _ = write!(text, " (default: {})", row.default);
    }
    if matches!(row.status, Status::Accepted(_)) {
        text += " [no effect]";
    }
    let _ = writeln!(help, "{spelled:<34} {text}");
}

/// Escapes characters that are special in roff.
fn roff(text: &str) -> String {
    text.trim_start().replace('\\', "\\e").replace('-', "\\-")
}
