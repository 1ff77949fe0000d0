//! Running other programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::Result;

/// Runs a command to its end. The error shows the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("{}: {error}", shown(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", shown(command)).into()) }
}

/// Runs a command to its end and returns what it printed on standard output. The error shows all that it printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{}: {error}", shown(command)))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}\n{text}{errors}", shown(command), output.status).trim_end().into())
}

/// Builds a package of a Go module that lies in `source`.
pub(crate) fn go_build(program: &Path, source: &Path, package: &str) -> Result<()> {
    let mut build = Command::new("go");
    build.args(["build", "-buildvcs=false", "-o"]).arg(program).arg(package);
    run(build.current_dir(source))
}

/// Makes a Python environment with what a file of requirements names; returns its interpreter.
pub(crate) fn python(environment: &Path, requirements: &Path) -> Result<PathBuf> {
    let python = environment.join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(environment))?;
    }
    let mut pip = Command::new(&python);
    run(pip.args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(requirements))?;
    Ok(python)
}

/// The target that a compiler, `rustc` in some environment, builds for if none is named.
pub(crate) fn host(rustc: &mut Command) -> Result<String> {
    let version = output(rustc.arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("rustc does not tell its host")?.to_owned())
}

/// openssl, making a key and a certificate for it that is valid for two days; arguments that follow say more about it.
pub(crate) fn certificate(name: &str, certificate: &Path, key: &Path) -> Command {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    openssl.args(["-days", "2", "-subj", &format!("/CN={name}")]);
    openssl.arg("-keyout").arg(key).arg("-out").arg(certificate);
    openssl
}

/// Cargo, the one that runs us.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut cargo = larder_conformance::cargo::cargo();
    cargo.args(args).current_dir(root());
    cargo
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// The target directory that we were built in.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    Ok(exe.ancestors().nth(2).ok_or("xtask does not lie in a target directory")?.to_owned())
}

fn shown(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
