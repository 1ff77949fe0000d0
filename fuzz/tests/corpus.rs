//! Every input of the corpus, for its target.

use std::fs;
use std::path::Path;

use larder_fuzz::TARGETS;

#[test]
fn kept_inputs_do_no_harm() {
    for (name, target) in TARGETS {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let files = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            // A failure prints the name of the file.
            println!("{}", path.display());
            target(&fs::read(path).unwrap());
            count += 1;
        }
        assert!(count > 0, "{name} has no inputs");
    }
}
