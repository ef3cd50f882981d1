//! The header fields of a letter as our own scanner sees them: in order, with raw unfolded values. What
//! decides about identity is counted here, never taken from a parser that silently picks one.

use sha2::{Digest, Sha256};

use super::{ParseCaps, ParseFailure, charset};

/// The header fields, topmost first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers {
    fields: Vec<(String, String)>,
    /// The method of a calendar part, upper case.
    pub calendar_method: Option<String>,
}

impl Headers {
    /// Reads the header block. Gives the fields, and where the body begins.
    ///
    /// # Errors
    /// A block that is too large, or that two parsers would read differently.
    pub fn scan(raw: &[u8], caps: &ParseCaps) -> Result<(Headers, usize), ParseFailure> {
        let mut block = Block::new(raw);
        let mut fields: Vec<(String, Vec<u8>)> = Vec::new();
        while let Some((line, kind)) = block.next_line() {
            if block.offset > caps.header_bytes {
                return Err(ParseFailure::Malformed(format!("more than {} KiB of headers", caps.header_bytes / 1024)));
            }
            if line.contains(&b'\r') {
                return Err(ParseFailure::Malformed("a bare carriage return in the headers".to_owned()));
            }
            match kind {
                Line::Field(name, value) => fields.push((name, value.to_vec())),
                Line::Folded => {
                    if let Some((_, value)) = fields.last_mut() {
                        value.push(b' ');
                        value.extend_from_slice(line.trim_ascii());
                    }
                }
                Line::Disguised(name) => return Err(ParseFailure::AmbiguousSender(format!("a field only some parsers read as {name}"))),
                Line::Ignored => {}
            }
            if fields.len() > caps.header_fields {
                return Err(ParseFailure::Malformed(format!("more than {} header fields", caps.header_fields)));
            }
        }
        let fields = fields.into_iter().map(|(name, value)| (name, charset::decode(value.trim_ascii(), None))).collect();
        Ok((Headers { fields, calendar_method: None }, block.offset))
    }

    /// All fields, topmost first: lower-case name, unfolded raw value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The values of every field of this name, topmost first. `name` is in lower case.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.iter().filter(move |(field, _)| *field == name).map(|(_, value)| value)
    }

    /// The topmost field of this name.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// How many servers took the letter on (email F8).
    pub fn hops(&self) -> usize {
        self.all("received").count()
    }

    /// The media type of the whole letter, lower case, and nothing else of the field.
    pub fn media_type(&self) -> String {
        let value = self.first("content-type").unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// A parameter of the letter's Content-Type, lower case.
    pub fn content_type_parameter(&self, name: &str) -> Option<String> {
        let value = self.first("content-type")?;
        value.split(';').skip(1).find_map(|part| {
            let (key, value) = part.split_once('=')?;
            key.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"').to_ascii_lowercase())
        })
    }
}

/// SHA-256, hexadecimal, of the letter without what its way to us wrote into it, and with one kind of line
/// end: the same letter fetched twice, or through two addresses, has one hash (email B9).
pub fn stable_hash(raw: &[u8]) -> String {
    let mut hash = Sha256::new();
    let mut block = Block::new(raw);
    let mut skipped = false;
    while let Some((line, kind)) = block.next_line() {
        match kind {
            Line::Field(name, _) => skipped = is_trace(&name),
            Line::Disguised(_) | Line::Ignored => skipped = false,
            Line::Folded => {}
        }
        if !skipped {
            hash.update(line);
            hash.update(b"\n");
        }
    }
    hash.update(b"\n");
    for line in raw.get(block.offset..).unwrap_or_default().split_inclusive(|&byte| byte == b'\n') {
        match line.strip_suffix(b"\r\n") {
            Some(text) => {
                hash.update(text);
                hash.update(b"\n");
            }
            None => hash.update(line),
        }
    }
    format!("{:x}", hash.finalize())
}

fn is_trace(name: &str) -> bool {
    const NAMES: [&str; 18] = [
        "received",
        "return-path",
        "delivered-to",
        "x-original-to",
        "envelope-to",
        "x-envelope-to",
        "x-delivered-to",
        "authentication-results",
        "received-spf",
        "x-received",
        "dkim-filter",
        "x-uid",
        "x-keywords",
        "status",
        "x-status",
        "x-mozilla-status",
        "x-mozilla-status2",
        "x-virus-scanned",
    ];
    const FAMILIES: [&str; 6] = ["arc-", "x-spam", "x-google-", "x-gm-", "x-ms-exchange-", "x-rspamd-"];
    NAMES.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
}

enum Line<'x> {
    Field(String, &'x [u8]),
    Folded,
    /// Looks like From to a parser that drops what cannot stand in a name.
    Disguised(&'static str),
    Ignored,
}

/// Walks the lines of a header block; ends at the empty line, or before the first line that can be no
/// header (email C18: a missing blank line).
struct Block<'x> {
    raw: &'x [u8],
    offset: usize,
    began: bool,
}

impl<'x> Block<'x> {
    fn new(raw: &'x [u8]) -> Self {
        Block { raw, offset: 0, began: false }
    }

    fn next_line(&mut self) -> Option<(&'x [u8], Line<'x>)> {
        loop {
            let rest = self.raw.get(self.offset..).filter(|rest| !rest.is_empty())?;
            let length = rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |at| at + 1);
            let line = rest.get(..length)?;
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                self.offset += length;
                // Blank lines before the first field are no end: some relays write one.
                if self.began {
                    return None;
                }
                continue;
            }
            if !self.began && line.starts_with(b"From ") {
                self.offset += length;
                continue;
            }
            let kind = kind_of(line, self.began)?;
            self.began = true;
            self.offset += length;
            return Some((line, kind));
        }
    }
}

/// None when the line can be no header line.
fn kind_of(line: &[u8], began: bool) -> Option<Line<'_>> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return began.then_some(Line::Folded);
    }
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, value) = line.split_at_checked(colon)?;
    let value = value.get(1..).unwrap_or_default();
    let name = name.trim_ascii_end();
    if !name.is_empty() && name.iter().all(u8::is_ascii_graphic) {
        return Some(Line::Field(String::from_utf8_lossy(name).to_ascii_lowercase(), value));
    }
    let kept: Vec<u8> = name.iter().filter(|byte| byte.is_ascii_graphic()).map(u8::to_ascii_lowercase).collect();
    match kept.as_slice() {
        b"from" => Some(Line::Disguised("From")),
        // A sentence with a colon in it is the body of a letter without a blank line.
        _ if name.contains(&b' ') && name.iter().all(|byte| *byte == b' ' || byte.is_ascii_graphic()) => None,
        _ => Some(Line::Ignored),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(raw: &str) -> (Vec<(String, String)>, usize) {
        let (headers, offset) = Headers::scan(raw.as_bytes(), &ParseCaps::default()).unwrap();
        (headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(), offset)
    }

    #[test]
    fn email_c18_odd_blocks_are_read() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(scan("From x@y Mon\nA : 1\n b\n\nbody"), (vec![pair("a", "1 b")], 23));
        assert_eq!(scan("\r\nA: 1\r\n\r\nbody").0, vec![pair("a", "1")]);
        assert_eq!(scan("A: 1\nHello there\nbye"), (vec![pair("a", "1")], 5));
        assert_eq!(scan("A: 1\nDear shop: hello\n"), (vec![pair("a", "1")], 5));
        assert_eq!(scan("A:\nB: Gr\u{fc}n").0, vec![pair("a", ""), pair("b", "Gr\u{fc}n")]);
    }

    #[test]
    fn email_c2_what_only_some_parsers_read_is_refused() {
        let refused = |raw: &[u8]| Headers::scan(raw, &ParseCaps::default()).unwrap_err();
        assert!(matches!(refused(b"Fr\0om: a@b.c\n\n"), ParseFailure::AmbiguousSender(_)));
        assert!(matches!(refused(b"A: 1\rFrom: a@b.c\n\n"), ParseFailure::Malformed(_)));
    }

    #[test]
    fn email_c1_caps_hold() {
        let caps = ParseCaps { header_fields: 3, header_bytes: 64, ..ParseCaps::default() };
        assert!(Headers::scan(b"A: 1\nB: 1\nC: 1\n\n", &caps).is_ok());
        assert!(Headers::scan(b"A: 1\nB: 1\nC: 1\nD: 1\n\n", &caps).is_err());
        assert!(Headers::scan(format!("A: {}\n\n", "x".repeat(80)).as_bytes(), &caps).is_err());
    }

    #[test]
    fn email_b9_the_way_of_a_letter_does_not_change_its_hash() {
        let one = stable_hash(b"Return-Path: <a@b.c>\r\nReceived: from x\r\n\tby y\r\nSubject: Hi\r\n\r\nText\r\n");
        let two = stable_hash(b"Delivered-To: z@b.c\nAuthentication-Results: mx; spf=pass\n dkim=pass\nSubject: Hi\n\nText\n");
        assert_eq!(one, two);
        assert_ne!(one, stable_hash(b"Subject: Hi\n folded\n\nText\n"));
        assert_ne!(one, stable_hash(b"Subject: Hi\n\nText!\n"));
        assert_eq!(one.len(), 64);
    }
}
