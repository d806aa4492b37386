//! A page to look a node up. It loads nothing from elsewhere and asks this server alone.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const SCRIPT: &str = include_str!("page/page.js");

/// The page: the same for every server.
pub(super) const HTML: &str = concat!(
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
    "<meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n",
    "<title>graphsieve: a node</title>\n<style>\n",
    include_str!("page/page.css"),
    "</style>\n</head>\n<body>\n",
    include_str!("page/body.html"),
    "<script>",
    include_str!("page/page.js"),
    "</script>\n</body>\n</html>\n"
);

/// What a browser may do for the page: run its one script, show drawings, and ask this server.
pub(super) fn policy() -> String {
    let hash = STANDARD.encode(Sha256::digest(SCRIPT.as_bytes()));
    format!(
        "default-src 'none'; script-src 'sha256-{hash}'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}
