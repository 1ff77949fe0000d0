//! Large pages, where the machine's operator allows them.

use std::fs;

use larder_engine::LargePages;

/// The wanted setting, but none if the machine is set to `never`: the kernel would make large pages for the engine all
/// the same (madvise(2), MADV_COLLAPSE).
pub fn allowed(wanted: LargePages) -> LargePages {
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if wanted == LargePages::Never || !is_never(&setting) {
        return wanted;
    }
    tracing::info!("no large pages: /sys/kernel/mm/transparent_hugepage/enabled says never");
    LargePages::Never
}

/// The active setting is in brackets (Linux, Documentation/admin-guide/mm/transhuge.rst).
fn is_never(setting: &str) -> bool {
    setting.contains("[never]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_in_force_counts() {
        assert!(is_never("always madvise [never]\n"));
        assert!(!is_never("always [madvise] never\n"));
        assert!(!is_never("[always] madvise never\n"));
        // A kernel without large pages.
        assert!(!is_never(""));
    }
}
