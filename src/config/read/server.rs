//! Addresses of servers and folders: `imaps://HOST`, `maildir:PATH`, `https://…`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use url::Url;

use super::Entry;
use crate::config::{Receive, Security, Send, ServerAddress};

const RECEIVE: &str = "write imaps://HOST (implicit TLS), imap://HOST (STARTTLS required) or maildir:PATH; a port may follow the host";
const SEND: &str = "write submissions://HOST (implicit TLS), submission://HOST (STARTTLS required), sendmail:PATH or maildir:PATH; a port may follow the host";

/// `receive`.
pub(super) fn receive(entry: &Entry<'_>, home: &Path, plaintext: bool) -> Option<Receive> {
    let text = entry.string()?;
    let found = if let Some(path) = text.strip_prefix("maildir:") {
        folder(path, home).map(Receive::Maildir)
    } else if let Some(rest) = text.strip_prefix("imaps://") {
        server(rest, 993, Security::Implicit).map(Receive::Imap)
    } else if let Some(rest) = text.strip_prefix("imap://") {
        server(rest, 143, starttls(plaintext)).map(Receive::Imap)
    } else {
        None
    };
    if found.is_none() {
        refuse(entry, text, RECEIVE);
    }
    found
}

/// `send`.
pub(super) fn send(entry: &Entry<'_>, home: &Path, plaintext: bool) -> Option<Send> {
    let text = entry.string()?;
    let found = if let Some(path) = text.strip_prefix("maildir:") {
        folder(path, home).map(Send::Maildir)
    } else if let Some(path) = text.strip_prefix("sendmail:") {
        folder(path, home).map(Send::Sendmail)
    } else if let Some(rest) = text.strip_prefix("submissions://") {
        server(rest, 465, Security::Implicit).map(Send::Smtp)
    } else if let Some(rest) = text.strip_prefix("submission://") {
        server(rest, 587, starttls(plaintext)).map(Send::Smtp)
    } else {
        None
    };
    if found.is_none() {
        refuse(entry, text, SEND);
    }
    found
}

/// An `https://` URL; `http://` only for a loopback host (security S32).
pub(super) fn web_address(entry: &Entry<'_>) -> Option<Url> {
    let right = "write https://HOST/PATH; http:// is only for a loopback host";
    let text = entry.string()?;
    let Ok(url) = Url::parse(text) else {
        refuse(entry, text, right);
        return None;
    };
    let holds = match url.scheme() {
        "https" => url.host_str().is_some_and(|host| !host.is_empty()),
        "http" => url.host_str().is_some_and(is_loopback),
        _ => false,
    };
    if !url.username().is_empty() || url.password().is_some() {
        entry.wrong("holds a user name or password", "write the secret under api_key or headers, by reference");
        return None;
    }
    if !holds {
        refuse(entry, text, right);
        return None;
    }
    Some(url)
}

/// `127.0.0.0/8`, `::1` and `localhost`.
pub(super) fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn starttls(plaintext: bool) -> Security {
    if plaintext { Security::Plaintext } else { Security::StartTls }
}

fn folder(path: &str, home: &Path) -> Option<PathBuf> {
    (!path.is_empty() && !path.contains('\0')).then(|| home.join(path))
}

fn server(text: &str, usual_port: u16, security: Security) -> Option<ServerAddress> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        (host, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some("")).filter(|port| rest.is_empty() || !port.is_empty())?)
    } else {
        match text.split_once(':') {
            Some((_, "")) => return None,
            Some((host, port)) => (host, port),
            None => (text, ""),
        }
    };
    let named = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    let holds = (1..=253).contains(&host.len()) && host.bytes().all(named) && !host.starts_with(['.', '-']) && !host.contains("..");
    let port = if port.is_empty() { usual_port } else { port.parse().ok().filter(|&port| port != 0)? };
    holds.then(|| ServerAddress { host: host.to_ascii_lowercase(), port, security })
}

/// A text with an `@` may hold a password: it is not repeated.
fn refuse(entry: &Entry<'_>, text: &str, right: &str) {
    if text.contains('@') {
        entry.wrong("holds a user name or password, or is no address of a server", right);
    } else {
        entry.wrong(format_args!("is {}", super::quoted(text)), right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_follow_the_host() {
        let parts = |text: &str| server(text, 993, Security::Implicit).map(|found| (found.host, found.port));
        assert_eq!(parts("imap.Shop.example"), Some(("imap.shop.example".into(), 993)));
        assert_eq!(parts("127.0.0.1:1143"), Some(("127.0.0.1".into(), 1143)));
        assert_eq!(parts("[::1]:1143"), Some(("::1".into(), 1143)));
        assert_eq!(parts("[::1]"), Some(("::1".into(), 993)));
        for text in
            ["", "host:", "host:0", "host:99999", "host:a", "user@host", "host/x", "ho st", "[::1", "[::1]x", "[::1]:", "::1", "a..b"]
        {
            assert_eq!(parts(text), None, "{text}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["10.0.0.1", "example.com", "localhost.example.com", "0.0.0.0", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
