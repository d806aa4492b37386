//! Who may ask: bearer tokens, and requests of foreign web pages.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};

use super::refusal::Refusal;
use crate::error::{Error, Result};

/// Characters of a token, at least.
const SHORTEST: usize = 16;
/// In any case of its letters.
const SCHEME: &[u8] = b"Bearer ";

/// Tokens of a file, one a line; empty lines and those that begin with `#` are none.
pub(super) struct Tokens {
    file: PathBuf,
    /// Comparing digests takes the same time whatever a guess has right, and its length is no hint.
    digests: RwLock<Vec<[u8; 32]>>,
}

impl Tokens {
    pub fn open(file: &Path) -> Result<Self> {
        Ok(Self { file: file.into(), digests: RwLock::new(read(file)?) })
    }

    /// Reads the tokens that the file has now; what is returned takes them.
    pub fn reread(&self) -> Result<impl FnOnce()> {
        let digests = read(&self.file)?;
        Ok(move || *self.digests.write().unwrap_or_else(PoisonError::into_inner) = digests)
    }

    /// Refuses a request that has none of the tokens as `Authorization: Bearer TOKEN`.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let given = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        let given = given.and_then(|value| value.split_at_checked(SCHEME.len()));
        let Some((_, token)) = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME)) else {
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, "no_token", "this server wants a token")
                .help("send the header Authorization: Bearer TOKEN"));
        };
        let digest = Sha256::digest(token);
        let digests = self.digests.read().unwrap_or_else(PoisonError::into_inner);
        let same = |known: &[u8; 32]| known.iter().zip(digest.iter()).fold(0, |faults, (a, b)| faults | (a ^ b)) == 0;
        // All of them, so that the place of a token in the file takes no time either.
        if digests.iter().fold(false, |found, known| found | same(known)) {
            return Ok(());
        }
        Err(Refusal::new(StatusCode::UNAUTHORIZED, "wrong_token", "this is no token of this server"))
    }
}

fn read(file: &Path) -> Result<Vec<[u8; 32]>> {
    let text = fs::read_to_string(file).map_err(|refused| Error::io(file, "read", refused))?;
    let lines = text.lines().enumerate().map(|(at, line)| (at, line.trim()));
    let mut digests = Vec::new();
    for (at, token) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        if token.len() < SHORTEST || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::format(
                file,
                format!("line {}", at + 1),
                format!("a token of at least {SHORTEST} visible ASCII characters"),
                "another text",
                "make one with: openssl rand -hex 32",
            ));
        }
        digests.push(Sha256::digest(token).into());
    }
    if digests.is_empty() {
        let help = "make one with: openssl rand -hex 32";
        return Err(Error::format(file, "the file", "a token on a line of its own", "none", help));
    }
    Ok(digests)
}

/// Refuses what a web page of another origin sends through a browser. Without tokens such a page must not reach the
/// server by a name of its own either (DNS rebinding), so that then only addresses and `localhost` are hosts.
pub(super) fn check_origin(headers: &HeaderMap, names_are_hosts: bool) -> Result<(), Refusal> {
    let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    let forbidden = |message: &str| Err(Refusal::new(StatusCode::FORBIDDEN, "origin", message));
    if let Some(origin) = text(header::ORIGIN)
        && origin.split_once("://").is_none_or(|(_, of)| !of.eq_ignore_ascii_case(host))
    {
        return forbidden("a web page of another origin may not use this server");
    }
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(address, _)| address);
    let name = bracketed.unwrap_or_else(|| host.rsplit_once(':').map_or(host, |(name, _)| name));
    let is_local = name.is_empty() || name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok();
    if names_are_hosts || is_local {
        return Ok(());
    }
    forbidden("without tokens this server is reached as localhost or by an address alone")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), header::HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_token_of_the_file_is_let_in_until_the_file_says_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        fs::write(&file, "# of the till\n0123456789abcdef\n\nfedcba9876543210\n").unwrap();
        let tokens = Tokens::open(&file).unwrap();
        let ask = |value| tokens.check(&headers(&[(header::AUTHORIZATION, value)])).err().map(|refusal| refusal.code);
        assert_eq!([ask("Bearer 0123456789abcdef"), ask("Bearer fedcba9876543210")], [None, None]);
        for wrong in ["Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Bearer # of the till", "Bearer "] {
            assert_eq!(ask(wrong), Some("wrong_token"));
        }
        assert_eq!(ask("Basic 0123456789abcdef"), Some("no_token"));
        fs::write(&file, "short\n").unwrap();
        let refused = tokens.reread().err().unwrap().to_string();
        assert!(refused.contains("line 1") && !refused.contains("short"), "{refused}");
        assert_eq!(ask("Bearer 0123456789abcdef"), None, "the old ones stay");
        fs::write(&file, "abcdefghijklmnop\n").unwrap();
        let take = tokens.reread().unwrap();
        assert_eq!(ask("bearer 0123456789abcdef"), None, "a scheme has any case, and nothing is taken yet");
        take();
        assert_eq!(ask("Bearer 0123456789abcdef"), Some("wrong_token"));
    }

    #[test]
    fn pages_of_other_origins_are_kept_out() {
        let check = |names, pairs: &[_]| check_origin(&headers(pairs), names).is_ok();
        for host in ["localhost:8080", "127.0.0.1", "[::1]:8080"] {
            assert!(check(false, &[(header::HOST, host)]), "{host}");
        }
        let own = [(header::HOST, "localhost:8080"), (header::ORIGIN, "http://localhost:8080")];
        assert!(check(false, &own));
        let foreign = [(header::HOST, "localhost:8080"), (header::ORIGIN, "http://evil.example")];
        let opaque = [(header::HOST, "localhost:8080"), (header::ORIGIN, "null")];
        assert!(!check(true, &foreign) && !check(true, &opaque));
        let rebound = [(header::HOST, "evil.example:8080"), (header::ORIGIN, "http://evil.example:8080")];
        assert!(!check(false, &rebound) && check(true, &rebound));
    }
}
