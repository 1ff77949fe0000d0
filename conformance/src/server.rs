//! A server process of one's own: larderd or memcached, on an ephemeral port of 127.0.0.1, gone when dropped.
//!
//! Both programs are started with the same command line, since larderd takes memcached's. The port is learned the way
//! memcached's own tests learn it: `-p -1` and the environment variable `MEMCACHED_PORT_FILENAME`.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, io, mem, thread};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, kill_process};

use crate::Result;
use crate::cargo::cargo;
use crate::folder::Folder;
use crate::script::Side;

/// A running server. Dropping it kills the process.
pub struct Server {
    child: Child,
    addresses: Vec<SocketAddr>,
    udp_address: Option<SocketAddr>,
    admin_address: Option<SocketAddr>,
    http_address: Option<SocketAddr>,
    /// Where it keeps its items: [`keep_in_store`].
    _store: Option<Folder>,
}

impl Server {
    /// Starts `program` with `args` (memcached's options, without port and address) and waits until it listens.
    /// Its standard error goes to ours.
    pub fn start<S: AsRef<OsStr>>(program: &Path, args: &[S]) -> Result<Self> {
        let mut command = command(program);
        command.args(args);
        Self::start_command(command)
    }

    /// Starts any command that names its port in the file `$MEMCACHED_PORT_FILENAME`, as memcached does.
    pub fn start_command(mut command: Command) -> Result<Self> {
        let port_file = PortFile::new();
        let program = PathBuf::from(command.get_program());
        let is_told = command.get_args().any(|arg| arg == "--store");
        let store =
            (KEEPS_IN_STORE.load(Ordering::Relaxed) && !is_told && is_larderd(&program)).then(Folder::create);
        if let Some(store) = &store {
            command.arg("--store").arg(store.file("store"));
        }
        let mut child = command
            .env("MEMCACHED_PORT_FILENAME", &port_file.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;

        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let addresses = port_file.addresses("TCP");
            if !addresses.is_empty() {
                let udp_address = port_file.addresses("UDP").first().copied();
                let admin_address = port_file.addresses("ADMIN").first().copied();
                let http_address = port_file.addresses("HTTP").first().copied();
                return Ok(Self {
                    child,
                    addresses,
                    udp_address,
                    admin_address,
                    http_address,
                    _store: store,
                });
            }
            if let Some(status) = child.try_wait()? {
                return Err(format!("{} did not start: {status}", program.display()).into());
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{} named no port within {START_TIMEOUT:?}", program.display()).into());
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Where it listens: the first of [`Self::addresses`].
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// The port of every listener for connections, as of 127.0.0.1, in the order of its `-l`.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it listens for datagrams, if it was started with `-U`.
    pub fn udp_address(&self) -> Option<SocketAddr> {
        self.udp_address
    }

    /// Where larderd listens for operators, if it was started with `--admin-listen`.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Where larderd serves items over HTTP, if it was started with `--http-listen`.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// A new connection, with Nagle's algorithm off so that each write travels alone.
    pub fn connect(&self) -> io::Result<TcpStream> {
        connect(self.address())
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Kills it (`SIGKILL`), and waits for its end.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops it (`SIGTERM`), and waits for its end.
    pub fn stop(mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        Ok(self.child.wait()?)
    }

    /// Whether the process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// [`resident_bytes`] of the process.
    pub fn resident_bytes(&self) -> Result<u64> {
        resident_bytes(self.pid())
    }
}

/// Resident memory of any process in bytes (`VmRSS` of /proc/PID/status).
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS line")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What [`Server::start`] starts, for [`Server::start_command`] with further options or variables. Of an option given
/// twice the last one counts.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["-l", "127.0.0.1", "-p", "-1", "-U", "0"]);
    if is_root() {
        command.args(["-u", "nobody"]);
    }
    command
}

/// Whether from here on each larderd under test that is started keeps its items in a store of its own (`--store`).
/// The store is gone with the server.
pub fn keep_in_store(keeps: bool) {
    KEEPS_IN_STORE.store(keeps, Ordering::Relaxed);
}

/// What [`keep_in_store`] has said.
pub fn keeps_in_store() -> bool {
    KEEPS_IN_STORE.load(Ordering::Relaxed)
}

static KEEPS_IN_STORE: AtomicBool = AtomicBool::new(false);

/// Whether it is the larderd under test, not another build or server.
fn is_larderd(program: &Path) -> bool {
    let file = |path: &Path| fs::canonicalize(path).ok();
    file(program).is_some_and(|program| larderd().ok().and_then(|larderd| file(&larderd)) == Some(program))
}

/// A connection with `TCP_NODELAY`.
pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The server of a side.
pub fn of(side: Side) -> Result<PathBuf> {
    match side {
        Side::Reference => memcached(),
        Side::Larder => larderd(),
    }
}

/// The larderd to test: `$LARDERD` if set, else the one of this workspace, built now: for a test in the profile of the
/// test, for any other program as it is released.
pub fn larderd() -> Result<PathBuf> {
    static BUILT: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    if let Some(path) = env::var_os("LARDERD") {
        return Ok(path.into());
    }
    BUILT.get_or_init(|| build_larderd().map_err(|error| error.to_string())).clone().map_err(Into::into)
}

/// The reference: `$MEMCACHED` if set, else the `memcached` found on the PATH or in /usr/bin.
pub fn memcached() -> Result<PathBuf> {
    if let Some(path) = env::var_os("MEMCACHED") {
        return Ok(path.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain([PathBuf::from("/usr/bin")])
        .map(|dir| dir.join("memcached"))
        .find(|file| file.is_file())
        .ok_or_else(|| "there is no memcached here: apt-get install memcached, or set MEMCACHED".into())
}

/// The reference, for a test that says nothing without it: `None` where none is installed, or where `MEMCACHED` is
/// empty. `cargo test` passes without one; `cargo xtask test` installs it first.
pub fn reference() -> Option<PathBuf> {
    let reference = memcached().ok().filter(|path| !path.as_os_str().is_empty());
    if reference.is_none() {
        eprintln!("skipped: there is no memcached to compare with");
    }
    reference
}

/// The reference where it is installed, else larderd: for tests of clients, which any server will do for.
pub fn any() -> Result<PathBuf> {
    reference().map_or_else(larderd, Ok)
}

/// The first line of `program -V`, e.g. `memcached 1.6.18`.
pub fn version(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("-V").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn build_larderd() -> Result<PathBuf> {
    let exe = env::current_exe()?;
    let own_dir = exe.parent().ok_or("the program has no directory")?;
    let is_test = own_dir.ends_with("deps");
    let own_profile_dir = if is_test { own_dir.parent().ok_or("no directory above deps/")? } else { own_dir };
    let target_dir = own_profile_dir.parent().ok_or("no target directory")?;
    let profile_dir = if is_test { own_profile_dir.to_owned() } else { target_dir.join("release") };

    let mut cargo = cargo();
    cargo
        .args(["build", "--quiet", "--package", "larder-server", "--bin", "larderd", "--target-dir"])
        .arg(target_dir);
    if profile_dir.ends_with("release") {
        cargo.arg("--release");
    }
    if !cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status()?.success() {
        return Err("larderd does not build".into());
    }
    Ok(profile_dir.join("larderd"))
}

/// The file to which a server writes its ports (memcached: `<file>.lck`, renamed when complete).
struct PortFile {
    path: PathBuf,
}

impl PortFile {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("larder-ports-{}-{n}", std::process::id()));
        // A process that had the same number may have been killed.
        let _ = fs::remove_file(&path);
        Self { path }
    }

    /// Empty until the file exists.
    fn addresses(&self, transport: &str) -> Vec<SocketAddr> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let port = |line: &str| line.strip_prefix(transport)?.strip_prefix(" INET: ")?.trim().parse().ok();
        text.lines().filter_map(port).map(|port: u16| (Ipv4Addr::LOCALHOST, port).into()).collect()
    }
}

impl Drop for PortFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A port of 127.0.0.1 that is free for TCP and UDP alike, for a program that cannot say which one it took, or has to
/// take the same one again. It is kept as long as this process lives: looked up and released, it would soon be another
/// test's. The program binds it all the same, if it sets SO_REUSEADDR, as servers do.
pub fn free_port() -> u16 {
    let is_free = |&port: &u16| {
        let Ok(socket) = bound(port) else { return false };
        // Only now: with it, a port that another process keeps in this way would be had as well.
        let is_kept = net::sockopt::set_socket_reuseaddr(&socket, true).is_ok()
            && UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if is_kept {
            mem::forget(socket);
        }
        is_kept
    };
    // Below those that Linux gives to sockets that ask for any (`ip_local_port_range`).
    let mut ports = std::iter::repeat_with(|| fastrand::u16(10_000..32_768)).take(1000);
    ports.find(is_free).expect("one of a thousand ports is free")
}

/// An address of 127.0.0.1 that refuses connections as long as this process lives. A port that was only looked up and
/// released would soon be another socket's: its owner would get the requests that are meant for nobody.
pub fn refusing_address() -> SocketAddr {
    let socket = bound(0).expect("a port is free");
    let address = net::getsockname(&socket).expect("it is bound").try_into().expect("an internet address");
    mem::forget(socket);
    address
}

/// A socket that is bound to this port of 127.0.0.1, 0 for any, but never listens. Errors: the port is taken.
fn bound(port: u16) -> io::Result<OwnedFd> {
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok(socket)
}

/// memcached refuses to start as root without `-u`.
fn is_root() -> bool {
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

/// Options of a memcached with one thread and none in the background: nobody holds an item any more once its reply has
/// been read. Else a change may meet an item that is held, and makes a new one beside it, without the old one's marks
/// and padding (`do_add_delta` in memcached.c).
pub const STILL_REFERENCE: [&str; 4] = ["-t", "1", "-o", "no_lru_maintainer,no_lru_crawler"];

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until `is_so`, for a minute at most, with room for a busy machine; then it panics.
#[track_caller]
pub fn eventually(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "not within a minute");
        thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_free_port_is_kept_for_who_sets_so_reuseaddr() {
        let port = free_port();
        assert!(bound(port).is_err());
        let address = (Ipv4Addr::LOCALHOST, port);
        let _server = TcpListener::bind(address).expect("it is kept for us");
        assert!(UdpSocket::bind(address).is_ok() && TcpStream::connect(address).is_ok());
    }
}
