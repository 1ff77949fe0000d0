//! Versions: 45 bits of time in steps of 125 microseconds since 2025, then 8 bits of site.
//!
//! They are the CAS values of a store (`larder_store::commit::versions` gives them). Since the site is part of a
//! version, no two sites give a key the same one; of two versions of a key, the higher one wins everywhere.

/// Bits of the site in a version.
pub const SITE_BITS: u32 = 8;
/// The highest version.
pub const VERSION_MAX: u64 = (1 << 53) - 1;

/// 2025-01-01T00:00:00Z.
const EPOCH_MICROS: u64 = 1_735_689_600_000_000;
const STEP_MICROS: u64 = 125;

/// The version of a moment (Unix time), at a site.
pub const fn version_at(unix_micros: u64, site: u8) -> u64 {
    let version = (unix_micros.saturating_sub(EPOCH_MICROS) / STEP_MICROS) << SITE_BITS | site as u64;
    if version < VERSION_MAX { version } else { VERSION_MAX }
}

/// The Unix time of a version.
pub const fn unix_micros_of(version: u64) -> u64 {
    EPOCH_MICROS + (version >> SITE_BITS).saturating_mul(STEP_MICROS)
}

/// The Unix time of a version, in whole seconds.
pub const fn unix_secs_of(version: u64) -> u64 {
    unix_micros_of(version) / 1_000_000
}

/// The site that gave a version.
pub const fn site_of(version: u64) -> u8 {
    (version & ((1 << SITE_BITS) - 1)) as u8
}

/// The lowest version of a site that is above this one and belongs to a later moment.
pub const fn next_version(version: u64, site: u8) -> u64 {
    let next = ((version >> SITE_BITS) + 1) << SITE_BITS | site as u64;
    if next < VERSION_MAX { next } else { VERSION_MAX }
}

/// True if a site may have given this version.
pub const fn is_version(version: u64) -> bool {
    version <= VERSION_MAX && site_of(version) != 0
}

#[cfg(test)]
mod tests {
    use larder_store::commit;

    use super::*;

    struct Still;

    impl commit::Clock for Still {
        fn unix_micros(&self) -> u64 {
            EPOCH_MICROS
        }
    }

    #[test]
    fn they_are_those_of_the_store() {
        assert_eq!((SITE_BITS, VERSION_MAX), (commit::SITE_BITS, commit::VERSION_MAX));
        for micros in [0, EPOCH_MICROS, EPOCH_MICROS + 126, 1_800_000_000_000_000, u64::MAX] {
            assert_eq!(version_at(micros, 7), commit::version_at(micros, 7));
        }
        // A clock that stands still: each version follows the one that it replaces.
        let versions = commit::Versions::new(7, 0);
        for replaced in [version_at(EPOCH_MICROS, 7), version_at(EPOCH_MICROS + 126, 9)] {
            assert_eq!(versions.above(replaced, &Still), next_version(replaced, 7));
        }
    }

    #[test]
    fn a_version_tells_site_and_moment() {
        let moment = 1_800_000_000_000_000;
        let version = version_at(moment, 200);
        assert_eq!((site_of(version), unix_micros_of(version)), (200, moment));
        assert!(next_version(version, 1) > version);
        assert_eq!(unix_micros_of(next_version(version, 1)), moment + STEP_MICROS);
        assert!(!is_version(0) && !is_version(version_at(moment, 0)) && is_version(version));
    }
}
