//! A reader of statistics as phpMemcachedAdmin has them: `conformance/operators/phpmemcachedadmin.php`.

use std::process::Command;

use larder_conformance::Result;

use super::Target;
use super::view::View;
use crate::shell;

/// What the pages of phpMemcachedAdmin are made of, by one of its readers (`sockets`, `memcache`).
pub(super) fn read(target: &Target, reader: &str) -> Result<View> {
    let mut php = Command::new("php");
    php.arg(shell::root().join("conformance/operators/phpmemcachedadmin.php")).arg(reader);
    php.arg(target.address.ip().to_string()).arg(target.address.port().to_string());
    let text = shell::output(&mut php)?;
    let mut view = View::default();
    for line in text.lines() {
        let (name, value) = line.split_once('\t').ok_or_else(|| format!("it prints {line:?}"))?;
        view.add(name, value);
    }
    Ok(view)
}
