//! What the documents themselves do not say: what their reader has, what tries blocks that are no commands, and which
//! commands are run by other tests. A row that fits nothing is an error.

/// Names of the machine, each with an address of its own.
pub(super) const SERVERS: &[&str] = &[
    "cache-1",
    "cache-2",
    "cache-3",
    "new",
    "new-1",
    "new-2",
    "new-3",
    "new-cache",
    "old",
    "old-1",
    "old-2",
    "old-cache",
];

/// Document, and what its reader has done before.
pub(super) const BEFORE: &[(&str, &str)] = &[
    ("README.md", "install -D -t target/release /usr/local/bin/larderd"),
    ("docs/admin.md", "install -D /dev/null /etc/prometheus/larder.token"),
    ("docs/authentication.md", "mkdir /etc/larder; larder passwd /etc/larder/passwords jobs; chmod 644 /etc/larder/passwords
        larderd -d -u nobody -P /run/larderd.pid -Y /etc/larder/passwords; eventually test -s /run/larderd.pid"),
    ("docs/bench.md", "servers 127.0.0.1 cache-1"),
    ("docs/guides/clients.md", "servers 127.0.0.1"),
    ("docs/guides/replace-memcached.md", "package; sed -i 's/^-m .*/-m 1024/' /etc/memcached.conf
        systemctl start memcached; eventually larder ping
        command larder bench --keys 5000 --value-bytes 200 --secs 1 > bench.log 2>&1"),
    ("docs/guides/tls-and-logins.md", "package"),
    ("docs/install.md", "package; apt-get purge -y larder > /dev/null 2>&1"),
    ("docs/logs.md", "servers 127.0.0.1"),
    ("docs/operations.md", "package; echo web:secret > passwords; servers old-1 new-1"),
    ("docs/store.md", "servers 127.0.0.1"),
    ("docs/tls.md", "install -d /etc/larder; openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=cache-1 \\
        -keyout /etc/larder/server.key -out /etc/larder/server.pem 2> /dev/null; chmod 644 /etc/larder/*"),
    ("docs/tools.md", "servers 127.0.0.1 cache-1 cache-2 new new-1 new-2 new-3 new-cache old old-1 old-2
        /tmp/memcached -d -u nobody -l old-cache; eventually larder ping -s old-cache > /dev/null
        command larder bench -s old-cache --keys 500 --value-bytes 200 --secs 1 > bench.log 2>&1
        mkdir site; touch site/index.html a.png b.png"),
    ("docs/troubleshooting.md", "servers 127.0.0.1"),
];

/// Document, language of blocks, and the command that tries each of them, which is in the file `block`; or the test
/// that does.
pub(super) const FILES: &[(&str, &str, &str)] = &[
    ("README.md", "rust", "cargo test --package larder-engine --doc"),
    ("crates/engine/README.md", "rust", "cargo test --package larder-engine --doc"),
    ("crates/client/README.md", "rust,no_run", "cargo test --package larder-client --doc"),
    ("README.md", "python", "$ python3 block | diff - <(sed -n 's/.*) *# //p' block)"),
    ("docs/admin.md", "yaml", "$ cp /job/larder.rules.yml . && /job/promtool check config block"),
    ("docs/bench.md", "toml", "$ larder bench --scenario block --servers cache-1 --no-screen"),
    (
        "docs/guides/clients.md",
        "ini",
        "$ php -c block -r \\
        'session_start(); $_SESSION[\"n\"] = 1; session_write_close();' && larder stat --grep curr_items | grep -q 'curr_items: 1'",
    ),
    ("docs/guides/clients.md", "php", "cargo xtask clients page"),
    ("docs/guides/clients.md", "python", "cargo xtask clients page"),
    ("docs/guides/clients.md", "java", "cargo xtask clients page"),
    ("docs/guides/clients.md", "ruby", "cargo xtask clients page"),
    ("docs/guides/clients.md", "go", "cargo xtask clients page"),
    ("docs/guides/clients.md", "js", "cargo xtask clients page"),
    ("docs/guides/clients.md", "perl", "cargo xtask clients page"),
    ("docs/guides/failover.md", "keepalived", "keepalived --config-test of Debian, by hand"),
    ("docs/http.md", "python", "cargo xtask clients requests"),
    ("docs/http.md", "nginx", "cargo xtask clients Nginx"),
    ("docs/logs.md", "json", "$ jq -e .timestamp block"),
    ("docs/guides/namespaces.md", "toml", "$ mv block namespaces.toml"),
    ("docs/start.md", "python", "$ mv block hello.py"),
    ("docs/replication-protocol.md", "hexdump", "cargo test --package larder-replication --test wire"),
    ("docs/store-format.md", "hexdump", "cargo test --package larder-store --test format"),
];

/// How commands begin that no system of the test's own can run, and what tests them instead.
pub(super) const ELSEWHERE: &[(&str, &str)] = &[
    ("cargo build", "cargo xtask test builds the programs"),
    ("cargo install", "the same build as cargo build"),
    ("cargo run --release -- -l 127.0.0.1 ", "the page starts larderd in the background further down"),
    ("cargo xtask", "here only its chores and options are compared with their usage"),
    ("export PATH=$PWD/target/release", "nothing is built in the system"),
    ("install -D -m 755 target/c-library", "nothing is built in the system"),
    ("ln -s libmemcached.so.11", "nothing is built in the system"),
    ("LD_LIBRARY_PATH=/opt/larder/lib", "nothing is built in the system"),
    ("apt install ./liblarder-memcached", "cargo xtask packaging installs it, and runs programs with it"),
    ("LD_LIBRARY_PATH=/usr/lib/", "cargo xtask packaging runs programs with the package's library"),
    ("echo /usr/lib/x86_64-linux-gnu/larder-memcached", "would change every later command"),
    ("ldconfig", "would change every later command"),
    ("cc -I crates/memcached-c/include", "cargo test -p larder-memcached-c compiles with these headers"),
    (
        "docker ",
        "needs registries; cargo xtask packaging lints the Dockerfiles, cargo xtask clients compose runs the rest",
    ),
    ("helm ", "needs a cluster; cargo xtask packaging renders the chart with Helm's library"),
    ("kubectl ", "needs a cluster"),
    ("dnf ", "needs Fedora; cargo xtask packaging looks into the RPM"),
    ("editor ", "waits for its user"),
    ("vi ", "waits for its user"),
    ("printf 'watch ", "goes on until Ctrl-C; crates/cli/tests/tools/events.rs"),
    ("larder flush -s cache-1 --prefix", "this server has no namespaces; docs/guides/namespaces.md"),
    ("ssh vault", "needs another machine; crates/cli/tests/tools/backup.rs"),
    ("python3 generate.py", "takes the clients that cargo xtask test installs, and writes what it tests"),
    ("LARDER_VALUE_CLIENTS=", "cargo xtask test runs it"),
    ("larder top", "has a screen; crates/cli/tests/tools/screen.rs"),
    (
        "larder dump old-cache --file old.dump --resume",
        "nothing has interrupted it; crates/cli/tests/tools/transfer.rs",
    ),
    ("larder shell", "crates/cli/tests/tools/shell.rs"),
    ("larderd --store", "stays in the foreground; crates/server/tests/store.rs"),
    ("larder backup", "crates/server/tests/store.rs"),
    ("larder restore", "crates/server/tests/store.rs"),
    ("larder sites", "crates/cli/tests/tools/sites.rs"),
    ("larder read-only", "crates/cli/tests/tools/sites.rs"),
    ("larder check", "crates/store/src/tests"),
    ("larder bench compare", "takes minutes; crates/bench/tests/servers.rs"),
    ("larder bench search", "takes minutes; crates/bench/tests/servers.rs"),
    ("larder bench sweep", "takes minutes; crates/bench/tests/servers.rs"),
    ("larder bench agent", "needs machines; crates/bench/tests/servers.rs"),
    ("larder bench collect", "needs machines; crates/bench/tests/servers.rs"),
];
