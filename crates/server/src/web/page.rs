//! The files of the live page, in the binary.

/// The file at a path: its type and its content.
pub(super) fn file(path: &str) -> Option<(&'static str, &'static str)> {
    FILES.iter().find(|(name, ..)| *name == path).map(|(_, content_type, content)| (*content_type, *content))
}

const FILES: [(&str, &str, &str); 12] = [
    ("/", "text/html; charset=utf-8", include_str!("../../assets/page.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("../../assets/page.css")),
    ("/page.js", SCRIPT, include_str!("../../assets/page.js")),
    ("/chart.js", SCRIPT, include_str!("../../assets/chart.js")),
    ("/charts.js", SCRIPT, include_str!("../../assets/charts.js")),
    ("/peers.js", SCRIPT, include_str!("../../assets/peers.js")),
    ("/scale.js", SCRIPT, include_str!("../../assets/scale.js")),
    ("/format.js", SCRIPT, include_str!("../../assets/format.js")),
    ("/memory.js", SCRIPT, include_str!("../../assets/memory.js")),
    ("/sites.js", SCRIPT, include_str!("../../assets/sites.js")),
    ("/store.js", SCRIPT, include_str!("../../assets/store.js")),
    ("/icon.svg", "image/svg+xml", include_str!("../../assets/icon.svg")),
];

const SCRIPT: &str = "text/javascript; charset=utf-8";
