//! Gives the library the name that programs built against libmemcached look for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmemcached.so.11");
}
