//! `larder top` on a terminal, where tmux lends one.

use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use crate::{command, ok, start_larderd, start_memcached};

#[test]
fn a_fleet_is_watched_of_which_one_server_goes_and_comes_back() {
    let Some(terminal) = Tmux::new() else { return };
    let (larderd, memcached) = (start_larderd(&[]), start_memcached(&[]));
    ok(&larderd, &["set", "a", "b"]);
    let servers = format!("{},{}", larderd.address(), memcached.address());
    // The terminal has an environment of its own.
    terminal.run(&command("", &["top", "--servers", &servers]));

    let (larderd_name, memcached_name) = (larderd.address().to_string(), memcached.address().to_string());
    let row = |screen: &str, name: &str| {
        let line = screen.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let screen = terminal.until("both are shown", |screen| {
        row(screen, &larderd_name).len() > 1 && row(screen, &memcached_name).len() > 1
    });
    assert!(screen.starts_with("larder top  2 servers\nSERVER "), "{screen}");
    // Whole columns, and those that matter most.
    let heading: Vec<&str> = screen.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(heading, ["SERVER", "GET/s", "SET/s", "HIT", "%", "EVICT/s", "CONNS", "MEMORY", "P99"]);
    // The memory is three words: so much of so much.
    assert_eq!(row(&screen, &larderd_name).len(), heading.len() - 1 + 2, "{screen}");

    let port = memcached.address().port().to_string();
    drop(memcached);
    let screen = terminal.until("one is gone", |screen| screen.contains("1 does not answer"));
    assert!(screen.contains(&format!("\n{memcached_name}  cannot connect: ")), "{screen}");
    assert!(row(&screen, &larderd_name).len() > 2, "{screen}");

    let _memcached = start_memcached(&["-p", &port]);
    terminal.until("it is back", |screen| !screen.contains("does not answer"));
    terminal.keys("q");
    terminal.until_over();
}

/// A terminal of 80 columns, gone when dropped.
struct Tmux {
    socket: String,
}

impl Tmux {
    /// `None`: there is no tmux here.
    fn new() -> Option<Self> {
        Command::new("tmux").arg("-V").output().ok()?;
        Some(Self { socket: format!("larder-{}", std::process::id()) })
    }

    fn tmux(&self, args: &[&str]) -> Output {
        Command::new("tmux")
            .args(["-L", &self.socket, "-f", "/dev/null"])
            .args(args)
            .output()
            .expect("it runs")
    }

    fn run(&self, command: &Command) {
        let words = [command.get_program()].into_iter().chain(command.get_args());
        let mut args = vec!["new-session", "-d", "-x", "80", "-y", "10"];
        let words: Vec<&str> = words.map(|word| word.to_str().expect("it is text")).collect();
        args.extend(words);
        let started = self.tmux(&args);
        assert!(started.status.success(), "{started:?}");
    }

    fn keys(&self, keys: &str) {
        self.tmux(&["send-keys", keys]);
    }

    /// The screen, once it shows this.
    #[track_caller]
    fn until(&self, what: &str, is_shown: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let screen = String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned();
            if is_shown(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "{what}: {screen}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn until_over(&self) {
        let deadline = Instant::now() + TIMEOUT;
        while self.tmux(&["has-session"]).status.success() {
            assert!(Instant::now() < deadline, "it does not end");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

const TIMEOUT: Duration = Duration::from_secs(60);
