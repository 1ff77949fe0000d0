//! Namespaces of a store: what concerns one leaves the others alone, over restarts too.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;

use larder_conformance::folder::Folder;
use larder_conformance::server::Server;

/// A larderd with a store and these namespaces.
fn start(folder: &Folder, namespaces: &str) -> Server {
    let (store, file) = (folder.path().join("store"), folder.path().join("namespaces.toml"));
    fs::write(&file, namespaces).expect("writes");
    let plain = |path: &Path| path.to_str().expect("a plain path").to_owned();
    let args = ["-u", "root", "-m", "64", "--store", &plain(&store), "--namespaces", &plain(&file)];
    Server::start(Path::new(env!("CARGO_BIN_EXE_larderd")), &args).expect("larderd starts")
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn of(server: &Server) -> Self {
        Self(BufReader::new(server.connect().expect("larderd listens")))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("larderd answers");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, text: &str) -> String {
        self.0.get_mut().write_all(text.as_bytes()).expect("larderd reads");
        self.line()
    }

    fn set(&mut self, key: &str) {
        assert_eq!(self.ask(&format!("set {key} 0 0 1\r\nx\r\n")), "STORED");
    }

    /// Which of the keys are there.
    fn found<'k>(&mut self, keys: &[&'k str]) -> Vec<&'k str> {
        keys.iter().copied().filter(|key| self.ask(&format!("mg {key}\r\n")) == "HD").collect()
    }
}

const NESTED: &str = r#"
[default]
keep = "store"
[namespace."a:"]
keep = "store"
[namespace."a:b:"]
keep = "store"
[namespace."a:c:"]
keep = "cache"
"#;

#[test]
fn a_flush_leaves_nested_namespaces_alone() {
    let keys = ["x", "a:1", "a:b:1", "a:b"];
    for (command, left) in [
        ("flush_prefix a:", &["x", "a:b:1"][..]),
        ("flush_prefix a:b:", &["x", "a:1", "a:b"]),
        ("flush_prefix <null>", &["a:1", "a:b:1", "a:b"]),
        ("flush_all", &[]),
    ] {
        let folder = Folder::create();
        let server = start(&folder, NESTED);
        let mut client = Client::of(&server);
        ["a:c:1"].iter().chain(&keys).for_each(|key| client.set(key));
        assert_eq!(client.ask(&format!("{command}\r\n")), "OK");
        assert_eq!(client.found(&keys), left, "{command}");
        assert_eq!(client.found(&["a:c:1"]).len(), usize::from(command != "flush_all"), "{command}");
        server.kill().expect("it is killed");
        let server = start(&folder, NESTED);
        let mut client = Client::of(&server);
        assert_eq!(client.found(&keys), left, "{command}, after a crash");
        client.set("a:1");
        server.stop().expect("it stops");
        let server = start(&folder, NESTED);
        let mut client = Client::of(&server);
        let left: Vec<_> = keys.into_iter().filter(|key| *key == "a:1" || left.contains(key)).collect();
        assert_eq!(client.found(&keys), left, "{command}, after a restart");
    }
}
