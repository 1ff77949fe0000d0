//! Commands as they are written: our programs know their tools and options.

use std::collections::{HashMap, HashSet};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::{Result, server};

use crate::generators;

/// Our programs, and what they say of themselves.
pub(super) struct Programs {
    pub(super) larderd: PathBuf,
    pub(super) larder: PathBuf,
    xtask: PathBuf,
    /// The words of their help, by their command lines that ask for it; none if there is no such tool.
    help: HashMap<Vec<String>, Option<HashSet<String>>>,
}

impl Programs {
    pub(super) fn build() -> Result<Self> {
        let (larderd, larder) = (server::larderd()?, generators::larder()?);
        Ok(Self { larderd, larder, xtask: env::current_exe()?, help: HashMap::new() })
    }

    /// What is wrong with a command line of ours. Those of other programs are not judged.
    pub(super) fn error(&mut self, command: &str) -> Option<String> {
        // Other command lines, as arguments, have options of their own.
        let outer: String = command.split('"').step_by(2).collect();
        let end = |word: &&str| !["|", "||", "&&", ">", "&", "--"].contains(word) && !word.starts_with('#');
        let words: Vec<&str> = outer.split_whitespace().take_while(end).collect();
        let (program, tool, words): (&Path, &[&str], &[&str]) = match words.as_slice() {
            ["larderd", words @ ..] => (&self.larderd, &["--help-all"], words),
            ["larder", "bench", tool, words @ ..] if !tool.starts_with('-') => {
                (&self.larder, &["bench", tool, "--help"], words)
            }
            ["larder", tool, words @ ..] => (&self.larder, &[tool, "--help"], words),
            ["cargo", "xtask", tool, words @ ..] => (&self.xtask, &[tool, "--help"], words),
            _ => return None,
        };
        // Words that are not a tool's, or stand for one: no command.
        if !tool[0].chars().all(|c| c.is_ascii_lowercase() || c == '-') {
            return None;
        }
        let key = [program.to_string_lossy().into_owned()].into_iter();
        let key = key.chain(tool.iter().map(|&word| word.to_owned())).collect();
        let help = self.help.entry(key).or_insert_with(|| help(program, tool));
        let Some(help) = help else { return Some(format!("there is no such tool: {command}")) };
        let options = words.iter().filter(|word| word.len() > 1 && word.starts_with('-'));
        options
            .map(|word| word.split(['=', '"', '\'']).next().unwrap_or_default())
            .map(|word| if word.starts_with("--") { word } else { word.get(..2).unwrap_or(word) })
            .find(|option| *option != "--help" && !help.contains(*option))
            .map(|option| format!("there is no option {option}: {command}"))
    }
}

fn help(program: &Path, words: &[&str]) -> Option<HashSet<String>> {
    let output = Command::new(program).args(words).output().ok()?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if text.contains("unrecognized subcommand") || text.contains("usage: cargo xtask CHORE") {
        return None;
    }
    Some(text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').map(str::to_owned).collect())
}
