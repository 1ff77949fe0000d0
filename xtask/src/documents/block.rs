//! The code blocks of a page, and the steps in those that are for a shell.

/// A fenced block.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    /// The line of its first fence, from 1.
    pub(crate) line: usize,
    /// What stands behind the fence; empty for text and output.
    pub(crate) language: &'a str,
    pub(crate) text: String,
}

/// A command that a reader types, and what the page shows below it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) line: usize,
    pub(super) command: String,
    pub(super) output: Vec<String>,
}

/// All blocks of a page, in order. Those in lists lose their indentation.
pub(crate) fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().zip(1..);
    while let Some((fence, line)) = lines.next() {
        let Some(language) = fence.trim_start().strip_prefix("```") else { continue };
        let indent = fence.len() - fence.trim_start().len();
        let code = lines.by_ref().map(|(line, _)| line).take_while(|line| line.trim_start() != "```");
        let text = code.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect();
        blocks.push(Block { line, language, text });
    }
    blocks
}

impl Block<'_> {
    /// The steps of a block for a shell: in `console` the lines after `$ `, in `sh` each line. A command goes on after
    /// a backslash. None for other languages.
    pub(super) fn steps(&self) -> Option<Vec<Step>> {
        let prompt = match self.language {
            "console" => "$ ",
            "sh" => "",
            _ => return None,
        };
        let mut steps: Vec<Step> = Vec::new();
        for (text, line) in self.text.lines().zip(self.line + 1..) {
            match steps.last_mut() {
                Some(step) if step.command.ends_with('\\') => {
                    step.command.pop();
                    step.command += text.trim_start();
                }
                last => match (text.strip_prefix(prompt), last) {
                    (Some(""), _) => {}
                    (Some(command), _) => {
                        steps.push(Step { line, command: command.to_owned(), output: Vec::new() });
                    }
                    (None, Some(step)) => step.output.push(text.to_owned()),
                    (None, None) => {}
                },
            }
        }
        Some(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_falls_into_blocks_and_these_into_steps() {
        let page = "# A\n```sh\na \\\n  b\n\nc\n```\n- in a list:\n  ```console\n  $ d\n  1\n  2\n  $ e\n  ```\n```\nf\n```\n";
        let blocks = blocks(page);
        let steps: Vec<_> = blocks.iter().map(Block::steps).collect();
        let step = |line, command: &str, output: &[&str]| Step {
            line,
            command: command.to_owned(),
            output: output.iter().map(|&line| line.to_owned()).collect(),
        };
        assert_eq!(steps[0], Some(vec![step(3, "a b", &[]), step(6, "c", &[])]));
        assert_eq!(steps[1], Some(vec![step(10, "d", &["1", "2"]), step(13, "e", &[])]));
        assert_eq!(steps[2], None);
    }
}
