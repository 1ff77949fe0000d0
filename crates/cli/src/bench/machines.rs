//! Agents, and their collector.

use std::path::PathBuf;

use clap::Args;
use larder_bench::agent::{Agent, Token, collect as collect_outcomes};
use larder_client::Address;
use larder_client::address::BadAddress;

use super::live::{show, watcher};
use super::load::LoadArgs;
use super::output::OutputArgs;
use crate::Failure;
use crate::signals::stop_on_signals;

#[derive(Args)]
pub(super) struct AgentArgs {
    /// Where to listen. Anyone with the token can make this machine send load to any address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:11311")]
    listen: String,
    /// A file with the secret that agents and collector share; `openssl rand -hex 32` makes a good one
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Take scenarios that name files of this machine
    #[arg(long)]
    allow_files: bool,
}

#[derive(Args)]
pub(super) struct CollectArgs {
    /// Agents: HOST:PORT, several between commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true, value_parser = agent_address)]
    agents: Vec<String>,
    /// The file with their secret
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn agent_address(text: &str) -> Result<String, BadAddress> {
    text.parse::<Address>().map(|_| text.to_owned())
}

pub(super) fn agent(args: AgentArgs) -> Result<(), Failure> {
    let failed = |error: larder_bench::Error| Failure::Failed(error.to_string());
    let token = Token::read(&args.token_file).map_err(failed)?;
    let agent = Agent::bind(&args.listen, token, args.allow_files).map_err(failed)?;
    let address = agent.address().map_err(|error| failed(error.into()))?;
    eprintln!("listening on {address}");
    let stop = stop_on_signals()?;
    agent.serve(&|line| eprintln!("{line}"), &stop).map_err(failed)
}

pub(super) fn collect(args: CollectArgs) -> Result<(), Failure> {
    let failed = |error: larder_bench::Error| Failure::Failed(error.to_string());
    args.output.check()?;
    let scenario = args.load.scenario()?;
    let token = Token::read(&args.token_file).map_err(failed)?;
    let stop = stop_on_signals()?;
    let outcome = collect_outcomes(
        &args.agents,
        &token,
        &scenario,
        watcher(&scenario, &args.output, &stop).as_mut(),
        &stop,
    )
    .map_err(failed)?;
    show(&outcome, &args.output)
}
