//! Installing the clients below the target directory, as `conformance/clients` pins them, and naming their programs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::Result;

use super::Program;
use super::doors::Door::{self, Http, Nginx, Plain, Sasl, Tls, Token, Udp};
use crate::shell;

/// Lays the jars of the Java clients, and all that they need, into one folder.
pub(crate) fn java_jars() -> Result<PathBuf> {
    let jars = shell::target_dir()?.join("clients/java");
    let mut maven = Command::new("mvn");
    maven
        .args(["-B", "-q", "-f"])
        .arg(shell::root().join("conformance/clients/java/pom.xml"))
        .arg(MAVEN_COPY);
    let mut output = OsString::from("-DoutputDirectory=");
    output.push(&jars);
    shell::output(maven.arg(output))?;
    Ok(jars)
}

/// Builds memcached_exporter, which is a program and no client.
pub(super) fn exporter() -> Result<PathBuf> {
    let program = shell::target_dir()?.join("clients/memcached_exporter");
    let source = shell::root().join("conformance/operators/memcached_exporter");
    shell::go_build(&program, &source, EXPORTER)?;
    Ok(program)
}

/// Installs every client.
pub(super) fn programs() -> Result<Vec<Program>> {
    let mut install = Install {
        sources: shell::root().join("conformance/clients"),
        installed: shell::target_dir()?.join("clients"),
        programs: Vec::new(),
    };
    fs::create_dir_all(&install.installed)?;
    install.python()?;
    install.perl();
    install.php();
    install.ruby();
    install.go()?;
    install.node()?;
    install.java()?;
    Ok(install.programs)
}

struct Install {
    sources: PathBuf,
    installed: PathBuf,
    programs: Vec<Program>,
}

impl Install {
    /// An environment for each package, so that none can lend another what it lacks.
    fn python(&mut self) -> Result<()> {
        let python = self.environment("pymemcache")?;
        self.add("pymemcache", &[Plain, Token, Tls], [python, self.source("pymemcache/smoke.py")]);

        let python = self.environment("python-memcached")?;
        self.add("python-memcached", &[Plain], [python, self.source("python-memcached/smoke.py")]);

        let python = self.environment("python-binary-memcached")?;
        let program = [python, self.source("python-binary-memcached/smoke.py")];
        self.add("python-binary-memcached", &[Plain, Sasl, Tls], program);

        let python = self.environment("pylibmc")?;
        let smoke = [python.clone(), self.source("pylibmc/smoke.py")];
        self.add("pylibmc text", &[Plain], smoke.clone().into_iter().chain(["text".into()]));
        self.add("pylibmc binary", &[Plain, Sasl], smoke.into_iter().chain(["binary".into()]));
        self.add("pylibmc over UDP", &[Udp], [python, self.source("udp/sets.py")]);

        let python = self.environment("http")?;
        self.add("requests", &[Http, Nginx], [python, self.source("http/smoke.py")]);
        self.add("gets over UDP", &[Udp], ["python3".into(), self.source("udp/multiget.py")]);
        Ok(())
    }

    fn perl(&mut self) {
        let program = ["perl".into(), self.source("cache-memcached/smoke.pl")];
        self.add("Cache::Memcached", &[Plain], program);
    }

    fn php(&mut self) {
        for (protocol, doors) in [("text", &[Plain][..]), ("binary", &[Plain, Sasl])] {
            let program = ["php".into(), self.source("php/memcached.php"), protocol.into()];
            self.add("php-memcached", doors, program);
            let program = ["php".into(), self.source("php/memcache.php"), protocol.into()];
            self.add("php-memcache", &[Plain], program);
        }
    }

    fn ruby(&mut self) {
        self.add("dalli", &[Plain, Sasl, Tls], ["ruby".into(), self.source("dalli/smoke.rb")]);
    }

    fn go(&mut self) -> Result<()> {
        let program = self.installed.join("gomemcache-smoke");
        shell::go_build(&program, &self.source("gomemcache"), ".")?;
        self.add("gomemcache", &[Plain, Tls], [program]);
        Ok(())
    }

    fn node(&mut self) -> Result<()> {
        for (name, doors) in [("npm-memcached", &[Plain][..]), ("memjs", &[Plain, Sasl])] {
            let folder = self.installed.join(name);
            fs::create_dir_all(&folder)?;
            for file in ["package.json", "package-lock.json", "smoke.js"] {
                fs::copy(self.source(name).join(file), folder.join(file))?;
            }
            let mut npm = Command::new("npm");
            shell::run(npm.args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&folder))?;
            self.add(name, doors, ["node".into(), folder.join("smoke.js")]);
        }
        Ok(())
    }

    /// One program for both Java clients: it takes longer to start Java than to run them.
    fn java(&mut self) -> Result<()> {
        let jars = java_jars()?;
        let program = ["java".into(), "-cp".into(), jars.join("*"), self.source("java/Smoke.java")];
        self.add("spymemcached and Whalin", &[Plain, Sasl], program);
        Ok(())
    }

    /// A Python environment with the package that the folder of this name asks for; returns its interpreter.
    fn environment(&self, name: &str) -> Result<PathBuf> {
        shell::python(&self.installed.join(name), &self.source(name).join("requirements.txt"))
    }

    fn add(&mut self, name: &'static str, doors: &[Door], command: impl IntoIterator<Item = PathBuf>) {
        let command: Vec<PathBuf> = command.into_iter().collect();
        self.programs.extend(doors.iter().map(|&door| Program { name, door, command: command.clone() }));
    }

    fn source(&self, path: impl AsRef<Path>) -> PathBuf {
        self.sources.join(path)
    }
}

const MAVEN_COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";
const EXPORTER: &str = "github.com/prometheus/memcached_exporter/cmd/memcached_exporter";
