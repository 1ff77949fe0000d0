//! Tools on a terminal, where tmux lends one.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::server::free_port;

use crate::{command, ok, start_larderd, start_memcached};

#[test]
fn a_fleet_is_watched_of_which_one_server_goes_and_comes_back() {
    let Some(terminal) = Tmux::new(80, 10) else { return };
    // While memcached is away, nobody else gets its port.
    let port = free_port().to_string();
    let (larderd, memcached) = (start_larderd(&[]), start_memcached(&["-p", &port]));
    ok(&larderd, &["set", "a", "b"]);
    let servers = format!("{},{}", larderd.address(), memcached.address());
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
    // The memory is four words: so much of so much, and its unit.
    assert_eq!(row(&screen, &larderd_name).len(), heading.len() - 1 + 3, "{screen}");
    assert!(screen.lines().nth(2).is_some_and(|line| line.starts_with("TOTAL ")), "{screen}");

    drop(memcached);
    let screen = terminal.until("one is gone", |screen| screen.contains("1 does not answer"));
    assert!(screen.contains(&format!("\n{memcached_name}  cannot connect: ")), "{screen}");
    assert!(row(&screen, &larderd_name).len() > 2, "{screen}");

    let _memcached = start_memcached(&["-p", &port]);
    terminal.until("it is back", |screen| !screen.contains("does not answer"));
    terminal.keys("q");
    terminal.until_over();
}

#[test]
fn help_trends_and_hot_keys_are_shown_on_demand() {
    let Some(terminal) = Tmux::new(160, 40) else { return };
    let server = start_larderd(&[]);
    ok(&server, &["set", "warm", "x"]);
    terminal.run(&command("", &["top", "--servers", &server.address().to_string()]));
    let screen = terminal.until("a server is shown", |screen| screen.contains("gets and sets a second"));
    assert!(!screen.contains("TOTAL"), "{screen}");
    let heading: Vec<&str> = screen.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(heading.len(), 14, "{screen}");
    terminal.keys("?");
    terminal.until("help is shown", |screen| screen.contains("choose the column to sort by"));
    terminal.keys("?");
    terminal.until("help is gone", |screen| !screen.contains("choose the column to sort by"));
    terminal.keys("k");
    terminal.until("hot keys are awaited", |screen| screen.contains("waiting for look-ups"));
    terminal.until("the hot key is shown", |screen| {
        ok(&server, &["get", "warm"]);
        screen.lines().any(|line| line.ends_with("%  warm"))
    });
    terminal.keys("k");
    terminal.until("hot keys are hidden", |screen| !screen.contains("HOT KEY"));
    terminal.keys("q");
    terminal.until_over();
}

#[test]
fn a_value_is_typed_after_a_word_about_it() {
    let Some(terminal) = Tmux::new(80, 10) else { return };
    let server = start_larderd(&[]);
    terminal.run(&command("", &["set", "a", "--servers", &server.address().to_string()]));
    terminal.until("it says so", |screen| {
        screen.contains("larder set: reading the value from standard input until Ctrl-D")
    });
    terminal.keys("hello");
    terminal.keys("Enter");
    terminal.keys("C-d");
    terminal.until_over();
    assert_eq!(ok(&server, &["cat", "a"]), "hello\n");
}

#[test]
fn a_run_whose_terminal_goes_away_ends() {
    let Some(terminal) = Tmux::new(80, 24) else { return };
    let server = start_larderd(&[]);
    terminal.run(&command("", &["bench", &server.address().to_string(), "--secs", "3600", "--keys", "10"]));
    terminal.until("the run is shown", |screen| screen.contains("q: stop"));
    let pid = terminal.tmux(&["list-panes", "-F", "#{pane_pid}"]).stdout;
    let process = format!("/proc/{}", String::from_utf8_lossy(&pid).trim());
    assert!(Path::new(&process).exists());
    drop(terminal);
    let deadline = Instant::now() + TIMEOUT;
    while Path::new(&process).exists() {
        assert!(Instant::now() < deadline, "it goes on");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A terminal, gone when dropped.
pub(crate) struct Tmux {
    socket: String,
    columns: u32,
    lines: u32,
}

impl Tmux {
    /// `None`: there is no tmux here.
    pub(crate) fn new(columns: u32, lines: u32) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Command::new("tmux").arg("-V").output().ok()?;
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Some(Self { socket: format!("larder-{}-{n}", std::process::id()), columns, lines })
    }

    fn tmux(&self, args: &[&str]) -> Output {
        Command::new("tmux")
            .args(["-L", &self.socket, "-f", "/dev/null"])
            .args(args)
            .output()
            .expect("it runs")
    }

    fn run(&self, command: &Command) {
        self.run_in(&[], command);
    }

    /// The terminal has an environment of its own: these `NAME=VALUE` are added.
    pub(crate) fn run_in(&self, environment: &[&str], command: &Command) {
        let words = [command.get_program()].into_iter().chain(command.get_args());
        let (columns, lines) = (self.columns.to_string(), self.lines.to_string());
        let mut args = vec!["new-session", "-d", "-x", &columns, "-y", &lines];
        args.extend(environment.iter().flat_map(|variable| ["-e", variable]));
        let words: Vec<&str> = words.map(|word| word.to_str().expect("it is text")).collect();
        args.extend(words);
        let started = self.tmux(&args);
        assert!(started.status.success(), "{started:?}");
    }

    pub(crate) fn keys(&self, keys: &str) {
        self.tmux(&["send-keys", keys]);
    }

    /// The screen, once it shows this.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_shown: impl Fn(&str) -> bool) -> String {
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
    pub(crate) fn until_over(&self) {
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
