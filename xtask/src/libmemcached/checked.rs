//! The C programs over our library, watched: by valgrind, and by AddressSanitizer.

use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::Result;
use larder_conformance::script::Side;

use super::library::{FILE, Library, PACKAGE, work_dir};
use super::programs::{PROGRAMS, Program, programs_dir, source_dir};
use super::{Bench, Run};
use crate::{sanitize, shell};

/// valgrind for a few programs; for all, and AddressSanitizer, if it may take its time.
pub(super) fn runs(is_thorough: bool) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for program in &PROGRAMS {
        if is_thorough || SHORT.contains(&program.name) {
            let name = format!("valgrind: {}", program.name);
            runs.push((name, Box::new(move |bench| valgrind(bench, program))));
        }
    }
    if is_thorough {
        let library = sanitized_library()?;
        for program in &PROGRAMS {
            let library = library.clone();
            let name = format!("AddressSanitizer: {}", program.name);
            runs.push((name, Box::new(move |bench| sanitized(bench, program, &library))));
        }
    }
    Ok(runs)
}

/// No error, and nothing lost for certain.
fn valgrind(bench: &Bench, program: &Program) -> Result<String> {
    let servers = program.place.start(&bench.doors, Side::Larder)?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=99", "--leak-check=full", "--show-leak-kinds=definite"]);
    valgrind.args(["--errors-for-leak-kinds=definite", "--num-callers=30"]);
    valgrind.arg(programs_dir()?.join(program.name)).args(&servers.words);
    shell::output(bench.ours.load(&mut valgrind)).map(|_| "no error, no definite leak".to_owned())
}

/// Builds our library with AddressSanitizer, which needs a nightly toolchain.
fn sanitized_library() -> Result<PathBuf> {
    let target = shell::root().join("target/asan");
    let host = sanitize::build_with_address(PACKAGE, &target)?;
    Ok(target.join(host).join("debug").join(FILE))
}

/// A program built with AddressSanitizer as well, whose runtime the library finds there.
fn sanitized(bench: &Bench, program: &Program, file: &Path) -> Result<String> {
    let library = Library::lay(file.to_owned(), "asan")?;
    let built = work_dir()?.join("asan").join(program.name);
    let mut compiler = Command::new("cc");
    compiler.args(["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-o"]);
    compiler.arg(&built).arg(source_dir().join(program.name).with_extension("c"));
    shell::output(compiler.args(["-lmemcached", "-lmemcachedutil", "-lhashkit", "-lpthread"]))?;
    let servers = program.place.start(&bench.doors, Side::Larder)?;
    let mut command = Command::new(built);
    library.load(&mut command).args(&servers.words);
    shell::output(command.env("ASAN_OPTIONS", "detect_leaks=1")).map(|_| "no error, no leak".to_owned())
}

/// Those that call most of the interface in the shortest time.
const SHORT: [&str; 5] = ["storage", "retrieval", "handles", "configuration", "replicas"];
