//! larderd as systemd runs it: the test plays systemd, and systemd's own tools have their say where they are installed.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::folder::Folder;
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, kill_process};

const LARDERD: &str = env!("CARGO_BIN_EXE_larderd");

/// Killed when dropped.
struct Larderd(Child);

impl Larderd {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }
}

impl Drop for Larderd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// larderd with these sockets as its descriptors 3 and up, as systemd passes them. Between the fork and the start only
/// a shell can set them, and the process id, without unsafe code.
fn activated(sockets: &[&dyn AsFd], names: &str, args: &[&str]) -> Command {
    let mut moves = String::new();
    for (socket, place) in sockets.iter().zip(3..) {
        rustix::io::fcntl_setfd(socket, FdFlags::empty()).expect("it is open");
        // Out of the way first: one may stand where another belongs.
        moves.push_str(&format!("exec {}<&{}; ", place + 100, socket.as_fd().as_raw_fd()));
    }
    for (_, place) in sockets.iter().zip(3..) {
        moves.push_str(&format!("exec {place}<&{}; ", place + 100));
    }
    let mut shell = Command::new("bash");
    let script = format!("{moves} export LISTEN_PID=$$; exec {LARDERD} \"$@\"");
    shell.args(["-c", &script, "larderd", "-u", "nobody", "-t", "2"]).args(args);
    shell.env("LISTEN_FDS", sockets.len().to_string()).env("LISTEN_FDNAMES", names);
    shell
}

fn refused(mut command: Command) -> Output {
    let output = command.output().expect("bash is there");
    assert!(!output.status.success());
    output
}

/// Sends, and reads as many bytes as expected.
#[track_caller]
fn expect(mut stream: impl std::io::Read + std::io::Write, request: &[u8], answer: &[u8]) {
    stream.write_all(request).expect("it reads");
    let mut found = vec![0; answer.len()];
    stream.read_exact(&mut found).expect("it answers");
    assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(answer));
}

/// What larderd tells, one message at a time.
struct Supervisor(UnixDatagram);

impl Supervisor {
    fn listen(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("the folder is ours");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("it is no zero");
        Self(socket)
    }

    #[track_caller]
    fn hear(&self) -> String {
        let mut message = [0; 4096];
        let bytes = self.0.recv(&mut message).expect("it tells something");
        String::from_utf8_lossy(&message[..bytes]).into_owned()
    }
}

#[test]
fn every_kind_of_socket_is_served_and_the_life_of_the_server_told() {
    let folder = Folder::create();
    let tcp = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let unix = UnixListener::bind(folder.file("socket")).expect("the folder is ours");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    let admin = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let address = |listener: &TcpListener| listener.local_addr().expect("it is bound");
    let supervisor = Supervisor::listen(&folder.file("notify"));

    let name = format!("larderd-{}", std::process::id());
    let name = SocketAddr::from_abstract_name(name).expect("it is short");
    let nameless = UnixListener::bind_addr(&name).expect("nobody has it");

    let sockets: [&dyn AsFd; 5] = [&tcp, &unix, &udp, &admin, &nameless];
    // Confined it can open no socket, so it must have one to tell by.
    let args = ["-o", "drop_privileges", "-l", "192.0.2.1", "-v"];
    let mut command = activated(&sockets, "larderd:larderd:larderd:admin:larderd", &args);
    command.env("NOTIFY_SOCKET", folder.file("notify")).stderr(Stdio::piped());
    let mut larderd = Larderd(command.spawn().expect("bash is there"));
    let ready = supervisor.hear();
    let served = format!("tcp:{} unix:{}", address(&tcp), folder.file("socket").display());
    assert!(ready.starts_with("READY=1\nSTATUS=") && ready.contains(&served), "{ready}");

    let mut settings = TcpStream::connect(address(&tcp)).expect("it listens");
    settings.write_all(b"stats settings\r\nquit\r\n").expect("it reads");
    let mut told = String::new();
    settings.read_to_string(&mut told).expect("it answers");
    for (name, port) in
        [("tcpport", address(&tcp).port()), ("udpport", udp.local_addr().expect("bound").port())]
    {
        assert!(told.contains(&format!("STAT {name} {port}\r\n")), "{told}");
    }
    expect(TcpStream::connect(address(&tcp)).expect("it listens"), b"set a 0 0 1\r\nb\r\n", b"STORED\r\n");
    let value = b"VALUE a 0 1\r\nb\r\nEND\r\n";
    expect(UnixStream::connect(folder.file("socket")).expect("it listens"), b"get a\r\n", value);
    expect(UnixStream::connect_addr(&name).expect("it listens"), b"get a\r\n", value);
    // Whose it is was systemd's to say.
    let owner = |path: &Path| fs::metadata(path).expect("it is there").uid();
    assert_eq!(owner(&folder.file("socket")), owner(folder.path()));
    let health = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    expect(TcpStream::connect(address(&admin)).expect("it listens"), health, b"HTTP/1.1 200 OK\r\n");
    let client = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("it is no zero");
    let header = [0, 7, 0, 0, 0, 1, 0, 0];
    let asked = [&header[..], b"get a\r\n"].concat();
    client.send_to(&asked, udp.local_addr().expect("it is bound")).expect("it is sent");
    let mut datagram = [0; 1400];
    let bytes = client.recv(&mut datagram).expect("it answers");
    assert_eq!(datagram[..bytes], [&header[..], value].concat());

    larderd.signal(Signal::HUP);
    let reloading = supervisor.hear();
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    assert!(since.is_some_and(|micros| micros.parse::<u64>().is_ok()), "{reloading}");
    assert_eq!(supervisor.hear(), "READY=1");
    larderd.signal(Signal::TERM);
    assert_eq!(supervisor.hear(), "STOPPING=1");
    let mut said = String::new();
    larderd.0.stderr.take().expect("it is piped").read_to_string(&mut said).expect("it ends");
    assert!(said.contains("options=\"-l\"") && said.contains("without effect"), "{said}");
}

#[test]
fn the_watchdog_is_fed() {
    let folder = Folder::create();
    let supervisor = Supervisor::listen(&folder.file("notify"));
    let mut command = Command::new(LARDERD);
    command.args(["-u", "nobody", "-s"]).arg(folder.file("socket"));
    command.env("NOTIFY_SOCKET", folder.file("notify")).env("WATCHDOG_USEC", "1000000");
    let _larderd = Larderd(command.spawn().expect("larderd runs"));
    assert!(supervisor.hear().starts_with("READY=1\n"));
    for _ in 0..3 {
        assert_eq!(supervisor.hear(), "WATCHDOG=1");
    }
}

#[test]
fn what_cannot_be_served_is_refused() {
    let folder = Folder::create();
    let udp = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    let passwords = folder.file("passwords");
    fs::write(&passwords, "ann:one").expect("the folder is ours");
    let passwords = passwords.to_str().expect("it is text");
    assert_eq!(refused(activated(&[&udp], "", &["-Y", passwords])).status.code(), Some(64));

    let file = fs::File::open("/dev/null").expect("it is there");
    let datagrams = UnixDatagram::bind(folder.file("datagrams")).expect("the folder is ours");
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let connection = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    for strange in [&file as &dyn AsFd, &datagrams, &connection] {
        let output = refused(activated(&[strange], "", &[]));
        assert_eq!(output.status.code(), Some(71));
        assert!(String::from_utf8_lossy(&output.stderr).contains("socket 0 that was passed"));
    }
}

/// A socket of both families, as `ListenDatagram=11211` makes it: who comes by IPv4 is told from all others, and forged
/// names of servers are dropped, as at one of IPv4 alone (docs/udp.md).
#[test]
fn a_datagram_of_either_family_is_answered_at_a_common_socket() {
    let udp = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).expect("it can be bound");
    let port = udp.local_addr().expect("it is bound").port();
    let folder = Folder::create();
    let supervisor = Supervisor::listen(&folder.file("notify"));
    let mut command = activated(&[&udp], "", &[]);
    command.env("NOTIFY_SOCKET", folder.file("notify")).stderr(Stdio::null());
    let _larderd = Larderd(command.spawn().expect("bash is there"));
    supervisor.hear();
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let client = UdpSocket::bind((ip, 0)).expect("loopback can be bound");
        client.set_read_timeout(Some(Duration::from_secs(60))).expect("it is no zero");
        client.send_to(b"\0\x01\0\0\0\x01\0\0get a\r\n", (ip, port)).expect("it is sent");
        let mut datagram = [0; 64];
        let bytes = client.recv(&mut datagram).expect("it answers");
        assert_eq!(&datagram[..bytes], b"\0\x01\0\0\0\x01\0\0END\r\n");
    }
}

/// systemd's own way to pass a socket, where it is installed (Debian: systemd).
#[test]
fn systemd_socket_activate_starts_it() {
    let folder = Folder::create();
    let path = folder.file("socket");
    let mut activate = Command::new("systemd-socket-activate");
    activate.arg("-l").arg(&path).args([LARDERD, "-u", "nobody"]).stderr(Stdio::null());
    let Ok(child) = activate.spawn() else {
        eprintln!("systemd-socket-activate is not installed: skipped");
        return;
    };
    // It becomes larderd at the first connection.
    let _larderd = Larderd(child);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut stream = loop {
        match UnixStream::connect(&path) {
            Ok(stream) => break stream,
            Err(_) => assert!(Instant::now() < deadline, "nobody listens"),
        }
        thread::sleep(Duration::from_millis(5));
    };
    expect(&mut stream, b"version\r\n", b"VERSION 1.6");
}

/// systemd's opinion of the units, where it is installed (Debian: systemd).
#[test]
fn the_units_are_sound_and_give_larderd_little_to_lose() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let folder = Folder::create();
    for name in ["larderd.service", "larderd.socket"] {
        let unit = fs::read_to_string(units.join(name)).expect("it is there");
        // Where it is installed on this machine.
        fs::write(folder.file(name), unit.replace("/usr/bin/larderd", LARDERD)).expect("the folder is ours");
    }
    let analyze = |args: &[&str]| {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(args).arg(folder.file("larderd.service")).output().ok()
    };
    let socket = folder.file("larderd.socket");
    let Some(verified) = analyze(&["verify", "--man=no", socket.to_str().expect("it is text")]) else {
        eprintln!("systemd-analyze is not installed: skipped");
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    let about_ours: Vec<_> = said.lines().filter(|line| line.contains("larderd")).collect();
    assert!(verified.status.success() && about_ours.is_empty(), "{said}");

    // 10 is wide open, 0 unusable; systemd calls up to 2.0 "OK".
    let secure =
        analyze(&["security", "--offline=yes", "--threshold=20", "--no-pager"]).expect("it is there");
    assert!(secure.status.success(), "{}", String::from_utf8_lossy(&secure.stdout));
}
