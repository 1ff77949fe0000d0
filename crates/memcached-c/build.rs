//! Gives the library the name that programs built against libmemcached look for, and what they expect to come with it.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmemcached.so.11");
    // libmemcached brings libsasl2 along, and pylibmc uses it without asking for it itself.
    let has_sasl = |directory: &str| Path::new(directory).join("libsasl2.so.2").exists();
    if LIBRARIES.iter().any(|directory| has_sasl(directory)) {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--push-state,--no-as-needed,-l:libsasl2.so.2,--pop-state");
    }
}

/// Where Debian, Fedora and others have it.
const LIBRARIES: &[&str] =
    &["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64"];
