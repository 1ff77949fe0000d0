//! The packages in memcached's place, in a Debian system: the applications of `conformance/applications` go on working,
//! unchanged, when Debian's own tools exchange the server, and when they change it back.

use larder_conformance::Result;

use crate::debian::{Debian, Job};
use crate::package::Packages;
use crate::shell;

/// In each way that docs/install.md names.
pub(super) fn test(packages: &Packages) -> Result<()> {
    let debian = Debian::prepare()?;
    for way in ["at-once", "moving"] {
        let job = Job::new(&[]);
        for package in [&packages.deb, &packages.deb_memcached] {
            job.add(package)?;
        }
        for file in ["php-sessions/index.php", "php-sessions/php.ini", "django/counter.py"] {
            job.add(&shell::root().join("conformance/applications").join(file))?;
        }
        let script = format!("set -- {way}\n{}", include_str!("replacement.sh"));
        debian.run(&job, &script).map_err(|error| format!("in memcached's place, {way}: {error}"))?;
        println!(
            "{way}: PHP sessions and Django went on with larderd in memcached's place, and after the way back"
        );
    }
    Ok(())
}
