//! `larder completions`: shell completions.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{Failure, Larder, output};

/// Write completions for a shell
///
/// For bash: larder completions bash > /etc/bash_completion.d/larder
#[derive(clap::Args)]
pub(crate) struct Args {
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Larder::command(), "larder", &mut script);
    output::write(|out| out.write_all(&script).map_err(Failure::of_output))
}
