//! The programs of `docs/guides/clients.md`. They run as they stand on the page, but for the addresses of the servers
//! and the place of the authority's certificate.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use larder_conformance::Result;
use larder_conformance::folder::Folder;

use super::doors::{Door, Doors, PASSWORD};
use crate::documents::block::{self, Block};
use crate::shell;

/// A program of the page.
pub(super) struct Snippet {
    /// The line of the page where it begins.
    line: usize,
    client: &'static Client,
    door: Door,
    code: String,
}

/// A client that the page shows.
struct Client {
    /// The language of its code blocks.
    language: &'static str,
    /// Words that each of its programs has, and no other program in that language.
    mark: &'static str,
    runner: Runner,
}

/// How a program is run.
enum Runner {
    /// By an interpreter that finds the client by itself.
    Interpreter(&'static str),
    /// In the Python environment of this name.
    Python(&'static str),
    /// With the packages in the folder of this name.
    Node(&'static str),
    /// With all jars.
    Java,
    /// In the module of gomemcache.
    Go,
}

impl Snippet {
    /// The page's programs. Each client has one, and each program a client.
    pub(super) fn all() -> Result<Vec<Self>> {
        snippets(&fs::read_to_string(shell::root().join(PAGE))?)
    }

    pub(super) fn title(&self) -> String {
        format!("page: {PAGE}:{}, {} ({:?})", self.line, self.client.language, self.door)
    }

    /// Runs it against servers of its own; returns what it did in a line.
    pub(super) fn run(&self, doors: &Doors, program: &Path) -> Result<String> {
        let mut code = self.code.replace(AUTHORITY, &doors.authority().to_string_lossy());
        let mut servers = Vec::new();
        for address in ADDRESSES {
            let (host, port) = address.split_once(':').ok_or("an address has no port")?;
            if code.contains(port) {
                let server = doors.start(program, self.door)?;
                code = code.replace(host, &server.address().ip().to_string());
                code = code.replace(port, &server.address().port().to_string());
                servers.push(server);
            }
        }
        let folder = Folder::create();
        let printed = shell::output(self.client.runner.command(&folder, &code)?.current_dir(folder.path()))?;
        // Some clients print on standard output, too: dalli that it logs in.
        if printed.lines().last() == Some(PRINTED) {
            Ok(self.title())
        } else {
            Err(format!("it prints {printed:?}, not {PRINTED:?}").into())
        }
    }
}

impl Runner {
    fn command(&self, folder: &Folder, code: &str) -> Result<Command> {
        let installed = shell::target_dir()?.join("clients");
        let file = |name: &str| folder.write(name, code);
        let mut command;
        match self {
            Self::Interpreter(name) => {
                command = Command::new(name);
                command.arg(file("program"));
            }
            Self::Python(environment) => {
                command = Command::new(installed.join(environment).join("bin/python"));
                command.arg(file("program.py"));
            }
            Self::Node(package) => {
                command = Command::new("node");
                command
                    .env("NODE_PATH", installed.join(package).join("node_modules"))
                    .arg(file("program.js"));
            }
            Self::Java => {
                command = Command::new("java");
                command.arg("-cp").arg(installed.join("java/*")).arg(file("Greeting.java"));
            }
            Self::Go => {
                let module = shell::root().join("conformance/clients/gomemcache");
                for name in ["go.mod", "go.sum"] {
                    folder.write(name, fs::read(module.join(name))?);
                }
                file("main.go");
                command = Command::new("go");
                command.args(["run", "-buildvcs=false", "."]);
            }
        }
        Ok(command)
    }
}

fn snippets(page: &str) -> Result<Vec<Snippet>> {
    let mut found: Vec<Snippet> = Vec::new();
    for Block { line, language, text: code } in block::blocks(page) {
        if NOT_PROGRAMS.contains(&language) {
            continue;
        }
        let mut fits =
            CLIENTS.iter().filter(|client| client.language == language && code.contains(client.mark));
        let (Some(client), None) = (fits.next(), fits.next()) else {
            return Err(format!("{PAGE}:{line}: the program uses none of the clients, or several").into());
        };
        found.push(Snippet { line, client, door: door(&code), code });
    }
    let mut counts: HashMap<&str, usize> = CLIENTS.iter().map(|client| (client.mark, 0)).collect();
    found.iter().for_each(|snippet| *counts.entry(snippet.client.mark).or_default() += 1);
    match counts.iter().find(|(_, count)| **count == 0) {
        Some((mark, _)) => Err(format!("{PAGE} has no program with {mark:?}").into()),
        None => Ok(found),
    }
}

/// Chooses the door by what the program contains.
fn door(code: &str) -> Door {
    if code.contains(AUTHORITY) {
        Door::Tls
    } else if code.contains("set login ") {
        Door::Token
    } else if code.contains(PASSWORD) {
        Door::Sasl
    } else {
        Door::Plain
    }
}

const CLIENTS: &[Client] = &[
    Client { language: "php", mark: "new Memcached(", runner: Runner::Interpreter("php") },
    Client { language: "php", mark: "new Memcache(", runner: Runner::Interpreter("php") },
    Client { language: "python", mark: "from pymemcache", runner: Runner::Python("pymemcache") },
    Client { language: "python", mark: "import pylibmc", runner: Runner::Python("pylibmc") },
    Client {
        language: "python",
        mark: "import bmemcached",
        runner: Runner::Python("python-binary-memcached"),
    },
    Client { language: "python", mark: "import memcache\n", runner: Runner::Python("python-memcached") },
    Client { language: "java", mark: "import net.spy.memcached.MemcachedClient", runner: Runner::Java },
    Client { language: "ruby", mark: "require 'dalli'", runner: Runner::Interpreter("ruby") },
    Client { language: "go", mark: "bradfitz/gomemcache", runner: Runner::Go },
    Client { language: "js", mark: "require('memjs')", runner: Runner::Node("memjs") },
    Client { language: "js", mark: "require('memcached')", runner: Runner::Node("npm-memcached") },
    Client { language: "perl", mark: "use Cache::Memcached", runner: Runner::Interpreter("perl") },
];

const PAGE: &str = "docs/guides/clients.md";
/// The servers that the programs name. Each has a port of its own, since some clients take host and port apart.
const ADDRESSES: [&str; 2] = ["127.0.0.1:11211", "127.0.0.1:11212"];
const AUTHORITY: &str = "/etc/larder/authority.pem";
/// The last line that each program prints.
const PRINTED: &str = "hello";
const NOT_PROGRAMS: [&str; 3] = ["ini", "sh", "console"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_a_program_on_the_page_and_each_program_a_client() {
        let snippets = Snippet::all().expect("the page is complete");
        for door in [Door::Plain, Door::Sasl, Door::Token, Door::Tls] {
            assert!(snippets.iter().any(|snippet| snippet.door == door), "{door:?}");
        }

        let page = fs::read_to_string(shell::root().join(PAGE)).expect("the page is there");
        for (from, to, wrong) in [
            ("require 'dalli'", "require 'other'", "the program uses none of the clients"),
            ("```perl", "```console", "has no program with \"use Cache::Memcached\""),
            ("```perl", "```cobol", "the program uses none of the clients"),
        ] {
            let error = snippets_of(&page.replace(from, to));
            assert!(error.contains(wrong), "{error}");
        }
    }

    fn snippets_of(page: &str) -> String {
        match snippets(page) {
            Ok(snippets) => format!("{} programs", snippets.len()),
            Err(error) => error.to_string(),
        }
    }
}
