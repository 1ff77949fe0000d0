use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use super::*;

/// Held by tests with hundreds of descriptors: a process often has no more than 1024.
static MANY: Mutex<()> = Mutex::new(());

fn ring() -> Ring {
    // A machine without io_uring fails here: it has not run these tests.
    let mut ring = Ring::new().expect("io_uring of Linux 5.19, not forbidden by sysctl or seccomp");
    ring.enable().expect("it was disabled");
    ring
}

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("descriptors");
    ours.set_nonblocking(true).expect("a socket");
    (ours, theirs)
}

fn watch(ring: &mut Ring, fd: &UnixStream, tag: u64) {
    ring.watch(fd, tag, Exclusive::No).expect("room");
}

fn poll(ring: &mut Ring, fd: &UnixStream, tag: u64) {
    ring.poll(fd, tag, Readiness::Readable).expect("room");
}

/// The tags of what is ready. What does not become so is missed in the end, not waited for.
fn wait(ring: &mut Ring) -> Vec<u64> {
    ring.wait(Some(Duration::from_secs(60))).expect("it waits");
    std::iter::from_fn(|| ring.take_ready()).collect()
}

/// The same without waiting.
fn look(ring: &mut Ring) -> Vec<u64> {
    ring.wait(Some(Duration::ZERO)).expect("it looks");
    std::iter::from_fn(|| ring.take_ready()).collect()
}

#[test]
fn readiness_is_reported_once() {
    let (mut ring, (ours, mut theirs)) = (ring(), pair());
    poll(&mut ring, &ours, 1);
    assert_eq!(look(&mut ring), []);
    assert!(ring.is_armed(&ours));
    theirs.write_all(b"x").expect("room");
    assert_eq!(wait(&mut ring), [1]);
    assert_eq!(look(&mut ring), [], "once");
    assert!(!ring.is_armed(&ours));
    ring.poll(&ours, 2, Readiness::Writable).expect("room");
    assert_eq!(wait(&mut ring), [2]);
    // What is armed twice is reported once, by its last tag.
    poll(&mut ring, &ours, 3);
    poll(&mut ring, &ours, 4);
    assert_eq!((wait(&mut ring), look(&mut ring)), (vec![4], vec![]));
    drop(theirs);
    (&ours).read_exact(&mut [0; 1]).expect("it was sent");
    poll(&mut ring, &ours, 5);
    assert_eq!((wait(&mut ring), ring.in_flight), (vec![5], 0), "an end can be read");
}

#[test]
fn a_watch_is_reported_until_it_is_read() {
    let (mut ring, (ours, mut theirs)) = (ring(), pair());
    watch(&mut ring, &ours, 1);
    assert_eq!(look(&mut ring), []);
    theirs.write_all(b"xy").expect("room");
    for _ in 0..3 {
        assert_eq!(wait(&mut ring), [1]);
        assert!(ring.is_armed(&ours));
    }
    (&ours).read_exact(&mut [0; 2]).expect("both");
    assert_eq!(look(&mut ring), []);
    assert!(ring.is_armed(&ours));
    theirs.write_all(b"z").expect("room");
    assert_eq!(wait(&mut ring), [1]);
    ring.cancel(&ours).expect("room");
    assert_eq!(look(&mut ring), []);
    assert!(!ring.is_armed(&ours));
    watch(&mut ring, &ours, 2);
    watch(&mut ring, &ours, 3);
    assert_eq!(wait(&mut ring), [3]);
}

#[test]
fn one_of_two_rings_is_woken() {
    let (mut rings, (ours, mut theirs)) = ([ring(), ring()], pair());
    for (tag, ring) in rings.iter_mut().enumerate() {
        ring.watch(&ours, tag as u64, Exclusive::Yes).expect("room");
        assert_eq!(look(ring), []);
    }
    theirs.write_all(b"x").expect("room");
    let woken: Vec<_> = rings.iter_mut().flat_map(look).collect();
    assert_eq!(woken.len(), 1, "{woken:?}");
}

#[test]
fn a_wait_ends_in_time() {
    let mut ring = ring();
    ring.wait(Some(Duration::from_millis(2))).expect("it waits");
    assert_eq!(ring.take_ready(), None);
}

#[test]
fn what_was_cancelled_is_not_reported_for_the_next_socket() {
    let mut ring = ring();
    let (ours, mut theirs) = pair();
    poll(&mut ring, &ours, 1);
    assert_eq!(look(&mut ring), []);
    // It has completed in the kernel by the time it is cancelled.
    theirs.write_all(b"x").expect("room");
    ring.cancel(&ours).expect("room");
    let (other, mut theirs) = pair();
    // SAFETY: both are open; `ours` owns its number before and after, and means another socket then.
    assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), ours.as_raw_fd()) }, ours.as_raw_fd());
    poll(&mut ring, &ours, 2);
    assert_eq!(look(&mut ring), []);
    theirs.write_all(b"x").expect("room");
    assert_eq!((wait(&mut ring), ring.in_flight), (vec![2], 0));
}

#[test]
fn what_was_cancelled_before_its_report_is_never_reported() {
    let (mut ring, (ours, mut theirs)) = (ring(), pair());
    theirs.write_all(b"x").expect("room");
    poll(&mut ring, &ours, 1);
    ring.wait(None).expect("it waits");
    ring.cancel(&ours).expect("nothing to do");
    assert_eq!(ring.take_ready(), None);
}

/// An operation that is queued and not submitted goes by a number, which must not come to mean another socket.
#[test]
fn a_cancelled_operation_is_never_submitted_later() {
    let (mut ring, (ours, mut theirs)) = (ring(), pair());
    poll(&mut ring, &ours, 1);
    ring.cancel(&ours).expect("room");
    assert!(ring.uring.submission().is_empty());
    theirs.write_all(b"x").expect("room");
    assert_eq!((look(&mut ring), ring.in_flight), (vec![], 0));
}

#[test]
fn a_closed_socket_is_let_go_of() {
    let (mut ring, (ours, mut theirs)) = (ring(), pair());
    poll(&mut ring, &ours, 1);
    assert_eq!(look(&mut ring), []);
    ring.cancel(&ours).expect("room");
    drop(ours);
    assert_eq!(look(&mut ring), []);
    theirs.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    assert_eq!(theirs.read(&mut [0; 1]).expect("an end"), 0);
}

#[test]
fn more_operations_than_the_queue_has_entries() {
    let _alone = MANY.lock();
    let mut ring = ring();
    let mut pairs: Vec<_> = (0..SUBMISSIONS + 20).map(|_| pair()).collect();
    for (tag, (ours, _)) in pairs.iter().enumerate() {
        poll(&mut ring, ours, tag as u64);
    }
    for (_, theirs) in &mut pairs {
        theirs.write_all(b"x").expect("room");
    }
    assert_eq!((all(&mut ring, pairs.len()), ring.in_flight), (pairs.len(), 0));
}

/// More completions at once than the queue of completions takes: the kernel keeps the rest.
#[test]
fn completions_that_overflow_are_kept() {
    let _alone = MANY.lock();
    let mut ring = ring();
    let sockets: Vec<_> =
        (0..COMPLETIONS + 100).map(|_| UnixStream::pair().expect("descriptors").0).collect();
    for (tag, ours) in sockets.iter().enumerate() {
        ring.poll(ours, tag as u64, Readiness::Writable).expect("room");
    }
    assert_eq!(all(&mut ring, sockets.len()), sockets.len());
}

/// How many different tags are reported until there are `wanted`, or no more.
fn all(ring: &mut Ring, wanted: usize) -> usize {
    let mut reported = Vec::new();
    while reported.len() < wanted {
        let more = wait(ring);
        if more.is_empty() {
            break;
        }
        reported.extend(more);
    }
    reported.sort_unstable();
    reported.dedup();
    reported.len()
}

#[test]
fn sends_to_many_and_waits_for_none() {
    let (mut ring, mut open, (full, mut reader), (broken, gone)) = (ring(), pair(), pair(), pair());
    drop(gone);
    // It becomes ready: that is reported among the results of the sends, and is not lost.
    poll(&mut ring, &open.0, 8);
    assert_eq!(look(&mut ring), []);
    open.1.write_all(b"request").expect("room");
    let huge = vec![b'x'; 8 << 20];
    let mut sends = [
        SocketSend::new(open.0.as_fd(), b"reply"),
        SocketSend::new(full.as_fd(), &huge),
        SocketSend::new(broken.as_fd(), b"lost"),
    ];
    ring.send_all(&mut sends).expect("room");
    assert_eq!(sends[0].sent_bytes().expect("a socket"), 5);
    let part = sends[1].sent_bytes().expect("a socket");
    assert!(part > 0 && part < huge.len(), "{part}");
    assert_eq!(sends[2].sent_bytes().expect_err("nobody is there").kind(), io::ErrorKind::BrokenPipe);
    let mut again = [SocketSend::new(full.as_fd(), &huge)];
    ring.send_all(&mut again).expect("room");
    assert_eq!(again[0].sent_bytes().expect("a socket"), 0, "it was full");
    assert_eq!(wait(&mut ring), [8]);
    reader.read_exact(&mut vec![0; part]).expect("what was sent");
    let mut reply = [0; 5];
    open.1.read_exact(&mut reply).expect("the reply");
    assert_eq!(&reply, b"reply");
}

#[test]
fn more_sends_than_the_queue_has_entries_are_refused() {
    let (mut ring, (ours, mut theirs)) = (ring(), pair());
    let mut sends: Vec<_> = (0..=SUBMISSIONS).map(|_| SocketSend::new(ours.as_fd(), b"ab")).collect();
    assert_eq!(ring.send_all(&mut sends).expect_err("too many").kind(), io::ErrorKind::InvalidInput);
    ring.send_all(&mut sends[1..]).expect("room");
    assert!(sends[0].sent_bytes().is_err());
    assert!(sends[1..].iter().all(|send| send.sent_bytes().is_ok_and(|bytes| bytes == 2)));
    drop(sends);
    drop(ours);
    let mut received = Vec::new();
    theirs.read_to_end(&mut received).expect("all of it");
    assert_eq!(received.len(), 2 * SUBMISSIONS);
}

/// Sends of a ring that no thread has are refused, not kept.
#[test]
fn a_ring_that_is_not_enabled_sends_nothing() {
    let (mut ring, (ours, mut theirs)) = (Ring::new().expect("io_uring"), pair());
    let mut sends = [SocketSend::new(ours.as_fd(), b"x")];
    assert!(ring.send_all(&mut sends).is_err() && sends[0].sent_bytes().is_err());
    theirs.set_nonblocking(true).expect("a socket");
    assert_eq!(theirs.read(&mut [0; 1]).expect_err("nothing").kind(), io::ErrorKind::WouldBlock);
}

/// A thread that runs foreign code can use the ring for nothing else.
#[test]
fn the_ring_does_nothing_but_poll_and_send() {
    let (mut ring, (ours, _theirs)) = (ring(), pair());
    for entry in [
        opcode::Shutdown::new(Fd(ours.as_raw_fd()), libc::SHUT_RDWR).build(),
        opcode::OpenAt::new(Fd(libc::AT_FDCWD), c"/dev/null".as_ptr()).build(),
    ] {
        ring.push(&entry.user_data(SEND));
        let mut sends = [SocketSend::new(ours.as_fd(), b"")];
        ring.enter(1, Some(Duration::from_secs(60))).expect("it is submitted");
        assert_eq!(ring.reap_sends(&mut sends), 1);
        assert_eq!(sends[0].result, Some(-libc::EACCES));
    }
}
