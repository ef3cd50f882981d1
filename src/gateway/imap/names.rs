//! How folders and sets of UIDs are written in commands.

use std::fmt::Write;

use base64::Engine;
use base64::alphabet::IMAP_MUTF7;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::NO_PAD;

/// A folder's name as a command's argument: modified UTF-7 (RFC 3501 section 5.1.3), quoted (email A18).
pub fn folder_argument(name: &str) -> String {
    quoted(&modified_utf7(name))
}

/// A text as a quoted string. Line breaks, which no quoted string can hold, are dropped.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars().filter(|c| !matches!(c, '\r' | '\n' | '\0')) {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

fn modified_utf7(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut shifted: Vec<u8> = Vec::new();
    for c in name.chars() {
        if matches!(c, ' '..='~') {
            flush(&mut out, &mut shifted);
            out.push(c);
            if c == '&' {
                out.push('-');
            }
        } else {
            let mut units = [0; 2];
            shifted.extend(c.encode_utf16(&mut units).iter().flat_map(|unit| unit.to_be_bytes()));
        }
    }
    flush(&mut out, &mut shifted);
    out
}

fn flush(out: &mut String, shifted: &mut Vec<u8>) {
    if !shifted.is_empty() {
        out.push('&');
        out.push_str(&GeneralPurpose::new(&IMAP_MUTF7, NO_PAD).encode(&shifted));
        out.push('-');
        shifted.clear();
    }
}

/// Ascending UIDs as a sequence set of exactly these: `1:3,7`.
pub fn uid_set(uids: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for uid in uids {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(uid) => *last = uid,
            _ => runs.push((uid, uid)),
        }
    }
    let mut out = String::new();
    for (first, last) in runs {
        let comma = if out.is_empty() { "" } else { "," };
        let written = if first == last { write!(out, "{comma}{first}") } else { write!(out, "{comma}{first}:{last}") };
        // Writing into a String cannot fail.
        debug_assert!(written.is_ok());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn email_a18_folder_names_are_quoted_modified_utf7() {
        for (name, written) in [
            ("INBOX", r#""INBOX""#),
            ("Sent Items", r#""Sent Items""#),
            (r#"a"b\c"#, r#""a\"b\\c""#),
            ("Q&A", r#""Q&-A""#),
            ("Gesendet/Köln", r#""Gesendet/K&APY-ln""#),
            ("台北", r#""&U,BTFw-""#),
            ("😀", r#""&2D3eAA-""#),
            ("a\r\nb", r#""a&AA0ACg-b""#),
        ] {
            assert_eq!(folder_argument(name), written);
        }
    }

    #[test]
    fn a_set_holds_exactly_its_uids() {
        assert_eq!(uid_set([1, 2, 3, 7, 9, 10]), "1:3,7,9:10");
        assert_eq!(uid_set([u32::MAX]), "4294967295");
        assert_eq!(uid_set([]), "");
    }
}
