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
        let commands = || group.commands.iter();
        let keys = std::iter::once(&group.keys).chain(commands().flat_map(|command| &command.key_set));
        let values = std::iter::once(&group.values).chain(commands().flat_map(|command| &command.value_set));
        let sizes = keys.map(|keys| &keys.bytes).chain(values.map(|values| &values.bytes));
        files.extend(sizes.filter_map(|sizes| match sizes {
            Sizes::File { file } => Some(file.as_str()),
            _ => None,
        }));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Command, Group, Keys, Tls, Trace, Values};

    #[test]
    fn no_file_is_overlooked() {
        let mut group = Group::default();
        group.keys.bytes = Sizes::File { file: "keys".into() };
        group.values.bytes = Sizes::File { file: "values".into() };
        let key_set = Some(Keys { bytes: Sizes::File { file: "command keys".into() }, ..Keys::default() });
        let value_set =
            Some(Values { bytes: Sizes::File { file: "command values".into() }, ..Values::default() });
        group.commands = vec![Command { key_set, value_set, ..Command::default() }];
        group.trace = Some(Trace { file: "trace".into(), ..Trace::default() });
        let mut scenario = Scenario { groups: vec![Group::default(), group], ..Scenario::default() };
        scenario.target.tls = Some(Tls {
            ca_file: Some("ca".into()),
            certificate_file: Some("certificate".into()),
            key_file: Some("key".into()),
            server_name: Some("name".into()),
        });
        let expected =
            ["ca", "certificate", "key", "trace", "keys", "command keys", "values", "command values"];
        assert_eq!(named(&scenario), expected);
    }
}
