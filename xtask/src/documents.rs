//! `cargo xtask documents`: the commands of the documents, run as a reader would, from the top of each page to its end,
//! in a system that nobody sees afterwards; and what they print, beside what the page shows.

pub(crate) mod block;
mod output;
mod table;
mod words;

use std::collections::HashSet;
use std::path::Path;

use larder_conformance::Result;
use larder_conformance::folder::Folder;

use self::block::{Block, Step};
use self::words::Programs;
use crate::debian::{Debian, Job};
use crate::{libmemcached, needs, package, shell, tidy};

pub(crate) fn run(args: &[String]) -> Result<()> {
    let (options, paths): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| arg.starts_with('-'));
    let is_system = match options.as_slice() {
        [] => false,
        [option] if *option == "--system" => true,
        _ => return Err(USAGE.into()),
    };
    needs::install()?;
    let debian = if is_system {
        needs::install_extra(&["debootstrap"])?;
        Debian::prepare()?
    } else {
        Debian::of_this_machine()?
    };
    check(Some(&debian), |path| paths.is_empty() || paths.iter().any(|wanted| *wanted == path))
}

/// What needs no system: every block is tried by something, and every command of ours exists, with its options.
pub(crate) fn test() -> Result<()> {
    check(None, |_| true)
}

fn check(debian: Option<&Debian>, is_wanted: impl Fn(&str) -> bool) -> Result<()> {
    // docs/history/ tells of the past.
    let mut pages = tidy::pages()?;
    pages.retain(|page| !page.path.starts_with("docs/history/"));
    let mut programs = Programs::build()?;
    let mut plan = Plan::default();
    for page in &pages {
        plan.add(&page.path, &page.text, &mut |command| programs.error(command));
    }
    plan.finish();
    plan.documents.retain(|document| is_wanted(document.path));
    if let (Some(debian), []) = (debian, plan.wrong.as_slice()) {
        let printed = debian.run(&job(&programs)?, &plan.script())?;
        plan.compare(&printed);
    }
    let steps: usize = plan.documents.iter().map(|document| document.steps.len()).sum();
    println!("{} commands of {} documents", steps, plan.documents.len());
    if plan.wrong.is_empty() { Ok(()) } else { Err(plan.wrong.join("\n").into()) }
}

/// What the reader has: our programs and packages, and a machine whose servers have names.
fn job(programs: &Programs) -> Result<Job> {
    let job = Job::new(table::SERVERS);
    let folder = Folder::create();
    let packages = package::make(
        &package::Built {
            larderd: programs.larderd.clone(),
            larder: programs.larder.clone(),
            c_library: libmemcached::build()?,
        },
        &package::version("~test")?,
        0,
        folder.path(),
    )?;
    for file in packages.all().into_iter().chain([programs.larderd.as_path(), &programs.larder]) {
        job.add(file)?;
    }
    job.add(&shell::root().join("packaging/prometheus/larder.rules.yml"))?;
    // It needs the C library alone; its package would bring the whole of Prometheus.
    job.add(Path::new("/usr/bin/promtool"))?;
    Ok(job)
}

/// What is to be run, and what is wrong already.
#[derive(Default)]
struct Plan<'a> {
    documents: Vec<Document<'a>>,
    wrong: Vec<String>,
    /// Rows of the tables that said something of a document.
    used: HashSet<(&'static str, &'static str)>,
}

struct Document<'a> {
    path: &'a str,
    steps: Vec<Step>,
}

impl<'a> Plan<'a> {
    /// Adds a page. `judge` tells what is wrong with a command line.
    fn add(&mut self, path: &'a str, text: &'a str, judge: &mut dyn FnMut(&str) -> Option<String>) {
        let mut steps = Vec::new();
        for block in block::blocks(text) {
            if let Some(commands) = block.steps() {
                steps.extend(commands);
            } else if let Err(error) = self.add_other(path, &block, &mut steps) {
                self.wrong.push(format!("{path}:{}: {error}", block.line));
            }
        }
        let errors = steps.iter().filter_map(|step| Some((step.line, judge(&step.command)?)));
        self.wrong.extend(errors.map(|(line, error)| format!("{path}:{line}: {error}")));
        self.wrong.extend(
            inline_code(text).into_iter().filter_map(|code| Some(format!("{path}: {}", judge(&code)?))),
        );
        steps.retain(|step| {
            let row = table::ELSEWHERE.iter().find(|(begin, _)| step.command.starts_with(begin));
            self.used.extend(row);
            row.is_none()
        });
        if !steps.is_empty() {
            self.used.extend(table::BEFORE.iter().filter(|row| row.0 == path));
            self.documents.push(Document { path, steps });
        }
    }

    /// A block that is not for a shell: a file, and the command that tries it.
    fn add_other(&mut self, path: &str, block: &Block<'_>, steps: &mut Vec<Step>) -> Result<()> {
        if block.language.is_empty() {
            let first = block.text.split_whitespace().next().unwrap_or_default();
            let is_command = ["$", "larder", "larderd", "memcached", "cargo", "curl"].contains(&first);
            return if is_command { Err("commands without sh or console".into()) } else { Ok(()) };
        }
        let mut rows = table::FILES.iter().filter(|row| row.0 == path && row.1 == block.language);
        let row =
            rows.next_back().ok_or_else(|| format!("a block of {} that nothing tries", block.language))?;
        self.used.insert((row.1, row.2));
        if let Some(command) = row.2.strip_prefix("$ ") {
            let write = format!("cat > block <<'END-OF-BLOCK'\n{}END-OF-BLOCK\n{command}", block.text);
            steps.push(Step { line: block.line, command: write, output: Vec::new() });
        }
        Ok(())
    }

    /// Looks for rows that say nothing of any document.
    fn finish(&mut self) {
        let files = table::FILES.iter().map(|row| (row.1, row.2));
        let rows = table::ELSEWHERE.iter().chain(table::BEFORE).copied().chain(files);
        let stale = rows.filter(|row| !self.used.contains(row));
        self.wrong.extend(stale.map(|row| format!("no document needs this row of the tables: {row:?}")));
    }

    fn script(&self) -> String {
        let mut script = include_str!("documents/reader.sh").to_owned();
        let mut number = 0;
        for document in &self.documents {
            let before = table::BEFORE.iter().filter(|row| row.0 == document.path).map(|row| row.1);
            script += &format!("begin\n{}\n", before.collect::<String>());
            for step in &document.steps {
                let command = step.command.replacen("cargo run --release --", "larderd", 1);
                let command = command.trim_end_matches(" &");
                let quoted = quoted(command);
                script += &if is_server(command) {
                    format!(
                        "step {number} {}\n",
                        self::quoted(&format!("serve {} {quoted}", step.output.len()))
                    )
                } else {
                    format!("step {number} {quoted}\n")
                };
                number += 1;
            }
        }
        script + "exit 0\n"
    }

    /// Compares what the steps have printed.
    fn compare(&mut self, printed: &str) {
        let mut results = printed.split('\u{1e}').filter_map(|part| {
            let (number, rest) = part.split_once('\u{1f}')?;
            let (text, status) = rest.split_once('\u{1d}').unwrap_or((rest, "no end"));
            Some((number.parse::<usize>().ok()?, text, status))
        });
        let steps = self
            .documents
            .iter()
            .flat_map(|document| document.steps.iter().map(|step| (document.path, step)));
        for (number, (path, step)) in steps.enumerate() {
            let place = format!("{path}:{}: {}", step.line, step.command);
            let Some((_, text, status)) = results.next().filter(|result| result.0 == number) else {
                self.wrong.push(format!("{place}: it was not reached"));
                return;
            };
            let lines: Vec<&str> = text.lines().collect();
            if step.output.is_empty() && status != "0" {
                self.wrong.push(format!("{place}: status {status}\n{text}"));
            } else if !step.output.is_empty() && !output::fits(&step.output, &lines) {
                let shown = step.output.join("\n");
                self.wrong.push(format!("{place}: the page shows\n{shown}\nbut it prints\n{text}"));
            }
        }
    }
}

/// Whether a command is a server, which goes on.
fn is_server(command: &str) -> bool {
    let mut words =
        command.split_whitespace().skip_while(|word| word.contains('=') && !word.starts_with('-'));
    let is_server = words.next().is_some_and(|word| ["larderd", "memcached"].contains(&word));
    is_server
        && !words.any(|word| ["-d", "-h", "-V", "--man", "--version", "--options-markdown"].contains(&word))
}

/// For a shell, as one word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// What stands between backticks outside of blocks, lines joined.
fn inline_code(text: &str) -> Vec<String> {
    let mut prose = String::new();
    let mut is_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if !is_block {
            prose += line;
            prose.push(' ');
        }
    }
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

const USAGE: &str = "usage: cargo xtask documents [--system] [FILE...]
Runs the commands of the documents, all or these, in a copy of this machine that is thrown away afterwards, and compares
what they print with what the documents show. Needs root, and a kernel with namespaces, overlayfs and cgroup2.

--system: in a Debian system of its own, made by debootstrap, and not in a copy of this machine.";

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with a page before anything is run.
    fn refused(text: &str) -> Vec<String> {
        let mut plan = Plan::default();
        plan.add("page.md", text, &mut |command| command.contains("--wrong").then(|| "no option".to_owned()));
        plan.wrong
    }

    #[test]
    fn commands_that_do_not_exist_and_blocks_that_nothing_tries_are_refused() {
        assert_eq!(refused("Use `larder get KEY`.\n```sh\nlarder ping\n```\n```\noutput\n```\n"), [""; 0]);
        assert_eq!(refused("a\n```sh\nlarder ping --wrong\n```\n"), ["page.md:3: no option"]);
        assert_eq!(refused("Use `larder get\n--wrong`.\n"), ["page.md: no option"]);
        let block = "page.md:1: a block of cobol that nothing tries";
        assert_eq!(refused("```cobol\nDISPLAY 1.\n```\n"), [block]);
        assert_eq!(refused("```\nlarder ping\n```\n"), ["page.md:1: commands without sh or console"]);
    }

    #[test]
    fn rows_of_the_tables_that_fit_nothing_are_refused() {
        let mut plan = Plan::default();
        plan.add("page.md", "```sh\ndnf install larder\n```\n", &mut |_| None);
        assert!(plan.documents.is_empty(), "this row has been used");
        plan.finish();
        assert_eq!(plan.wrong.len(), table::ELSEWHERE.len() + table::FILES.len() + table::BEFORE.len() - 1);
    }

    #[test]
    fn what_is_printed_must_be_what_is_shown() {
        let text = "```console\n$ echo 1\n1\n$ true\n```\n";
        for (printed, wrong) in [
            ("\u{1e}0\u{1f}1\n\u{1d}0\u{1e}\u{1e}1\u{1f}\u{1d}0\u{1e}", ""),
            (
                "\u{1e}0\u{1f}2\n\u{1d}0\u{1e}\u{1e}1\u{1f}\u{1d}0\u{1e}",
                "page.md:2: echo 1: the page shows\n1\n",
            ),
            ("\u{1e}0\u{1f}1\n\u{1d}0\u{1e}\u{1e}1\u{1f}\u{1d}1\u{1e}", "page.md:4: true: status 1\n"),
            ("\u{1e}0\u{1f}1\n\u{1d}0\u{1e}", "page.md:4: true: it was not reached"),
        ] {
            let mut plan = Plan::default();
            plan.add("page.md", text, &mut |_| None);
            plan.compare(printed);
            assert!(plan.wrong.concat().starts_with(wrong), "{:?}", plan.wrong);
            assert_eq!(plan.wrong.is_empty(), wrong.is_empty());
        }
    }

    #[test]
    fn servers_go_on_and_all_other_commands_end() {
        assert!(is_server("larderd -m 64"));
        assert!(is_server("A=/b memcached -u nobody"));
        assert!(!is_server("larderd --man > larderd.1"));
        assert!(!is_server("larder ping"));
    }
}
