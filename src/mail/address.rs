//! An address of a mailbox (RFC 5321 `Mailbox`), and one with its display name (RFC 5322).

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One address, `local@domain`, as it was written save that the domain is lower-cased.
///
/// Two addresses are equal when they differ only in ASCII case: a customer who writes `Alice@` is the
/// known `alice@` (email C2). What is sent keeps the local part as it was written.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address(String);

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not an address: write local@domain")]
pub struct AddressError(pub String);

impl Address {
    /// The whole address, `local@domain`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the last `@`.
    pub fn local(&self) -> &str {
        self.0.rsplit_once('@').map_or("", |(local, _)| local)
    }

    /// The part after the last `@`, in lower case.
    pub fn domain(&self) -> &str {
        self.0.rsplit_once('@').map_or("", |(_, domain)| domain)
    }

    /// The address without its plus tag: `agent+x@example.com` gives `agent@example.com`. A quoted local part
    /// has none.
    pub fn without_tag(&self) -> Address {
        match self.local().split_once('+') {
            Some((base, _)) if !base.is_empty() && !base.starts_with('"') => Address(format!("{base}@{}", self.domain())),
            _ => self.clone(),
        }
    }

    /// The address as it may stand in a log (email K1): `l***@domain`.
    pub fn masked(&self) -> String {
        let first: String = self.local().chars().take(1).collect();
        format!("{first}***@{}", self.domain())
    }

    fn key(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.bytes().map(|byte| byte.to_ascii_lowercase())
    }
}

/// Whether a letter beyond ASCII turns into ASCII in lower case, as the Kelvin sign does: such a domain would
/// become another one.
fn becomes_ascii(c: char) -> bool {
    !c.is_ascii() && c.to_lowercase().any(|lower| lower.is_ascii())
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || AddressError(text.chars().take(200).collect());
        let (local, domain) = text.rsplit_once('@').ok_or_else(refused)?;
        let forbidden = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '<' | '>' | ',' | ';' | '(' | ')');
        let inner = local.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let local_holds = !local.is_empty()
            && local.len() <= 64
            && match inner {
                // A quote inside would end it there for some readers, and another address would begin.
                Some(inner) => !inner.contains(char::is_control) && !inner.contains(['"', '\\']),
                None => !local.contains(forbidden) && !local.contains(['@', '"', '\\']),
            };
        let domain_holds = !domain.is_empty()
            && domain.len() <= 253
            && !domain.contains(forbidden)
            && !domain.contains(['"', '\\', '@'])
            && !domain.starts_with('.')
            && !domain.ends_with('.')
            && !domain.contains("..")
            && !domain.contains(becomes_ascii);
        if local_holds && domain_holds { Ok(Address(format!("{local}@{}", domain.to_lowercase()))) } else { Err(refused()) }
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.0
    }
}

impl PartialEq for Address {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for Address {}

impl Hash for Address {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_ascii_lowercase().hash(state);
    }
}

impl PartialOrd for Address {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Address {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}>", self.0)
    }
}

/// An address with the display name that stood beside it. The name is never identity (email C3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedAddress {
    /// The display name, decoded and free of control characters; none when absent or empty.
    pub name: Option<String>,
    /// The address.
    pub address: Address,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_is_no_difference_and_the_tag_comes_off() {
        let address: Address = "Alice+Cakes@Example.COM".parse().unwrap();
        assert_eq!(address.as_str(), "Alice+Cakes@example.com");
        assert_eq!(address, "alice+cakes@example.com".parse().unwrap());
        assert_eq!(address.without_tag().as_str(), "Alice@example.com");
        assert_eq!(address.masked(), "A***@example.com");
        let quoted: Address = "\"a+b c\"@example.com".parse().unwrap();
        assert_eq!(quoted.without_tag(), quoted);
    }

    #[test]
    fn security_s3_a_letter_that_only_looks_like_ascii_does_not_become_ascii() {
        for text in ["a@ban\u{212a}.example", "a@\u{130}.example"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        assert_eq!("a@B\u{dc}CHER.example".parse::<Address>().unwrap().domain(), "b\u{fc}cher.example");
    }

    #[test]
    fn security_s3_a_quoted_local_part_is_one_quoted_string() {
        assert!("\"john smith\"@example.com".parse::<Address>().is_ok());
        for text in ["\"x y\"@victim.example\"z\"@evil.example", "\"x\\\"@evil.example", "\"x\"y\"@evil.example", "\"@evil.example"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "a", "@b", "a@", "a b@c", "a@b\r\nRCPT", "<a@b>", "a@b@c", "a@b..c", "a,b@c"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
