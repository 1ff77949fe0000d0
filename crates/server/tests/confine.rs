//! `-o drop_privileges`: what a confined thread cannot do, and what a confined server still can.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use larder_conformance::folder::Folder;
use larder_server::startup::sandbox::sandbox;

/// Both fences hold for the thread that raises them, and what it starts.
fn confined<T: Send + 'static>(written: Vec<PathBuf>, act: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(move || {
        sandbox(&[], &written).expect("the kernel can");
        act()
    });
    thread.join().expect("it does not panic")
}

#[test]
fn nothing_is_opened_executed_or_connected_to() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let address = listener.local_addr().expect("it is bound");
    let errors = confined(Vec::new(), move || {
        [
            File::open("/proc/self/status").err(),
            File::create("/tmp/larderd-confined").err(),
            Command::new("/bin/true").spawn().err(),
            TcpStream::connect(address).err(),
            UdpSocket::bind("127.0.0.1:0").err(),
        ]
        .map(|error| error.map(|error| error.kind()))
    });
    assert_eq!(errors, [Some(ErrorKind::PermissionDenied); 5]);
}

#[test]
fn files_that_are_read_again_can_be_read_and_no_others() {
    let folder = Folder::create();
    let (reloaded, beside) = (folder.file("in/passwords"), folder.file("beside"));
    fs::create_dir(folder.file("in")).expect("the folder is ours");
    fs::write(&reloaded, "a:b").expect("the folder is ours");
    fs::write(&beside, "secret").expect("the folder is ours");
    let successor = folder.file("in/new");
    fs::write(&successor, "c:d").expect("the folder is ours");

    let path = reloaded.clone();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        sandbox(std::slice::from_ref(&path), &[]).expect("the kernel can");
        tell.send(fs::read(&path).ok()).expect("the test waits");
        wait.recv().expect("the test goes on");
        let other = fs::read(&beside).map_err(|error| error.kind());
        let written = fs::write(&path, "x").map_err(|error| error.kind());
        let inner = thread::spawn(move || fs::read(&path).ok()).join().expect("it does not panic");
        (inner, other, written)
    });
    assert_eq!(told.recv().expect("it answers").as_deref(), Some(&b"a:b"[..]));
    fs::rename(&successor, &reloaded).expect("the folder is ours");
    go.send(()).expect("it waits");
    let (successor, other, written) = thread.join().expect("it does not panic");
    assert_eq!(successor.as_deref(), Some(&b"c:d"[..]));
    assert_eq!(other, Err(ErrorKind::PermissionDenied));
    assert_eq!(written, Err(ErrorKind::PermissionDenied));
}

#[test]
fn files_of_a_store_can_be_changed_and_no_others() {
    let folder = Folder::create();
    let (store, beside) = (folder.file("store"), folder.file("beside"));
    fs::create_dir(&store).expect("the folder is ours");
    fs::write(&beside, "secret").expect("the folder is ours");
    let kinds = confined(vec![store.clone()], move || {
        let kind = |result: std::io::Result<()>| result.map_err(|error| error.kind());
        let inside = store.join("new");
        [
            kind(fs::write(&inside, "x")),
            kind(fs::rename(&inside, store.join("other"))),
            kind(fs::read(store.join("other")).map(drop)),
            kind(fs::read(&beside).map(drop)),
            kind(fs::write(&beside, "x")),
            kind(fs::remove_file(&beside)),
            kind(fs::hard_link(store.join("other"), beside.with_extension("link"))),
            kind(std::os::unix::fs::symlink("/etc", store.join("link"))),
            kind(Command::new("/bin/true").spawn().map(drop)),
            kind(fs::remove_file(store.join("other"))),
        ]
    });
    let denied = Err(ErrorKind::PermissionDenied);
    assert_eq!(kinds[..3], [Ok(()); 3]);
    assert_eq!(kinds[3..9], [denied; 6]);
    assert_eq!(kinds[9], Ok(()));
}
