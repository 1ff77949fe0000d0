use std::io::{Read as _, Write as _};
use std::net::Shutdown;
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

/// What has completed, as text.
fn completed(ring: &mut Ring) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(Completion { tag, outcome }) = ring.take_completion() {
        told.push(match outcome {
            Outcome::Ready => format!("{tag} ready"),
            Outcome::End => format!("{tag} end"),
            Outcome::Failed(error) => format!("{tag} {:?}", error.kind()),
            Outcome::Received(buffer) => {
                let text = format!("{tag} {}", String::from_utf8_lossy(&buffer));
                ring.give_back(buffer);
                text
            }
        });
    }
    told
}

fn wait(ring: &mut Ring) -> Vec<String> {
    // What does not come is missed in the end, not waited for.
    ring.wait(Some(Duration::from_secs(60))).expect("it waits");
    completed(ring)
}

/// The completions there are, without waiting for more.
fn look(ring: &mut Ring) -> Vec<String> {
    ring.wait(Some(Duration::ZERO)).expect("it looks");
    completed(ring)
}

fn provided(ring: &Ring) -> usize {
    ring.buffers.provided()
}

#[test]
fn bytes_arrive_in_a_buffer() {
    let (mut ring, (ours, mut theirs)) = (ring(), pair());
    ring.receive(&ours, 5).expect("room");
    assert!(look(&mut ring).is_empty() && ring.is_armed(&ours));
    theirs.write_all(b"hello").expect("room");
    assert_eq!(wait(&mut ring), ["5 hello"]);
    assert!(!ring.is_armed(&ours));
    theirs.write_all(b"not armed").expect("room");
    assert!(look(&mut ring).is_empty());
    ring.receive(&ours, 6).expect("room");
    assert_eq!(wait(&mut ring), ["6 not armed"]);
    theirs.shutdown(Shutdown::Both).expect("connected");
    ring.receive(&ours, 7).expect("room");
    assert_eq!(wait(&mut ring), ["7 end"]);
    assert_eq!((provided(&ring), ring.in_flight), (usize::from(BUFFERS), 0));
}

#[test]
fn a_full_buffer_says_so() {
    let (mut ring, (ours, mut theirs)) = (ring(), pair());
    theirs.write_all(&[1; BUFFER_BYTES + 1]).expect("room");
    for (bytes, is_full) in [(BUFFER_BYTES, true), (1, false)] {
        ring.receive(&ours, 0).expect("room");
        ring.wait(None).expect("it waits");
        let Some(Completion { outcome: Outcome::Received(buffer), .. }) = ring.take_completion() else {
            panic!("bytes")
        };
        assert_eq!((buffer.len(), buffer.is_full()), (bytes, is_full));
        ring.give_back(buffer);
    }
}

#[test]
fn readiness_is_told_once() {
    let (mut ring, (ours, mut theirs)) = (ring(), pair());
    ring.poll(&ours, 1, Readiness::Readable).expect("room");
    assert!(look(&mut ring).is_empty());
    theirs.write_all(b"x").expect("room");
    assert_eq!(wait(&mut ring), ["1 ready"]);
    assert!(look(&mut ring).is_empty(), "once");
    ring.poll(&ours, 2, Readiness::Writable).expect("room");
    assert_eq!(wait(&mut ring), ["2 ready"]);
}

#[test]
fn a_watch_is_told_until_it_is_read() {
    let (mut ring, (ours, mut theirs)) = (ring(), pair());
    ring.watch(&ours, 1, Exclusive::No).expect("room");
    assert!(look(&mut ring).is_empty());
    theirs.write_all(b"xy").expect("room");
    for _ in 0..3 {
        assert_eq!(wait(&mut ring), ["1 ready"]);
        assert!(ring.is_armed(&ours));
    }
    (&ours).read_exact(&mut [0; 2]).expect("both");
    assert!(look(&mut ring).is_empty() && ring.is_armed(&ours));
    theirs.write_all(b"z").expect("room");
    assert_eq!(wait(&mut ring), ["1 ready"]);
    ring.cancel(&ours).expect("room");
    assert!(look(&mut ring).is_empty() && !ring.is_armed(&ours));
    // Watching it again changes what it is called.
    ring.watch(&ours, 2, Exclusive::No).expect("room");
    ring.watch(&ours, 3, Exclusive::No).expect("room");
    assert_eq!(wait(&mut ring), ["3 ready"]);
}

#[test]
fn one_of_two_rings_is_woken() {
    let (mut rings, (ours, mut theirs)) = ([ring(), ring()], pair());
    for (tag, ring) in rings.iter_mut().enumerate() {
        ring.watch(&ours, tag as u64, Exclusive::Yes).expect("room");
        assert!(look(ring).is_empty());
    }
    theirs.write_all(b"x").expect("room");
    let woken: Vec<_> = rings.iter_mut().flat_map(look).collect();
    assert_eq!(woken.len(), 1, "{woken:?}");
}

#[test]
fn a_wait_ends_in_time() {
    let mut ring = ring();
    ring.wait(Some(Duration::from_millis(2))).expect("it waits");
    assert!(ring.take_completion().is_none());
}

#[test]
fn what_was_cancelled_is_not_told_to_the_next_socket() {
    let mut ring = ring();
    let (ours, mut theirs) = pair();
    ring.receive(&ours, 1).expect("room");
    assert!(look(&mut ring).is_empty());
    // It has completed in the kernel by the time it is cancelled.
    theirs.write_all(b"secret").expect("room");
    ring.cancel(&ours).expect("room");
    let (other, mut theirs) = pair();
    // SAFETY: both are open; `ours` owns its number before and after, and means another socket then.
    assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), ours.as_raw_fd()) }, ours.as_raw_fd());
    ring.receive(&ours, 2).expect("room");
    assert!(look(&mut ring).is_empty());
    theirs.write_all(b"hello").expect("room");
    assert_eq!(wait(&mut ring), ["2 hello"]);
    assert_eq!((provided(&ring), ring.in_flight), (usize::from(BUFFERS), 0));
}

#[test]
fn what_was_cancelled_before_it_was_told_is_nobodys() {
    let (mut ring, (ours, mut theirs)) = (ring(), pair());
    theirs.write_all(b"secret").expect("room");
    ring.receive(&ours, 1).expect("room");
    ring.wait(None).expect("it waits");
    ring.cancel(&ours).expect("nothing to do");
    assert!(ring.take_completion().is_none());
    assert_eq!(provided(&ring), usize::from(BUFFERS));
}

/// An operation that is queued and not submitted goes by a number, which must not come to mean another socket.
#[test]
fn a_cancelled_operation_is_never_submitted_later() {
    let mut ring = ring();
    let (ours, mut theirs) = pair();
    ring.receive(&ours, 1).expect("room");
    ring.cancel(&ours).expect("room");
    assert!(ring.uring.submission().is_empty());
    theirs.write_all(b"still here").expect("room");
    assert!(look(&mut ring).is_empty());
    let mut bytes = [0; 10];
    (&ours).read_exact(&mut bytes).expect("nobody else has read them");
    assert_eq!((&bytes, ring.in_flight), (b"still here", 0));
}

#[test]
fn a_closed_socket_is_let_go_of() {
    let mut ring = ring();
    let (ours, mut theirs) = pair();
    ring.receive(&ours, 1).expect("room");
    assert!(look(&mut ring).is_empty());
    ring.cancel(&ours).expect("room");
    drop(ours);
    look(&mut ring);
    assert_eq!(theirs.read(&mut [0; 1]).expect("an end"), 0);
}

#[test]
fn without_buffers_a_receive_becomes_readiness() {
    let (mut ring, (ours, mut theirs)) = (ring(), pair());
    let mut held = Vec::new();
    for _ in 0..BUFFERS {
        theirs.write_all(b"x").expect("room");
        ring.receive(&ours, 0).expect("room");
        ring.wait(None).expect("it waits");
        match ring.take_completion() {
            Some(Completion { outcome: Outcome::Received(buffer), .. }) => held.push(buffer),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(provided(&ring), 0);
    theirs.write_all(b"last").expect("room");
    ring.receive(&ours, 3).expect("room");
    assert_eq!(wait(&mut ring), ["3 ready"]);
    // Nothing is lost, and one buffer is enough to go on.
    ring.give_back(held.pop().expect("many"));
    ring.receive(&ours, 4).expect("room");
    assert_eq!(wait(&mut ring), ["4 last"]);
    // A buffer that is never given back is an ordinary value.
    drop(held);
    assert_eq!(provided(&ring), 1);
}

#[test]
fn more_operations_than_the_queue_has_entries() {
    let _alone = MANY.lock();
    let mut ring = ring();
    let mut pairs: Vec<_> = (0..SUBMISSIONS + 20).map(|_| pair()).collect();
    for (tag, (ours, _)) in pairs.iter().enumerate() {
        ring.receive(ours, tag as u64).expect("room");
    }
    for (_, theirs) in &mut pairs {
        theirs.write_all(b"x").expect("room");
    }
    let mut told = Vec::new();
    while told.len() < pairs.len() {
        told.extend(wait(&mut ring));
    }
    told.sort();
    told.dedup();
    assert_eq!((told.len(), ring.in_flight), (pairs.len(), 0));
}

/// More completions at once than the queue of completions takes: the kernel keeps the rest.
#[test]
fn completions_that_overflow_are_kept() {
    let _alone = MANY.lock();
    let mut ring = ring();
    let pairs: Vec<_> = (0..COMPLETIONS + 100).map(|_| UnixStream::pair().expect("descriptors").0).collect();
    for (tag, ours) in pairs.iter().enumerate() {
        ring.poll(ours, tag as u64, Readiness::Writable).expect("room");
    }
    let mut told = Vec::new();
    while told.len() < pairs.len() {
        told.extend(wait(&mut ring));
    }
    told.sort();
    told.dedup();
    assert_eq!(told.len(), pairs.len());
}

#[test]
fn sends_to_many_and_waits_for_none() {
    let (mut ring, mut open, (full, mut reader), (broken, gone)) = (ring(), pair(), pair(), pair());
    drop(gone);
    // Armed as well, with its bytes there: its completion comes among those of the sends, and is not lost.
    ring.receive(&open.0, 8).expect("room");
    assert!(look(&mut ring).is_empty());
    open.1.write_all(b"request").expect("room");
    let huge = vec![b'x'; 8 << 20];
    let mut sends = [
        Send::new(open.0.as_fd(), b"reply"),
        Send::new(full.as_fd(), &huge),
        Send::new(broken.as_fd(), b"lost"),
    ];
    ring.send_all(&mut sends).expect("room");
    assert_eq!(sends[0].sent_bytes().expect("a socket"), 5);
    let part = sends[1].sent_bytes().expect("a socket");
    assert!(part > 0 && part < huge.len(), "{part}");
    assert_eq!(sends[2].sent_bytes().expect_err("nobody is there").kind(), io::ErrorKind::BrokenPipe);
    let mut again = [Send::new(full.as_fd(), &huge)];
    ring.send_all(&mut again).expect("room");
    assert_eq!(again[0].sent_bytes().expect("a socket"), 0, "it was full");
    assert_eq!(wait(&mut ring), ["8 request"]);
    let mut bytes = vec![0; part];
    reader.read_exact(&mut bytes).expect("what was sent");
    let mut reply = [0; 5];
    open.1.read_exact(&mut reply).expect("the reply");
    assert_eq!(&reply, b"reply");
}

#[test]
fn sends_more_than_the_queue_has_entries() {
    let (mut ring, (ours, mut theirs)) = (ring(), pair());
    let mut sends: Vec<_> = (0..SUBMISSIONS + 9).map(|_| Send::new(ours.as_fd(), b"ab")).collect();
    ring.send_all(&mut sends).expect("room");
    assert!(sends.iter().all(|send| send.sent_bytes().is_ok_and(|bytes| bytes == 2)));
    let mut bytes = vec![0; sends.len() * 2];
    theirs.read_exact(&mut bytes).expect("all of it");
}

/// Sends of a ring that no thread has are refused, not kept.
#[test]
fn a_ring_that_is_not_enabled_sends_nothing() {
    let (mut ring, (ours, mut theirs)) = (Ring::new().expect("io_uring"), pair());
    let mut sends = [Send::new(ours.as_fd(), b"x")];
    assert!(ring.send_all(&mut sends).is_err());
    theirs.set_nonblocking(true).expect("a socket");
    assert_eq!(theirs.read(&mut [0; 1]).expect_err("nothing").kind(), io::ErrorKind::WouldBlock);
    // What is armed meanwhile is submitted by the thread that has it.
    ring.receive(&ours, 1).expect("room");
    theirs.write_all(b"x").expect("room");
    let told = std::thread::spawn(move || {
        ring.enable().expect("it was disabled");
        let told = wait(&mut ring);
        drop(ours);
        told
    });
    assert_eq!(told.join().expect("it ends"), ["1 x"]);
}

/// A thread that runs foreign code can use the ring for nothing else.
#[test]
fn the_ring_opens_nothing() {
    let mut ring = ring();
    let (ours, _theirs) = pair();
    let entry = opcode::Shutdown::new(Fd(ours.as_raw_fd()), libc::SHUT_RDWR).build().user_data(SEND);
    ring.push(&entry);
    let mut sends = [Send::new(ours.as_fd(), b"")];
    ring.enter(1, None).expect("it is submitted");
    assert_eq!(ring.reap_sends(&mut sends), 1);
    assert_eq!(sends[0].result, Some(-libc::EACCES));
}

#[test]
fn what_is_in_flight_ends_with_the_ring() {
    let (mut ring, (ours, mut theirs)) = (ring(), pair());
    ring.receive(&ours, 1).expect("room");
    look(&mut ring);
    drop(ring);
    theirs.write_all(b"for another").expect("room");
    let mut bytes = [0; 11];
    (&ours).read_exact(&mut bytes).expect("the ring has not read them");
}
