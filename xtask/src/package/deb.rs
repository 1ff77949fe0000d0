//! The Debian packages, by Debian's own tools. Debian Policy says what stands where.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::Result;

use super::{Content, HOMEPAGE, compress, tree::Tree};
use crate::shell;

/// Makes `larder` and `larder-memcached`, `liblarder-memcached` and `liblarder-memcached-dev`.
///
/// The first stands beside Debian's memcached, to which the name `/usr/bin/memcached` belongs. It cannot be an
/// alternative, since memcached's package would overwrite the link; so the second has the name, and conflicts.
pub(super) fn make(content: &Content) -> Result<[PathBuf; 4]> {
    let source = Source::write(content)?;

    let tree = Tree::create(content.staging.join("deb"))?;
    content.install(&tree, "usr", "vendor-completions")?;
    Content::install_default(&tree)?;
    source.install_documents(&tree, "larder")?;
    tree.write("DEBIAN/conffiles", "/etc/default/larderd\n", 0o644)?;
    let programs = ["larderd", "larder"].map(|program| tree.path().join("usr/bin").join(program));
    let shlibs = source.shared_libraries(&programs)?;
    let deb = source.pack("larder", &tree, &[&shlibs], &["postinst", "prerm", "postrm"])?;

    let tree = Tree::create(content.staging.join("deb-memcached"))?;
    Content::install_memcached(&tree)?;
    // The same documents: the packages have the same version.
    tree.link("larder", "usr/share/doc/larder-memcached")?;
    let version = format!("memcached:Version={}", content.memcached_version);
    let deb_memcached = source.pack("larder-memcached", &tree, &[&version], &["postinst", "postrm"])?;

    let tree = Tree::create(content.staging.join("deb-c-library"))?;
    let library = content.install_c_library(&tree)?;
    source.install_documents(&tree, "liblarder-memcached")?;
    let shlibs = source.shared_libraries(&[library])?;
    let deb_c_library = source.pack("liblarder-memcached", &tree, &[&shlibs], &[])?;

    let tree = Tree::create(content.staging.join("deb-c-library-dev"))?;
    content.install_c_headers(&tree)?;
    tree.link("liblarder-memcached", "usr/share/doc/liblarder-memcached-dev")?;
    let deb_c_library_dev = source.pack("liblarder-memcached-dev", &tree, &[], &[])?;
    Ok([deb, deb_memcached, deb_c_library, deb_c_library_dev])
}

/// A folder as Debian's tools expect it: with a folder `debian` that describes the packages.
struct Source<'a> {
    content: &'a Content,
    folder: PathBuf,
}

impl<'a> Source<'a> {
    fn write(content: &'a Content) -> Result<Self> {
        let source = Self { content, folder: content.staging.join("deb-source") };
        fs::create_dir_all(source.folder.join("debian"))?;
        fs::copy(packaging().join("copyright"), source.debian("copyright"))?;
        let control = fs::read_to_string(packaging().join("control"))?.replace("@HOMEPAGE@", HOMEPAGE);
        fs::write(source.debian("control"), &control)?;
        let maintainer = control.lines().find_map(|line| line.strip_prefix("Maintainer: "));
        let maintainer = maintainer.ok_or("no Maintainer in packaging/debian/control")?;
        let date = shell::output(content.tool("date").args([
            "--utc",
            "--rfc-email",
            "--date",
            &format!("@{}", content.epoch_secs),
        ]))?;
        let version = &content.version;
        let entry = format!(
            "larder ({version}-1) unstable; urgency=medium\n\n  * Version {version}.\n\n -- {maintainer}  {date}"
        );
        fs::write(source.debian("changelog"), entry)?;
        Ok(source)
    }

    fn debian(&self, file: &str) -> PathBuf {
        self.folder.join("debian").join(file)
    }

    fn tool(&self, program: &str) -> Command {
        let mut command = self.content.tool(program);
        command.current_dir(&self.folder);
        command
    }

    /// What every package has in its folder of documents.
    fn install_documents(&self, tree: &Tree, package: &str) -> Result<()> {
        let documents = Path::new("usr/share/doc").join(package);
        tree.copy(&self.debian("copyright"), documents.join("copyright"), 0o644)?;
        for (text, name) in [
            (self.debian("changelog"), "changelog.Debian"),
            (shell::root().join("CHANGELOG.md"), "changelog"),
        ] {
            tree.copy(&text, documents.join(name), 0o644)?;
            compress(&tree.path().join(&documents).join(name))?;
        }
        Ok(())
    }

    /// The packages of the shared libraries that programs, or a library, need, as a variable of the control file.
    fn shared_libraries(&self, files: &[PathBuf]) -> Result<String> {
        let mut find = self.tool("dpkg-shlibdeps");
        find.args(["-O", "--ignore-missing-info"]);
        for file in files {
            find.arg(format!("-e{}", file.display()));
        }
        Ok(shell::output(&mut find)?.trim().to_owned())
    }

    fn pack(&self, name: &str, tree: &Tree, variables: &[&str], scripts: &[&str]) -> Result<PathBuf> {
        let mut md5sums = self.content.tool("sh");
        md5sums.args([
            "-c",
            "find . -path ./DEBIAN -prune -o -type f -printf '%P\\0' | sort -z | xargs -0r md5sum",
        ]);
        tree.write("DEBIAN/md5sums", shell::output(md5sums.current_dir(tree.path()))?, 0o644)?;
        for script in scripts {
            let text = packaging().join(format!("{name}.{script}"));
            tree.copy(&text, format!("DEBIAN/{script}"), 0o755)?;
        }
        let mut control = self.tool("dpkg-gencontrol");
        control.arg(format!("-p{name}")).arg(format!("-P{}", tree.path().display()));
        control.args(variables.iter().map(|variable| format!("-V{variable}")));
        control.arg("-O");
        tree.write("DEBIAN/control", shell::output(&mut control)?, 0o644)?;

        // It names the package itself.
        let mut pack = self.content.tool("dpkg-deb");
        pack.args(["--root-owner-group", "-Zxz", &format!("-z{}", self.content.level), "--build"])
            .arg(tree.path())
            .arg(&self.content.output);
        let printed = shell::output(&mut pack)?;
        let path = printed.rsplit('\'').nth(1).filter(|path| path.ends_with(".deb"));
        Ok(path.ok_or_else(|| format!("dpkg-deb names no package: {printed}"))?.into())
    }
}

fn packaging() -> PathBuf {
    shell::root().join("packaging/debian")
}
