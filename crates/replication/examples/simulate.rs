//! Runs the simulator: one seed, or many.

#[path = "../tests/sim/mod.rs"]
mod sim;

fn main() -> std::process::ExitCode {
    larder_seeds::main::<sim::Scenario>()
}
