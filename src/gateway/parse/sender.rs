//! The one From mailbox (email C2, security S3): our own strict reading, which must agree with the mail
//! parser's; whatever two readers could understand differently is ambiguous.

use super::ParseFailure;
use crate::mail::{Address, is_invisible};

/// Takes the address out of a From value as a strict reader does. `parsed` is what the mail parser found.
pub(super) fn sender(value: &str, parsed: &[String]) -> Result<Address, ParseFailure> {
    let refused = |why: &str| ParseFailure::AmbiguousSender(why.to_owned());
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return Err(refused("control characters in From"));
    }
    let spec = addr_spec(value).map_err(refused)?;
    if spec.chars().any(is_invisible) || spec.contains("=?") {
        return Err(refused("hidden characters in the From address"));
    }
    let address: Address = spec.parse().map_err(|_| refused("no address in From"))?;
    match parsed {
        [one] if one.parse::<Address>().is_ok_and(|other| other == address) => Ok(address),
        [_] => Err(refused("a From that parsers read differently")),
        [] => Err(refused("no mailbox in From")),
        _ => Err(refused("more than one mailbox in From")),
    }
}

/// The addr-spec of a value with exactly one mailbox: `a@b`, `Name <a@b>`, `a@b (Name)`.
fn addr_spec(value: &str) -> Result<String, &'static str> {
    let mut plain = String::new();
    let mut angle: Option<String> = None;
    let mut chars = value.chars();
    let mut in_angle = false;
    while let Some(c) = chars.next() {
        let angle_seen = angle.is_some();
        let target = angle.as_mut().filter(|_| in_angle).unwrap_or(&mut plain);
        match c {
            '"' => quoted(&mut chars, target)?,
            '(' => comment(&mut chars)?,
            '<' if angle_seen => return Err("more than one angle address in From"),
            '<' => {
                in_angle = true;
                angle = Some(String::new());
            }
            '>' if in_angle => in_angle = false,
            '>' => return Err("unbalanced brackets in From"),
            ',' | ';' => return Err("more than one mailbox in From"),
            ':' if !in_angle => return Err("a group in From"),
            other => target.push(other),
        }
    }
    if in_angle {
        return Err("unbalanced brackets in From");
    }
    let plain = plain.trim();
    let Some(angle) = angle else {
        return if plain.is_empty() { Err("an empty From") } else { Ok(unquoted(plain)) };
    };
    let angle = unquoted(angle.trim());
    // An unquoted name with an address in it: some readers take the first address, some the last.
    let outside = plain.split_whitespace().filter(|word| word.contains('@') && !word.starts_with('"'));
    if outside.into_iter().any(|word| !word.eq_ignore_ascii_case(&angle)) {
        return Err("two addresses in From");
    }
    Ok(angle)
}

/// Copies a quoted string with its quotes.
fn quoted(chars: &mut std::str::Chars<'_>, target: &mut String) -> Result<(), &'static str> {
    target.push('"');
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                target.push('"');
                return Ok(());
            }
            '\\' => target.extend(chars.next()),
            // Inside a name this is only text; white space would split it into words.
            c if c.is_whitespace() => target.push('_'),
            other => target.push(other),
        }
    }
    Err("an open quote in From")
}

fn comment(chars: &mut std::str::Chars<'_>) -> Result<(), &'static str> {
    let mut depth = 1_u32;
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '(' => depth += 1,
            ')' if depth == 1 => return Ok(()),
            ')' => depth -= 1,
            _ => {}
        }
    }
    Err("an open comment in From")
}

/// `"john"@x` is `john@x`; a quoted local part that needs its quotes stays quoted.
fn unquoted(spec: &str) -> String {
    let inner = spec.strip_prefix('"').and_then(|rest| rest.split_once("\"@"));
    match inner {
        Some((local, domain)) if !local.is_empty() && local.chars().all(|c| c.is_ascii_alphanumeric() || "._+-".contains(c)) => {
            format!("{local}@{domain}")
        }
        _ => spec.to_owned(),
    }
}

/// Whether a display name carries an address that is not the sender's (email C3).
pub(super) fn names_another_address(name: &str, address: &Address) -> bool {
    name.split(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '(' | ')' | '"' | '\'' | ',' | ';' | '[' | ']'))
        .filter(|word| word.contains(['@', '\u{ff20}', '\u{fe6b}']))
        .any(|word| !word.eq_ignore_ascii_case(address.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn security_s3_one_mailbox_in_its_usual_forms() {
        for (value, wanted) in [
            ("alice@example.com", "alice@example.com"),
            ("Alice <alice@Example.COM>", "alice@example.com"),
            ("\"A, B\" <alice@example.com>", "alice@example.com"),
            ("alice@example.com (Alice (of) \\) wonderland)", "alice@example.com"),
            ("alice@example.com <alice@example.com>", "alice@example.com"),
            ("\"ceo@corp.example\" <alice@example.com>", "alice@example.com"),
            ("<\"alice\"@example.com>", "alice@example.com"),
            ("=?utf-8?q?ceo=40corp.example?= <alice@example.com>", "alice@example.com"),
        ] {
            assert_eq!(sender(value, &[wanted.to_owned()]).map(|a| a.to_string()), Ok(wanted.to_owned()), "{value}");
        }
    }

    #[test]
    fn security_s3_what_parsers_could_read_differently_is_ambiguous() {
        for value in [
            "",
            "Alice",
            "a@x.example, b@y.example",
            "Friends: a@x.example;",
            "undisclosed-recipients:;",
            "a@x.example <b@y.example>",
            "<a@x.example> <b@y.example>",
            "<a@x.example",
            "a@x.example>",
            "\"a@x.example <b@y.example>",
            "a@x.example (open",
            "<@relay.example,@other.example:b@y.example>",
            "<=?utf-8?q?a=40x.example?=>",
            "<a@x.example\u{0}>",
            "<a\u{202e}@x.example>",
            "<a@b@x.example>",
        ] {
            for parsed in [vec![], vec!["a@x.example".to_owned()], vec!["b@y.example".to_owned()]] {
                assert!(matches!(sender(value, &parsed), Err(ParseFailure::AmbiguousSender(_))), "{value} {parsed:?}");
            }
        }
        assert!(sender("<a@x.example>", &["b@y.example".to_owned()]).is_err());
        assert!(sender("<a@x.example>", &["a@x.example".to_owned(), "b@y.example".to_owned()]).is_err());
    }

    #[test]
    fn email_c3_a_name_with_another_address_is_noticed() {
        let address: Address = "evil@x.example".parse().unwrap();
        assert!(names_another_address("ceo@corp.example", &address));
        assert!(names_another_address("CEO (ceo@corp.example)", &address));
        assert!(!names_another_address("Evil evil@X.example", &address));
        assert!(!names_another_address("Alice", &address));
    }
}
