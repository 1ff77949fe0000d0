//! The examples of docs/http.md, as they stand.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::server::Larderd;

#[test]
fn the_page_shows_what_happens() {
    if !Command::new("curl")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!("skipped: there is no curl");
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http.md");
    let page = fs::read_to_string(path).expect("it is there");
    let blocks: Vec<&str> =
        page.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 3);
    for block in blocks {
        let server = Larderd::start(&[]);
        let shown = block.replace("127.0.0.1:8080", &server.http.to_string());
        let mut steps: Vec<(&str, String)> = Vec::new();
        for line in shown.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push((command, String::new())),
                (None, Some((_, output))) => *output += &format!("{line}\n"),
                (None, None) => panic!("no command before {line}"),
            }
        }
        // One shell for a block: its variables are used further on.
        let script: String =
            steps.iter().map(|(command, _)| format!("{command}\nprintf '\\001'\n")).collect();
        let output =
            Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).output().expect("a shell");
        let output = String::from_utf8(output.stdout).expect("it is text");
        for ((command, expected), actual) in steps.iter().zip(output.split('\u{1}')) {
            assert_eq!(actual, expected, "{command}");
        }
    }
}
