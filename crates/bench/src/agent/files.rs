//! Files that a scenario names.

use crate::scenario::{Scenario, Sizes};

/// The paths of all files that a run would read.
pub(super) fn named(scenario: &Scenario) -> Vec<&str> {
    let mut files: Vec<&str> = Vec::new();
    if let Some(tls) = &scenario.target.tls {
        files.extend(
            [&tls.ca_file, &tls.certificate_file, &tls.key_file].into_iter().flatten().map(String::as_str),
        );
    }
    for group in &scenario.groups {
        files.extend(group.trace.iter().map(|trace| trace.file.as_str()));
        for sizes in [&group.keys.bytes, &group.values.bytes] {
            if let Sizes::File { file } = sizes {
                files.push(file);
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Group, Tls, Trace};

    #[test]
    fn no_file_is_overlooked() {
        let mut group = Group::default();
        group.keys.bytes = Sizes::File { file: "keys".into() };
        group.values.bytes = Sizes::File { file: "values".into() };
        group.trace = Some(Trace { file: "trace".into(), ..Trace::default() });
        let mut scenario = Scenario { groups: vec![Group::default(), group], ..Scenario::default() };
        scenario.target.tls = Some(Tls {
            ca_file: Some("ca".into()),
            certificate_file: Some("certificate".into()),
            key_file: Some("key".into()),
            server_name: Some("name".into()),
        });
        assert_eq!(named(&scenario), ["ca", "certificate", "key", "trace", "keys", "values"]);
    }
}
