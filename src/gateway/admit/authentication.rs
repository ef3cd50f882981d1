//! What the trusted receiver said about the From domain (DESIGN 2.5, email I, security S1): a grammar for
//! Authentication-Results (RFC 8601), so that text in comments, quotes and reasons never counts.

use crate::gateway::parse::Headers;
use crate::mail::Address;

/// The receiver's word on the From domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication {
    /// DMARC passed, or an aligned DKIM signature held.
    Pass,
    /// DMARC failed.
    Fail,
    /// DMARC failed under an explicit policy of none.
    FailNonePolicy,
    /// Nothing that counts.
    None,
}

/// The trusted id that stands for Microsoft 365, whose field has no id.
const MICROSOFT: &str = "microsoft365";

/// Judges the topmost unbroken block of fields by a trusted receiver. For each method only the topmost field
/// that reports it counts.
pub fn authentication(headers: &Headers, from: &Address, trusted: &[String]) -> Authentication {
    let block = trusted_block(headers, trusted);
    let of_method = |method: &str| {
        let field = block.iter().find(|field| field.results.iter().any(|result| result.method == method));
        field.map(|field| field.results.iter().filter(|result| result.method == method).collect::<Vec<_>>()).unwrap_or_default()
    };
    let dmarc = of_method("dmarc");
    if let Some(failed) = dmarc.iter().find(|result| result.result == "fail") {
        return if failed.has_none_policy() { Authentication::FailNonePolicy } else { Authentication::Fail };
    }
    let names_from = |result: &&&MethodResult| result.property("header.from").is_some_and(|domain| same_domain(domain, from.domain()));
    if dmarc.iter().filter(|result| result.result == "pass").any(|result| names_from(&result)) {
        return Authentication::Pass;
    }
    let signed = of_method("dkim").into_iter().filter(|result| result.result == "pass");
    if signed.into_iter().any(|result| result.signing_domain().is_some_and(|domain| is_aligned(&domain, from.domain()))) {
        return Authentication::Pass;
    }
    Authentication::None
}

fn trusted_block(headers: &Headers, trusted: &[String]) -> Vec<Field> {
    let mut block = Vec::new();
    // Below the first hop from outside of Microsoft's network a field without an id may be anybody's.
    let mut outside = false;
    for (name, value) in headers.iter() {
        if name != "authentication-results" {
            outside |= name == "received" && is_outside_microsoft(value);
            // What filters of the same server write between two fields does not break the block.
            if !block.is_empty() && !matches!(name, "dkim-filter" | "received-spf") {
                break;
            }
            continue;
        }
        match Field::parse(value) {
            Some(field) if field.is_trusted(trusted) && (field.id.is_some() || !outside) => block.push(field),
            _ if block.is_empty() => {}
            _ => break,
        }
    }
    block
}

/// Whether a hop's `from` names a host beyond Microsoft's own network.
fn is_outside_microsoft(value: &str) -> bool {
    let mut words = value.split_ascii_whitespace();
    let from = words.next().filter(|word| word.eq_ignore_ascii_case("from")).and_then(|_| words.next()).unwrap_or_default();
    let from = from.trim_end_matches(['.', ';']).to_ascii_lowercase();
    !["outlook.com", "office365.com", "exchangelabs.com", "outlook.de", "outlook.cn"].iter().any(|own| is_below(&from, own))
}

fn is_below(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|front| front.ends_with('.'))
}

fn same_domain(one: &str, other: &str) -> bool {
    one.trim_end_matches('.').eq_ignore_ascii_case(other.trim_end_matches('.'))
}

/// Relaxed alignment: the same organizational domain, taken as equal or one below the other. A public suffix
/// is nobody's organization.
fn is_aligned(signer: &str, from: &str) -> bool {
    let (signer, from) = (signer.trim_end_matches('.').to_ascii_lowercase(), from.trim_end_matches('.').to_ascii_lowercase());
    if signer == from {
        return signer.contains('.');
    }
    let shorter = if signer.len() < from.len() { &signer } else { &from };
    (is_below(&signer, &from) || is_below(&from, &signer)) && !is_public_suffix(shorter)
}

/// One label, or a country's second level for registrations.
fn is_public_suffix(domain: &str) -> bool {
    match domain.split_once('.') {
        None => true,
        Some((second, top)) => {
            top.len() == 2
                && matches!(second, "co" | "com" | "org" | "net" | "ac" | "gov" | "gob" | "edu" | "ne" | "or" | "go" | "gen" | "mil")
        }
    }
}

/// One Authentication-Results field.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    /// None where Microsoft 365 leaves it out.
    id: Option<String>,
    results: Vec<MethodResult>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct MethodResult {
    method: String,
    result: String,
    /// Comments right behind the result, lower case.
    comments: Vec<String>,
    /// `ptype.property` (or a bare name) in lower case, and its value.
    properties: Vec<(String, String)>,
}

impl MethodResult {
    fn property(&self, name: &str) -> Option<&str> {
        self.properties.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// `header.d`, else the domain of `header.i`.
    fn signing_domain(&self) -> Option<String> {
        match self.property("header.d") {
            Some(domain) => Some(domain.to_owned()),
            None => self.property("header.i").and_then(|identity| identity.rsplit_once('@')).map(|(_, domain)| domain.to_owned()),
        }
    }

    /// Whether the field says that the domain's policy is none, and that nothing stronger was done.
    fn has_none_policy(&self) -> bool {
        let words = || self.comments.iter().flat_map(|comment| comment.split([' ', '\t', ',', ';']));
        let stated = words().any(|word| word == "p=none");
        let stronger = words().any(|word| matches!(word, "dis=quarantine" | "dis=reject" | "p=quarantine" | "p=reject"));
        let property = self
            .properties
            .iter()
            .any(|(name, value)| (name.starts_with("policy.") || name == "action") && value.eq_ignore_ascii_case("none"));
        (stated || property) && !stronger
    }
}

impl Field {
    /// None when the field breaks the grammar: it then says nothing (fail closed).
    fn parse(value: &str) -> Option<Field> {
        let mut cursor = Cursor::new(value);
        cursor.skip_space(&mut Vec::new())?;
        let mut probe = cursor.clone();
        let first = probe.value()?;
        probe.skip_space(&mut Vec::new())?;
        let id = if probe.peek() == Some('=') { None } else { Some(first) };
        if id.is_some() {
            cursor = probe;
            cursor.version()?;
        }
        let mut results = Vec::new();
        let mut first_without_id = id.is_none();
        loop {
            cursor.skip_space(&mut Vec::new())?;
            if cursor.peek().is_none() {
                return Some(Field { id, results });
            }
            if !std::mem::take(&mut first_without_id) {
                cursor.take(';')?;
            }
            cursor.skip_space(&mut Vec::new())?;
            match cursor.peek() {
                None => return Some(Field { id, results }),
                Some(';') => {}
                Some(_) => results.extend(cursor.result()?),
            }
        }
    }

    fn is_trusted(&self, trusted: &[String]) -> bool {
        trusted.iter().any(|wanted| match (&self.id, wanted.strip_prefix("*.")) {
            (None, _) => wanted.eq_ignore_ascii_case(MICROSOFT),
            (Some(id), Some(domain)) => is_below(&id.to_ascii_lowercase(), &domain.to_ascii_lowercase()),
            (Some(id), None) => id.eq_ignore_ascii_case(wanted) && !wanted.eq_ignore_ascii_case(MICROSOFT),
        })
    }
}

/// Reads a field from left to right.
#[derive(Debug, Clone)]
struct Cursor<'x> {
    rest: std::str::Chars<'x>,
}

impl<'x> Cursor<'x> {
    fn new(value: &'x str) -> Self {
        Cursor { rest: value.chars() }
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn take(&mut self, wanted: char) -> Option<()> {
        (self.rest.next()? == wanted).then_some(())
    }

    /// Skips white space and comments; keeps the comments. None when one never ends.
    fn skip_space(&mut self, comments: &mut Vec<String>) -> Option<()> {
        while let Some(c) = self.peek() {
            if c.is_whitespace() {
                self.rest.next();
            } else if c == '(' {
                comments.push(self.comment()?);
            } else {
                break;
            }
        }
        Some(())
    }

    fn comment(&mut self) -> Option<String> {
        let mut depth = 0_u32;
        let mut text = String::new();
        loop {
            match self.rest.next()? {
                '\\' => text.extend(self.rest.next()),
                '(' => {
                    depth += 1;
                    text.push(' ');
                }
                ')' if depth == 1 => return Some(text.to_ascii_lowercase()),
                ')' => {
                    depth -= 1;
                    text.push(' ');
                }
                // Nested comments are the words of others: only the outer one speaks for the receiver.
                other if depth == 1 => text.push(other),
                _ => {}
            }
        }
    }

    /// A token, or a quoted string, or (`"a;b"@example.com`) both.
    fn value(&mut self) -> Option<String> {
        let mut text = String::new();
        while let Some(c) = self.peek() {
            match c {
                '"' => self.quoted(&mut text)?,
                c if c.is_whitespace() || matches!(c, ';' | '(' | ')' | '=') && !(c == '=' && !text.is_empty() && self.is_padding()) => {
                    break;
                }
                c => {
                    text.push(c);
                    self.rest.next();
                }
            }
        }
        (!text.is_empty()).then_some(text)
    }

    /// Whether only equals signs stand before the end of the word: base64 of `header.b`.
    fn is_padding(&self) -> bool {
        let after = self.rest.clone().find(|c| *c != '=');
        after.is_none_or(|c| c.is_whitespace() || matches!(c, ';' | '('))
    }

    fn quoted(&mut self, text: &mut String) -> Option<()> {
        self.take('"')?;
        loop {
            match self.rest.next()? {
                '"' => return Some(()),
                '\\' => text.push(self.rest.next()?),
                other => text.push(other),
            }
        }
    }

    /// A value behind `=`, which may hold further equals signs and may be empty.
    fn property_value(&mut self) -> Option<String> {
        let mut text = String::new();
        while let Some(c) = self.peek() {
            match c {
                '"' => self.quoted(&mut text)?,
                c if c.is_whitespace() || matches!(c, ';' | '(') => break,
                c => {
                    text.push(c);
                    self.rest.next();
                }
            }
        }
        Some(text)
    }

    /// The optional version behind the id.
    fn version(&mut self) -> Option<()> {
        self.skip_space(&mut Vec::new())?;
        if self.peek().is_some_and(|c| c.is_ascii_digit()) {
            let version = self.value()?;
            return (version.bytes().all(|byte| byte.is_ascii_digit())).then_some(());
        }
        Some(())
    }

    /// One `method=result` with its properties; `Some(None)` for the word `none`.
    fn result(&mut self) -> Option<Option<MethodResult>> {
        let mut comments = Vec::new();
        let name = self.value()?.to_ascii_lowercase();
        self.skip_space(&mut Vec::new())?;
        if self.peek() != Some('=') {
            return (name == "none").then_some(None);
        }
        self.take('=')?;
        self.skip_space(&mut Vec::new())?;
        let result = self.value()?.to_ascii_lowercase();
        let method = name.split('/').next().unwrap_or_default().to_owned();
        let mut properties = Vec::new();
        loop {
            self.skip_space(&mut comments)?;
            if self.peek().is_none_or(|c| c == ';') {
                return Some(Some(MethodResult { method, result, comments, properties }));
            }
            let name = self.value()?.to_ascii_lowercase();
            self.skip_space(&mut comments)?;
            // `ptype . property` may be spread by white space.
            self.take('=')?;
            self.skip_space(&mut comments)?;
            let value = self.property_value()?;
            properties.push((name, value));
        }
    }
}

#[cfg(test)]
#[path = "authentication_tests.rs"]
mod tests;
