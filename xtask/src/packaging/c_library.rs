//! The packages of liblarder_memcached: what is in them, and that Debian's own programs run with it.

use std::fs;
use std::path::Path;
use std::process::Command;

use larder_conformance::{Result, server};

use super::packages::{System, compare, listed};
use crate::package::Packages;
use crate::shell;

pub(super) fn test(packages: &Packages) -> Result<()> {
    let triplet = shell::output(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"))?;
    let folder = format!("usr/lib/{}/larder-memcached", triplet.trim());
    let place = |lines: &[&str]| -> Vec<String> {
        lines.iter().map(|line| line.replace("FOLDER", &folder).replace("TRIPLET", triplet.trim())).collect()
    };
    for (name, package, lines) in [
        ("liblarder-memcached.deb", &packages.deb_c_library, &LIBRARY[..]),
        ("liblarder-memcached-dev.deb", &packages.deb_c_library_dev, &DEVELOPMENT[..]),
    ] {
        let expected = place(lines);
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        compare(name, &listed("dpkg-deb", &["--contents"], package)?, "./", &expected)?;
    }

    let system = System::create()?;
    system.dpkg(&["--install"], &[&packages.deb_c_library, &packages.deb_c_library_dev])?;
    let library = system.path(&folder);
    is_loaded(&library)?;
    let program = build(&system)?;
    let server = server::Server::start::<&str>(&server::larderd()?, &[])?;
    let address = server.address().to_string();
    for (words, expected) in [
        (vec![program.to_string_lossy().into_owned(), address.clone()], "a value"),
        (vec!["memccat".to_owned(), format!("--servers={address}"), "key".to_owned()], "a value"),
        (vec!["memcstat".to_owned(), format!("--servers={address}")], "curr_items: 1"),
        (vec!["php".to_owned(), "-r".to_owned(), PHP.to_owned(), address.clone()], "a value"),
        (vec!["/usr/bin/python3".to_owned(), "-c".to_owned(), PYTHON.to_owned(), address], "a value"),
    ] {
        let mut command = Command::new(&words[0]);
        let told = shell::output(command.args(&words[1..]).env("LD_LIBRARY_PATH", &library))?;
        if !told.contains(expected) {
            return Err(format!("{} tells {told:?}, and not {expected:?}", words[0]).into());
        }
    }

    system.dpkg(&["--purge"], &["liblarder-memcached-dev", "liblarder-memcached"])?;
    let mut left = Vec::new();
    system.collect(&system.path(""), &mut left)?;
    if left.is_empty() { Ok(()) } else { Err(format!("left after a purge: {left:?}").into()) }
}

/// Debian's tool finds all that it wants of libmemcached in the package.
fn is_loaded(library: &Path) -> Result<()> {
    let mut ldd = Command::new("ldd");
    let told = shell::output(ldd.arg("/usr/bin/memcstat").env("LD_LIBRARY_PATH", library))?;
    let found = |name: &str| told.contains(&format!("{name} => {}/{name}", library.display()));
    if ["libmemcached.so.11", "libmemcachedutil.so.2"]
        .into_iter()
        .any(|name| told.contains(name) && !found(name))
        || !found("libmemcached.so.11")
    {
        return Err(format!("memcstat loads another libmemcached: {told}").into());
    }
    Ok(())
}

/// Builds a program with the package's headers and its file for pkg-config.
fn build(system: &System) -> Result<std::path::PathBuf> {
    let root = system.path("");
    let (source, program) = (root.join("program.c"), root.join("program"));
    fs::write(&source, PROGRAM)?;
    let mut description = Command::new("find");
    let file = shell::output(description.arg(&root).args(["-name", "larder-memcached.pc"]))?;
    let mut options = Command::new("pkg-config");
    options.args(["--cflags", "--libs"]).arg(file.trim()).env("PKG_CONFIG_SYSROOT_DIR", &root);
    let options = shell::output(&mut options)?;
    if !options.contains("-Wl,-rpath,") {
        return Err(format!("programs would load another libmemcached: {options}").into());
    }
    let mut compiler = Command::new("cc");
    shell::output(compiler.arg("-o").arg(&program).arg(&source).args(options.split_whitespace()))?;
    Ok(program)
}

const PROGRAM: &str = r#"
#include <libmemcached/memcached.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
  memcached_st *client = memcached_create(NULL);
  memcached_server_list_st list = memcached_servers_parse(argv[argc - 1]);
  memcached_server_push(client, list);
  memcached_server_list_free(list);
  memcached_set(client, "key", 3, "a value", 7, 0, 0);
  size_t length;
  uint32_t flags;
  memcached_return_t rc;
  char *value = memcached_get(client, "key", 3, &length, &flags, &rc);
  printf("%.*s\n", (int) length, value);
  free(value);
  memcached_free(client);
  return 0;
}
"#;

const PHP: &str = r#"
[$host, $port] = explode(":", $argv[1]);
$client = new Memcached();
$client->addServer($host, (int) $port);
echo $client->get("key"), "\n";
"#;

const PYTHON: &str = "import pylibmc, sys; print(pylibmc.Client([sys.argv[1]])['key'])";

const LIBRARY: [&str; 7] = [
    "-rw-r--r-- FOLDER/libmemcached.so.11",
    "lrwxrwxrwx FOLDER/libhashkit.so.2 -> libmemcached.so.11",
    "lrwxrwxrwx FOLDER/libmemcachedutil.so.2 -> libmemcached.so.11",
    "-rw-r--r-- usr/share/doc/liblarder-memcached/changelog.Debian.gz",
    "-rw-r--r-- usr/share/doc/liblarder-memcached/changelog.gz",
    "-rw-r--r-- usr/share/doc/liblarder-memcached/copyright",
    "-rw-r--r-- usr/share/doc/liblarder-memcached/third-party-licences.gz",
];

const DEVELOPMENT: [&str; 12] = [
    "-rw-r--r-- usr/include/larder-memcached/libhashkit-1.0/hashkit.h",
    "-rw-r--r-- usr/include/larder-memcached/libhashkit/hashkit.h",
    "-rw-r--r-- usr/include/larder-memcached/libmemcached-1.0/memcached.h",
    "-rw-r--r-- usr/include/larder-memcached/libmemcached/memcached.h",
    "-rw-r--r-- usr/include/larder-memcached/libmemcached/util.h",
    "-rw-r--r-- usr/include/larder-memcached/libmemcachedutil-1.0/pool.h",
    "-rw-r--r-- usr/include/larder-memcached/libmemcachedutil-1.0/util.h",
    "lrwxrwxrwx FOLDER/libhashkit.so -> libhashkit.so.2",
    "lrwxrwxrwx FOLDER/libmemcached.so -> libmemcached.so.11",
    "lrwxrwxrwx FOLDER/libmemcachedutil.so -> libmemcachedutil.so.2",
    "-rw-r--r-- usr/lib/TRIPLET/pkgconfig/larder-memcached.pc",
    "lrwxrwxrwx usr/share/doc/liblarder-memcached-dev -> liblarder-memcached",
];
