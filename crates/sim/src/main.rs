//! Runs the simulator: one seed, or many.

fn main() -> std::process::ExitCode {
    larder_seeds::main::<larder_sim::Scenario>()
}
