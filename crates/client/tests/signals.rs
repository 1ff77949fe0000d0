//! A signal is no failure. Alone in its program: it stops the whole program for a moment.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::Duration;

use larder_client::{Address, Client};

/// A wait with a timeout fails with `EINTR` if the program was stopped meanwhile: signal(7).
#[test]
fn who_was_stopped_waits_on() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client connects");
        assert!(stream.read(&mut [0; 100]).is_ok_and(|bytes| bytes > 0), "the client asks");
        let stops = format!("kill -STOP {0}; sleep 0.05; kill -CONT {0}; sleep 0.05;", std::process::id());
        let stopped = Command::new("sh").args(["-c", &stops.repeat(10)]).status();
        assert!(stopped.is_ok_and(|status| status.success()), "there is a shell");
        stream.write_all(b"END\r\n").expect("the client waits");
    });
    let builder = Client::builder().server(address.parse::<Address>().expect("an address"));
    let mut client = builder.timeout(Some(Duration::from_secs(60))).build();
    assert_eq!(client.get("k").expect("it is answered"), None);
    served.join().expect("it does not panic");
}
