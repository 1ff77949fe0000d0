//! larderd answers every golden wire script, however its bytes arrive.

use larder_conformance::script::Side;
use larder_conformance::{Result, server, suite};

#[test]
fn larderd_answers_every_script() -> Result<()> {
    let report = suite::run(&server::larderd()?, Side::Larder, &suite::scripts("")?)?;
    assert!(
        report.failures.is_empty(),
        "{} of the runs fail:\n{}",
        report.failures.len(),
        report.failures.join("\n")
    );
    Ok(())
}
