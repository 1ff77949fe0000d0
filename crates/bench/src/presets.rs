//! Named scenarios: published workloads, the defaults of older tools, and a plain cache. Each file names the source of
//! its figures.

use crate::Scenario;

/// A named scenario.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// The file, with its comments.
    pub toml: &'static str,
}

macro_rules! presets {
    ($($name:literal)*) => {
        &[$(Preset { name: $name, toml: include_str!(concat!("../presets/", $name, ".toml")) }),*]
    };
}

/// All of them, in the order in which they are listed.
pub const PRESETS: &[Preset] = presets![
    "cache" "etc" "kvcache" "pages" "chunks" "memaslap" "olio-100" "olio-2048" "olio-4096" "spy-whalin"
    "spy-whalin-compressed" "spy-whalin-uncompressed" "brutis" "noreply" "noreply-replies"
];

/// The preset of that name, if there is one.
pub fn find(name: &str) -> Option<Preset> {
    PRESETS.iter().find(|preset| preset.name == name).copied()
}

impl Preset {
    /// The scenario.
    ///
    /// # Panics
    /// Never: the files are part of the program, and a test reads each.
    pub fn scenario(&self) -> Scenario {
        Scenario::from_toml(self.toml).unwrap_or_else(|error| panic!("preset {}: {error}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::RunError;
    use crate::outcome::{Period, Phase, Tally, Watcher};
    use crate::scenario::{SizeRange, Sizes, Values};

    #[test]
    fn every_file_is_a_scenario_of_its_name_and_survives_being_written() {
        for preset in PRESETS {
            let scenario = preset.scenario();
            assert_eq!(scenario.name, preset.name);
            assert!(!scenario.description.is_empty(), "{}", preset.name);
            assert!(scenario.groups.iter().all(|group| !group.commands.is_empty()), "{}", preset.name);
            assert!(preset.toml.starts_with("# "), "{}: without its source", preset.name);
            let written = scenario.to_toml();
            let read = Scenario::from_toml(&written).unwrap_or_else(|error| panic!("{error}\n{written}"));
            assert_eq!(read, scenario, "{written}");
        }
    }

    #[test]
    fn every_one_can_be_run() {
        struct Nobody;
        impl Watcher for Nobody {
            fn phase(&mut self, _: Phase) {}
            fn period(&mut self, _: &Period, _: &Tally) {}
        }
        for preset in PRESETS {
            let mut scenario = preset.scenario();
            // Nothing listens there: errors of the scenario are found before.
            scenario.target.servers = vec!["127.0.0.1:1".into()];
            let ended = crate::run(&scenario, &mut Nobody, &AtomicBool::new(false));
            assert!(matches!(ended, Err(RunError::Server { .. })), "{}: {:?}", preset.name, ended.err());
        }
    }

    #[test]
    fn every_file_of_the_folder_is_listed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/presets");
        let files = std::fs::read_dir(folder).expect("it is there").count();
        assert_eq!(files, PRESETS.len());
    }

    #[test]
    fn averages_are_those_of_the_sources() {
        for (name, bytes, slack) in [
            ("olio-100", 100.0, 0.5),
            ("olio-2048", 2048.0, 10.0),
            ("olio-4096", 4096.0, 1.0),
            ("spy-whalin", 1024.0, 0.5),
            ("kvcache", 193.0, 5.0),
            // The source's, less what the least and the greatest page cut off.
            ("pages", 103_987.0, 7_000.0),
        ] {
            let average = average_bytes(&find(name).expect("it is there").scenario().groups[0].values);
            assert!((average - bytes).abs() <= slack, "{name}: {average}");
        }
    }

    #[test]
    fn half_of_the_pages_are_up_to_the_median_of_the_source() {
        let Sizes::Ranges(ranges) =
            &find("pages").expect("it is there").scenario().groups[0].values.bytes.clone()
        else {
            panic!("they are ranges");
        };
        let share_up_to = |bytes: u64| {
            let part = |range: &SizeRange| {
                let below = (bytes + 1).clamp(range.min, range.max + 1) - range.min;
                range.weight * below as f64 / (range.max + 1 - range.min) as f64
            };
            ranges.iter().map(part).sum::<f64>() / ranges.iter().map(|range| range.weight).sum::<f64>()
        };
        assert!((share_up_to(73_420) - 0.5).abs() < 0.01, "{}", share_up_to(73_420));
        assert_eq!((ranges[0].min, ranges[ranges.len() - 1].max), (13_313, 399_637));
    }

    /// The store after a miss has the TTL of the get that missed.
    #[test]
    fn what_is_stored_after_a_miss_expires_as_the_description_says() {
        for (name, secs) in [("cache", 3600), ("pages", 2_592_000), ("chunks", 3600)] {
            let groups = find(name).expect("it is there").scenario().groups;
            let ttls = &groups[0].commands[0].ttl;
            assert_eq!(ttls.iter().map(|ttl| ttl.secs).max(), Some(secs), "{name}");
        }
    }

    /// memcached and larderd take items of up to 1 MiB by default, with key and header.
    #[test]
    fn large_values_fit_servers_without_options() {
        for name in ["pages", "chunks"] {
            for group in find(name).expect("it is there").scenario().groups {
                let longest = match group.values.bytes {
                    Sizes::Fixed(bytes) => bytes,
                    Sizes::Ranges(ranges) => {
                        ranges.iter().map(|range| range.max).max().expect("there are some")
                    }
                    other => panic!("{other:?}"),
                };
                assert!(longest < (1 << 20) - 512, "{name}: {longest}");
            }
        }
    }

    /// The paper's formula, at the limits of the ranges.
    #[test]
    fn the_shares_of_etc_are_those_of_the_distribution() {
        let (sigma, k) = (214.476_f64, 0.348_238_f64);
        let below = |bytes: f64| 1.0 - (1.0 + k * bytes / sigma).powf(-1.0 / k);
        let Sizes::Ranges(ranges) =
            &find("etc").expect("it is there").scenario().groups[0].values.bytes.clone()
        else {
            panic!("they are ranges");
        };
        let (discrete, pareto) = ranges.split_at(14);
        let share: f64 = discrete.iter().map(|range| range.weight).sum();
        assert!((share - 0.44155).abs() < 1e-9, "{share}");
        for range in &pareto[1..] {
            let weight = (1.0 - share) * (below(range.max as f64 + 1.0) - below(range.min as f64));
            assert!((weight - range.weight).abs() < 1e-5, "{range:?}: {weight}");
        }
    }

    fn average_bytes(values: &Values) -> f64 {
        match &values.bytes {
            Sizes::Fixed(bytes) => *bytes as f64,
            Sizes::Ranges(ranges) => {
                let weights: f64 = ranges.iter().map(|range| range.weight).sum();
                ranges.iter().map(|range| range.weight * (range.min + range.max) as f64 / 2.0).sum::<f64>()
                    / weights
            }
            other => panic!("{other:?}"),
        }
    }
}
