//! Lines from a terminal, with history and completion, or from standard input.

use std::borrow::Cow;
use std::io::{self, BufRead as _, Read as _, StdinLock};
use std::path::PathBuf;
use std::{env, fs};

use larder_client::Address;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hint, Hinter};
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::commands::{self, COMMANDS};
use crate::Failure;
use crate::transfer::record::VALUE_BYTES_MAX;

/// Where lines come from.
pub(super) enum Input {
    Terminal { editor: Box<Editor<Assistant, FileHistory>>, prompt: String, history: Option<PathBuf> },
    Stdin(StdinLock<'static>),
}

impl Input {
    /// A terminal, with the history of earlier shells.
    pub(super) fn terminal(address: &Address) -> Result<Self, Failure> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .history_ignore_space(true)
            .max_history_size(HISTORY_LINES_MAX)
            .map_err(|error| of_terminal(&error))?
            .build();
        let mut editor = Editor::with_config(config).map_err(|error| of_terminal(&error))?;
        editor.set_helper(Some(Assistant));
        let history = history_file();
        if let Some(history) = &history {
            // There is none yet, or it cannot be read: the shell works without.
            let _ = editor.load_history(history);
        }
        Ok(Self::Terminal { editor: Box::new(editor), prompt: format!("{address}> "), history })
    }

    pub(super) fn stdin() -> Self {
        Self::Stdin(io::stdin().lock())
    }

    /// The next line; `None` at the end.
    pub(super) fn line(&mut self) -> Result<Option<String>, Failure> {
        match self {
            Self::Terminal { editor, prompt, history } => loop {
                match editor.readline(prompt.as_str()) {
                    Ok(line) => {
                        if editor.add_history_entry(&line).unwrap_or(false)
                            && let Some(history) = history
                        {
                            // A history that cannot be written is no reason to end.
                            let _ = editor.append_history(history);
                        }
                        return Ok(Some(line));
                    }
                    // Ctrl-C drops the line.
                    Err(ReadlineError::Interrupted) => {}
                    Err(ReadlineError::Eof) => return Ok(None),
                    Err(error) => return Err(of_terminal(&error)),
                }
            },
            Self::Stdin(stdin) => {
                let line = read_line(stdin, LINE_BYTES_MAX)?;
                match line.is_empty() {
                    true => Ok(None),
                    false => Ok(Some(String::from_utf8_lossy(&line).into_owned())),
                }
            }
        }
    }

    /// A value of so many bytes, or of a line; `None`: Ctrl-C or Ctrl-D dropped it. Errors: standard input ends inside
    /// it.
    pub(super) fn value(&mut self, value_bytes: Option<usize>) -> Result<Option<Vec<u8>>, Failure> {
        match self {
            Self::Terminal { editor, .. } => {
                let mut value = String::new();
                loop {
                    match editor.readline("value> ") {
                        Ok(line) => value += &line,
                        Err(ReadlineError::Interrupted | ReadlineError::Eof) => return Ok(None),
                        Err(error) => return Err(of_terminal(&error)),
                    }
                    if value_bytes.is_none_or(|bytes| value.len() >= bytes) {
                        return Ok(Some(value.into_bytes()));
                    }
                    value.push('\n');
                }
            }
            Self::Stdin(stdin) => {
                let mut value = Vec::new();
                let announced = value_bytes.unwrap_or(0);
                stdin.take(announced as u64).read_to_end(&mut value).map_err(|error| of_stdin(&error))?;
                // What ends it, CR LF or LF; without a size, all of it.
                let bytes_max = value_bytes.map_or(VALUE_BYTES_MAX, |_| LINE_BYTES_MAX);
                let mut rest = read_line(stdin, bytes_max)?;
                if value.len() < announced || (value_bytes.is_none() && rest.is_empty()) {
                    return Err(Failure::Failed("standard input ended inside a value".into()));
                }
                trim_end(&mut rest);
                value.append(&mut rest);
                Ok(Some(value))
            }
        }
    }
}

/// A line with its end; at the end of the input without one, or empty. Errors: it has `bytes_max` bytes and no end.
fn read_line(stdin: &mut StdinLock<'_>, bytes_max: u64) -> Result<Vec<u8>, Failure> {
    let mut line = Vec::new();
    stdin.take(bytes_max).read_until(b'\n', &mut line).map_err(|error| of_stdin(&error))?;
    if line.len() as u64 == bytes_max && !line.ends_with(b"\n") {
        return Err(Failure::Failed(format!("standard input: a line of more than {bytes_max} bytes")));
    }
    Ok(line)
}

fn trim_end(line: &mut Vec<u8>) {
    line.pop_if(|byte| *byte == b'\n');
    line.pop_if(|byte| *byte == b'\r');
}

fn of_terminal(error: &ReadlineError) -> Failure {
    Failure::Failed(format!("the terminal: {error}"))
}

fn of_stdin(error: &io::Error) -> Failure {
    Failure::Failed(format!("standard input: {error}"))
}

/// `$XDG_STATE_HOME/larder/history`, by default below ~/.local/state.
fn history_file() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let directory = state.or_else(|| Some(env::home_dir()?.join(".local/state")))?.join("larder");
    fs::create_dir_all(&directory).ok()?;
    Some(directory.join("history"))
}

/// Completes commands and their keywords, and shows their usage.
pub(super) struct Assistant;

/// The rest of a command's usage; it is not typed for the user.
pub(super) struct Usage(String);

impl Hint for Usage {
    fn display(&self) -> &str {
        &self.0
    }

    fn completion(&self) -> Option<&str> {
        None
    }
}

impl Helper for Assistant {}
impl Validator for Assistant {}

impl Highlighter for Assistant {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        format!("\x1b[2m{hint}\x1b[0m").into()
    }
}

impl Hinter for Assistant {
    type Hint = Usage;

    fn hint(&self, line: &str, pos: usize, _: &Context<'_>) -> Option<Usage> {
        let command = commands::find(line.strip_suffix(' ')?)?;
        (pos == line.len() && !command.usage.is_empty()).then(|| Usage(command.usage.to_owned()))
    }
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(candidates(&line[..pos]))
    }
}

/// What the text before the cursor may go on with, and where that begins.
fn candidates(text: &str) -> (usize, Vec<String>) {
    let names = || COMMANDS.iter().map(|command| command.name).chain(["help", "exit"]);
    let matching = |words: &mut dyn Iterator<Item = &str>, start: usize| {
        let part = &text[start..];
        let words = words.filter(|word| word.starts_with(part)).map(|word| format!("{word} "));
        (start, words.collect())
    };
    match text.split_once(' ') {
        None => matching(&mut names(), 0),
        Some(("help", _)) => matching(&mut names(), "help ".len()),
        Some((name, _)) => {
            let keywords = commands::find(name).map_or(&[][..], |command| command.keywords);
            matching(&mut keywords.iter().copied(), name.len() + 1)
        }
    }
}

const HISTORY_LINES_MAX: usize = 1000;
/// More than any command of the protocol.
const LINE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_keywords_are_completed() {
        let told = |text: &str| {
            let (start, words) = candidates(text);
            (start, words.concat())
        };
        assert_eq!(told("ve"), (0, "version verbosity ".to_owned()));
        assert_eq!(told("stats it"), (6, "items ".to_owned()));
        assert_eq!(told("stats detail o"), (6, "detail on detail off ".to_owned()));
        assert_eq!(told("help tou"), (5, "touch ".to_owned()));
        assert_eq!(told("get a"), (4, String::new()));
        assert_eq!(told("xyz"), (0, String::new()));
    }
}
