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

/// `--help`: the options that most servers need, on a screen of 80 columns and 50 lines.
pub(super) fn help(program: Program) -> String {
    let mut help = version(program) + "\nUsage: larderd [options]\n";
    for (title, names) in COMMON {
        let _ = writeln!(help, "\n{title}:");
        for name in *names {
            let on_command_line = COMMAND_LINE.iter().find(|row| row.name == *name);
            if let Some(row) = on_command_line {
                common_entry(&mut help, row, &row.spelled("--"));
            } else if let Some(row) = EXTENDED.iter().find(|row| row.name == *name) {
                common_entry(&mut help, row, &format!("-o {}", row.spelled("")));
            }
        }
    }
    help + EXAMPLES
}

/// `-h` and `--help-all`: every option. Refused options are left out: tools search the text of `-h` for the names of
/// features (enable-ssl, sasl, ext_path, proxy_config) to learn what a build has.
pub(super) fn help_all(program: Program) -> String {
    let mut help = version(program);
    for row in COMMAND_LINE.iter().filter(|row| !row.is_refused()) {
        entry(&mut help, row, &row.spelled("--"));
    }
    help += "\nExtended options, for -o:\n";
    for row in EXTENDED.iter().filter(|row| !row.is_refused()) {
        entry(&mut help, row, &format!("   {}", row.spelled("")));
    }
    help += "\n[no effect]: accepted so that command lines made for memcached work. The manual (--man) says why,\n\
             and which options of memcached this version refuses.\n";
    help
}

/// The manual page.
pub(super) fn manual(_: Program) -> String {
    let mut manual = format!(
        ".TH LARDERD 1 \"\" \"larder {}\" \"User Commands\"\n\
         .SH NAME\n\
         larderd \\- drop\\-in replacement for memcached\n\
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

    /// Help and default.
    fn described(&self) -> String {
        let mut text = self.help.to_owned();
        if !self.default.is_empty() {
            let _ = write!(text, " (default: {})", self.default);
        }
        text
    }

    /// Help, default and status as prose.
    fn sentence(&self) -> String {
        let mut sentence = self.described();
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

/// The options of `--help` by name, in groups.
pub(super) const COMMON: &[(&str, &[&str])] = &[
    ("Listen", &["port", "listen", "unix-socket", "threads", "conn-limit"]),
    ("Memory", &["memory-limit", "max-item-size", "disable-evictions"]),
    (
        "Protect",
        &["user", "enable-ssl", "ssl_chain_cert", "ssl_key", "auth-file", "enable-sasl", "drop_privileges"],
    ),
    ("Watch", &["admin-listen", "verbose", "log-format"]),
    ("Run", &["daemon", "pidfile", "version", "man", "help-all"]),
];

const EXAMPLES: &str = "
Examples:
  larderd -m 1024 -l 127.0.0.1
  larderd -m 1024 -l 127.0.0.1 --admin-listen 127.0.0.1:9150
  larderd -l 10.0.0.5 -Y passwords -Z -o ssl_chain_cert=c.pem,ssl_key=k.pem
";

/// One entry of `--help-all`: the option on the left, its effect in a separate column.
fn entry(help: &mut String, row: &Row, spelled: &str) {
    let mut text = row.described();
    if matches!(row.status, Status::Accepted(_)) {
        text += " [no effect]";
    }
    let _ = writeln!(help, "{spelled:<34} {text}");
}

/// One entry of `--help`, wrapped at [`SCREEN_COLUMNS`].
fn common_entry(help: &mut String, row: &Row, spelled: &str) {
    let mut line = format!("  {spelled:<26}");
    for word in row.described().split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > SCREEN_COLUMNS {
            help.push_str(line.trim_end());
            help.push('\n');
            line = " ".repeat(28);
        }
        line.push(' ');
        line.push_str(word);
    }
    help.push_str(&line);
    help.push('\n');
}

const SCREEN_COLUMNS: usize = 80;

/// Escapes characters that are special in roff.
fn roff(text: &str) -> String {
    text.trim_start().replace('\\', "\\e").replace('-', "\\-")
}
