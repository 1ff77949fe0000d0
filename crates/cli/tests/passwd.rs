//! `larder passwd` as a process.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use larder_conformance::folder::Folder;

fn passwd(file: &Path, args: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_larder"))
        .arg("passwd")
        .arg(file)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("larder runs");
    // It may refuse before it reads.
    let _ = child.stdin.take().expect("it is piped").write_all(stdin.as_bytes());
    child.wait_with_output().expect("it ends")
}

#[test]
fn passwords_are_set_changed_and_deleted() {
    let folder = Folder::create();
    let file = folder.file("passwords");
    let read = || fs::read_to_string(&file).expect("it is there");
    assert!(passwd(&file, &["ann", "--plain"], "one:two three\n").status.success());
    assert_eq!(read(), "ann:one:two three\n");
    assert_eq!(fs::metadata(&file).expect("it is there").mode() & 0o777, 0o600);
    assert!(passwd(&file, &["bob"], "secret").status.success());
    assert!(read().starts_with("ann:one:two three\nbob:SCRAM-SHA-256$4096:"));
    assert!(!read().contains("secret"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is ours");
    assert!(passwd(&file, &["ann", "--iterations", "5000"], "four\r\n").status.success());
    assert!(read().starts_with("ann:SCRAM-SHA-256$5000:") && read().lines().count() == 2);
    assert_eq!(fs::metadata(&file).expect("it is there").mode() & 0o777, 0o640);
    assert!(passwd(&file, &["--delete", "ann"], "").status.success());
    assert!(read().starts_with("bob:"));
    assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 1);
}

#[test]
fn what_is_refused_changes_nothing() {
    let folder = Folder::create();
    let file = folder.file("passwords");
    let before = "ann:one\n";
    fs::write(&file, before).expect("the folder is ours");
    for (args, stdin, exit_code) in [
        (&["bob"][..], "", 1),
        (&["bob"], "\n", 1),
        (&["bob", "--plain"], "SCRAM-SHA-256$x", 1),
        (&["bob", "--plain"], &*"x".repeat(2000), 1),
        (&["--delete", "bob"], "", 1),
        (&["b:b"], "x", 64),
        (&["b b"], "x", 64),
        (&["bob", "--iterations", "1"], "x", 64),
        (&["bob", "--foo"], "x", 64),
        (&["bob", "more"], "x", 64),
        (&[], "x", 64),
    ] {
        let output = passwd(&file, args, stdin);
        assert_eq!(output.status.code(), Some(exit_code), "{args:?}");
        assert!(!output.stderr.is_empty());
        assert_eq!(fs::read_to_string(&file).expect("it is there"), before, "{args:?}");
    }
    fs::write(&file, "no entry").expect("the folder is ours");
    assert_eq!(passwd(&file, &["bob"], "x").status.code(), Some(1));
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "no entry");
}
