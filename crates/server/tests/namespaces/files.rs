//! Files that larderd refuses, each with its line.

use crate::server::refusal;

#[test]
fn what_cannot_be_honoured_is_refused_with_a_reason() {
    for (file, options, reason) in [
        (
            "[namespace.\"a:\"]\nmemroy = 1\n",
            &[][..],
            "line 2: namespace.\"a:\".memroy: no such key; did you mean memory?",
        ),
        (
            "[namespace.\"a:\"]\nkeep = \"warm\"\n",
            &[],
            "namespace.\"a:\": keep = \"warm\" needs a file, -e FILE",
        ),
        ("[default]\nkeep = \"warm\"\n", &[], "default: keep = \"warm\" needs a file, -e FILE"),
        ("[default]\nkeep = \"store\"\n", &[], "default: keep = \"store\" needs --store"),
        (
            "[default]\nreplicate = \"invalidations\"\n",
            &[],
            "default: replicate = \"invalidations\" and \"values\" need --site",
        ),
        ("[default]\nreplicate = true\n", &[], "default: replicate = true needs keep = \"store\""),
        ("[default]\nusers.read = [\"anna\"]\n", &[], "default: users needs logins (-Y or -S)"),
        (
            "[namespace.\"a:\"]\nmemory = \"64m\"\n",
            &[],
            "the quotas are 64 MiB and the other namespaces need 1 MiB, but there are 64 MiB (-m)",
        ),
        (
            "[namespace.\"a:\"]\nitem_bytes_max = \"5m\"\n",
            &["-m", "16"],
            "namespace.\"a:\": item_bytes_max is more than half of its memory, 8 MiB",
        ),
    ] {
        assert_eq!(refusal(file, options), format!("larderd: namespaces bad.toml: {reason}"), "{file}");
    }
    let missing = refusal("", &["--namespaces", "missing.toml"]);
    assert_eq!(missing, "larderd: namespaces missing.toml: No such file or directory (os error 2)");
}
