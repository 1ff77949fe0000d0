//! Runs the simulator of the client: one seed, or many.

fn main() -> std::process::ExitCode {
    larder_seeds::main::<larder_sim::shared_client::ClientScenario>()
}
