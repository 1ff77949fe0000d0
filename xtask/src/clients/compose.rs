//! The Compose files of docs/guides/compose. docker-compose reads them. Server and application then run as their
//! containers would, without the images: with the options and the command of the files, the application in a copy of
//! its folder, where the client is that of the other tests, and the server under another address.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::Result;
use larder_conformance::folder::Folder;
use larder_conformance::server::{self, Server};
use serde_json::Value;

use crate::shell;

/// An application and its server.
pub(super) struct Compose(PathBuf);

impl Compose {
    /// One for each language, by name.
    pub(super) fn all() -> Result<Vec<Self>> {
        let mut folders = Vec::new();
        for entry in fs::read_dir(shell::root().join(FOLDER))? {
            folders.push(entry?.path());
        }
        folders.sort();
        Ok(folders.into_iter().map(Self).collect())
    }

    pub(super) fn title(&self) -> String {
        format!("compose: {FOLDER}/{}", self.0.file_name().unwrap_or_default().to_string_lossy())
    }

    /// Runs the application; returns what it did in a line.
    pub(super) fn run(&self, program: &Path) -> Result<String> {
        let mut read = Command::new("sh");
        read.args(["-c", READ]).current_dir(&self.0);
        let services = &serde_json::from_str::<Value>(&shell::output(&mut read)?)?["services"];
        let (larder, app) = (&services["larder"], &services["app"]);
        if larder["build"]["context"].as_str().map(PathBuf::from) != Some(shell::root()) {
            return Err("larder is not built from this repository".into());
        }
        let mut command = server::command(program);
        command.args(words(&larder["command"])?);
        let server = Server::start_command(command)?;

        let folder = Folder::create();
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            fs::copy(&path, folder.path().join(path.file_name().ok_or("a file has no name")?))?;
        }
        let installed = shell::target_dir()?.join("clients");
        std::os::unix::fs::symlink(installed.join("java"), folder.file("lib"))?;
        let image = fs::read_to_string(self.0.join("Dockerfile"))?;
        let line = image.lines().rev().find_map(|line| line.strip_prefix("CMD ")).ok_or("no CMD")?;
        let line = words(&serde_json::from_str(line)?)?;
        let python = installed.join("pymemcache/bin");
        let path = format!("{}:{}", python.display(), env::var("PATH").unwrap_or_default());
        let mut command = Command::new("env");
        command.args(line).current_dir(folder.path()).env("PATH", path);
        command.env("NODE_PATH", installed.join("memjs/node_modules"));
        let address = server.address().to_string();
        for (name, value) in app["environment"].as_object().ok_or("no environment")? {
            let value = value.as_str().ok_or("a variable without a value")?;
            command.env(name, value.replace("larder:11211", &address));
        }
        let printed = shell::output(&mut command)?;
        if printed == "hello\n" { Ok(self.title()) } else { Err(format!("it prints {printed:?}").into()) }
    }
}

fn words(value: &Value) -> Result<Vec<String>> {
    Ok(serde_json::from_value(value.clone())?)
}

const FOLDER: &str = "docs/guides/compose";
/// What docker-compose understands, as JSON.
const READ: &str = "docker-compose config | /usr/bin/python3 -c '
import json, sys, yaml
print(json.dumps(yaml.safe_load(sys.stdin)))'";
