use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use larder_conformance::server::refusing_address;

use super::*;

/// A server in this process: it answers `version` and `stats`, and every `stats` it has worked a little more.
fn server(pid: u32) -> (String, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let serving = thread::spawn(move || {
        for gets in [100, 250] {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
            while let Some(Ok(line)) = lines.next() {
                let answer = match line.as_str() {
                    "version" => "VERSION 9.8.7\r\n".to_owned(),
                    _ => format!(
                        "STAT pid {pid}\r\nSTAT version 9.8.7\r\nSTAT cmd_get {gets}\r\nSTAT limit 64\r\n\
                         STAT rusage_user 1.{gets}000\r\nSTAT rusage_system 0.500000\r\nEND\r\n"
                    ),
                };
                stream.write_all(answer.as_bytes()).expect("sent");
            }
        }
    });
    (address, serving)
}

fn target(address: &str) -> Target {
    Target { servers: vec![address.to_owned()], ..Target::default() }
}

/// Takes more memory than the heap keeps when it is freed (mallopt(3): 32 MiB at most), so that its pages are fresh.
fn touch_fresh_pages() {
    drop(std::hint::black_box(vec![1_u8; 40 << 20]));
}

#[test]
fn a_process_of_this_machine_is_watched() {
    let (address, serving) = server(std::process::id());
    let target = target(&address);
    let mut watch = Watch::begin(&target);
    assert!(watch.period().is_some_and(|secs| secs >= 0.0));
    touch_fresh_pages();
    let costs = watch.end(&target);
    serving.join().expect("served");
    let [cost] = costs.as_slice() else { panic!("one server: {costs:?}") };
    assert_eq!((cost.address.as_str(), cost.version.as_str()), (address.as_str(), "9.8.7"));
    assert!(cost.cpu_user_secs.is_some() && cost.resident_bytes.is_some_and(|bytes| bytes > 100_000));
    // Even where the system gives large pages, each is a fault.
    assert!(cost.page_faults.is_some_and(|faults| faults >= 20), "{:?}", cost.page_faults);
    assert_eq!(cost.unwatched, None);
    assert_eq!(cost.stats_deltas.get("cmd_get"), Some(&150.0));
    assert!(!cost.stats_deltas.contains_key("limit") && !cost.stats_deltas.contains_key("version"));
}

#[test]
fn a_pid_of_another_machine_is_not_taken_for_one_of_ours() {
    // Process 1 exists, and does not listen on the port of our server.
    let (address, serving) = server(1);
    let target = target(&address);
    let mut watch = Watch::begin(&target);
    assert_eq!(watch.period(), None);
    let costs = watch.end(&target);
    serving.join().expect("served");
    assert_eq!(costs[0].resident_bytes, None);
    // From `stats`: 1.250 - 1.100 seconds.
    assert!((costs[0].cpu_user_secs.expect("rusage") - 0.15).abs() < 1e-9);
    assert!(costs[0].unwatched.is_some());
}

#[test]
fn a_server_that_is_not_there_is_said_so() {
    let target = target(&refusing_address().to_string());
    let costs = Watch::begin(&target).end(&target);
    assert!(costs[0].unwatched.as_ref().is_some_and(|why| why.contains("refused")), "{costs:?}");
}
