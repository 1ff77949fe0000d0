//! A larderd with a file of namespaces, and what it takes to ask it.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use larder_conformance::folder::Folder;
use larder_conformance::server::{self, Server};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) struct Larderd {
    pub(crate) server: Server,
    pub(crate) folder: Folder,
}

impl Larderd {
    /// Starts it with this file of namespaces, and these options.
    pub(crate) fn start(namespaces: &str, options: &[&str]) -> Self {
        Self::start_with(namespaces, options, &[])
    }

    /// The same with these variables in its environment.
    pub(crate) fn start_with(namespaces: &str, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = Folder::create();
        folder.write("namespaces.toml", namespaces);
        let mut command = server::command(program());
        command
            .arg("--namespaces")
            .arg(folder.file("namespaces.toml"))
            .args(options)
            .envs(variables.iter().copied());
        Self { server: Server::start_command(command).expect("larderd starts"), folder }
    }

    /// The same, with its standard error in this file.
    pub(crate) fn start_logging(namespaces: &str, options: &[&str], log: &str) -> Self {
        let folder = Folder::create();
        folder.write("namespaces.toml", namespaces);
        let mut command = server::command(program());
        command.arg("--namespaces").arg(folder.file("namespaces.toml")).args(options);
        command.stderr(std::fs::File::create(log).expect("the folder is ours"));
        Self { server: Server::start_command(command).expect("larderd starts"), folder }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = self.server.connect().expect("larderd listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is no zero");
        stream
    }

    /// What a connection of its own is answered, up to its end.
    pub(crate) fn ask(&self, commands: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(format!("{commands}quit me\r\n").as_bytes()).expect("larderd reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("larderd answers");
        String::from_utf8(answer).expect("it is text")
    }

    /// The statistics of a group, by name.
    pub(crate) fn stats(&self, group: &str) -> HashMap<String, String> {
        let answer = self.ask(&format!("stats {group}\r\n"));
        let stat = |line: &str| {
            let (name, value) = line.strip_prefix("STAT ")?.rsplit_once(' ')?;
            Some((name.to_owned(), value.to_owned()))
        };
        answer.lines().filter_map(stat).collect()
    }

    /// A statistic of a namespace.
    pub(crate) fn stat(&self, namespace: &str, name: &str) -> u64 {
        let stats = self.stats("namespaces");
        stats[&format!("namespace:{namespace}:{name}")].parse().expect("it is a number")
    }

    /// Changes the file and has it read again. Returns before it is.
    pub(crate) fn reload(&self, namespaces: &str) {
        self.folder.write("namespaces.toml", namespaces);
        kill_process(Pid::from_raw(self.server.pid() as i32).expect("it is not 0"), Signal::HUP)
            .expect("it runs");
    }
}

/// What larderd says of this file of namespaces and these options when it does not start.
pub(crate) fn refusal(namespaces: &str, options: &[&str]) -> String {
    let folder = Folder::create();
    folder.write("bad.toml", namespaces);
    let mut command = Command::new(program());
    command.current_dir(folder.path()).args(["-l", "127.0.0.1", "-p", "-1", "--namespaces", "bad.toml"]);
    let Output { status, stderr, .. } = command.args(options).output().expect("larderd is built");
    assert_eq!(status.code(), Some(1), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stderr).expect("it is text").trim_end().to_owned()
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_larderd"))
}
