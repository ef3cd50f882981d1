//! Bytes of a letter to typed values (email C). Never panics; every cap is checked before any code that
//! recurses. The only place that knows the mail parser.

mod body;
mod charset;
mod headers;
mod html;
mod sender;

use std::panic::{AssertUnwindSafe, catch_unwind};

use chrono::{DateTime, Utc};
use mail_parser::{Message, MessageParser, MessagePart, MimeHeaders, PartType};

pub use headers::{Headers, stable_hash};

use crate::mail::{Address, Inbound, MessageId, NamedAddress, clean_line};
use body::Leaf;

/// The most addresses that are read of one field.
const ADDRESSES: usize = 1000;
/// The most characters of a subject or a display name.
const LINE_CHARS: usize = 1000;

/// A letter that could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// What it says.
    pub inbound: Inbound,
    /// Its header fields, for the border's rules.
    pub headers: Headers,
}

/// Why a letter could not be read; it is quarantined with this reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseFailure {
    /// More bytes than `letter_bytes`.
    #[error("too large")]
    TooLarge,
    /// Its structure is beyond a cap, or broken.
    #[error("malformed: {0}")]
    Malformed(String),
    /// Not exactly one From mailbox, or parsers could disagree (email C2).
    #[error("ambiguous sender: {0}")]
    AmbiguousSender(String),
}

/// Bounds on what is parsed (email C1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseCaps {
    /// Bytes of the letter.
    pub letter_bytes: usize,
    /// Bytes of its headers.
    pub header_bytes: usize,
    /// Header fields.
    pub header_fields: usize,
    /// Parts; those of attached letters do not count, since they stay closed.
    pub parts: usize,
    /// Nesting.
    pub depth: usize,
    /// Ids of References.
    pub references: usize,
}

impl Default for ParseCaps {
    fn default() -> Self {
        ParseCaps { letter_bytes: 25 * 1024 * 1024, header_bytes: 256 * 1024, header_fields: 1000, parts: 200, depth: 20, references: 100 }
    }
}

impl ParseCaps {
    /// The caps with the operator's `letter_bytes`.
    pub fn with_letter_bytes(letter_bytes: u64) -> ParseCaps {
        ParseCaps { letter_bytes: usize::try_from(letter_bytes).unwrap_or(usize::MAX), ..ParseCaps::default() }
    }
}

/// Reads a letter. Takes up to seconds for the largest: call it on a blocking thread.
///
/// # Errors
/// The reason for its quarantine.
pub fn parse(raw: &[u8], caps: &ParseCaps) -> Result<Parsed, ParseFailure> {
    catch_unwind(AssertUnwindSafe(|| read(raw, caps))).unwrap_or_else(|_| Err(ParseFailure::Malformed("the parser failed".to_owned())))
}

fn read(raw: &[u8], caps: &ParseCaps) -> Result<Parsed, ParseFailure> {
    if raw.len() > caps.letter_bytes {
        return Err(ParseFailure::TooLarge);
    }
    let (mut headers, body_offset) = Headers::scan(raw, caps)?;
    let from = from(&headers)?;
    refuse_bombs(raw, caps)?;
    let leaves = leaves(raw, body_offset, &headers, caps)?;
    let mut body = body::read(&leaves);
    drop(leaves);
    headers.calendar_method = body.calendar_method.take();
    let ids = |name: &str| headers.all(name).flat_map(message_ids).collect::<Vec<_>>();
    let mut references = ids("references");
    // The newest ids say most; the first one is the thread's beginning.
    if references.len() > caps.references {
        references.drain(1..=references.len() - caps.references);
    }
    let mut in_reply_to = ids("in-reply-to");
    in_reply_to.truncate(caps.references);
    if from.name.as_deref().is_some_and(|name| sender::names_another_address(name, &from.address)) {
        body.remarks.push("the sender's name looks like another address".to_owned());
    }
    let message_id = ids("message-id").into_iter().next().unwrap_or_else(|| MessageId::synthetic(&stable_hash(raw)));
    let inbound = Inbound {
        message_id,
        in_reply_to,
        references,
        reply_to: addresses(&headers, "reply-to"),
        to: addresses(&headers, "to"),
        cc: addresses(&headers, "cc"),
        delivered_to: delivered_to(&headers),
        subject: shortened(&unstructured(headers.first("subject").unwrap_or_default())),
        text: body.text,
        remarks: body.remarks,
        attachments: body.attachments,
        date: headers.first("date").and_then(date),
        from,
    };
    Ok(Parsed { inbound, headers })
}

/// Exactly one From field with exactly one mailbox (email C2).
fn from(headers: &Headers) -> Result<NamedAddress, ParseFailure> {
    let mut fields = headers.all("from");
    let (Some(value), None) = (fields.next(), fields.next()) else {
        let count = headers.all("from").count();
        return Err(ParseFailure::AmbiguousSender(format!("{count} From fields")));
    };
    let mailboxes = mailboxes("From", value);
    let parsed: Vec<String> = mailboxes.iter().map(|(_, address)| address.clone()).collect();
    let address = sender::sender(value, &parsed)?;
    let name = mailboxes.into_iter().next().and_then(|(name, _)| name).map(|name| shortened(&name)).filter(|name| !name.is_empty());
    Ok(NamedAddress { name, address })
}

/// Display names and addresses of an address field, as the mail parser reads it.
fn mailboxes(name: &str, value: &str) -> Vec<(Option<String>, String)> {
    let field = format!("{name}: {value}\r\n\r\n");
    let Some(message) = MessageParser::default().parse_headers(field.as_bytes()) else { return Vec::new() };
    let addresses = message.header(name).and_then(|value| value.as_address());
    let Some(addresses) = addresses else { return Vec::new() };
    addresses.iter().take(ADDRESSES).filter_map(|one| Some((one.name().map(str::to_owned), one.address()?.trim().to_owned()))).collect()
}

fn addresses(headers: &Headers, name: &str) -> Vec<Address> {
    let all = headers.all(name).flat_map(|value| mailboxes("To", value)).filter_map(|(_, address)| address.parse().ok());
    all.take(ADDRESSES).collect()
}

/// The envelope recipients that our own server wrote down.
fn delivered_to(headers: &Headers) -> Vec<Address> {
    let mut all: Vec<Address> = Vec::new();
    for (name, value) in headers.iter() {
        if !matches!(name, "delivered-to" | "x-original-to" | "envelope-to" | "x-envelope-to" | "x-delivered-to") {
            continue;
        }
        for part in value.split(',').take(ADDRESSES) {
            if let Ok(address) = part.trim().trim_start_matches('<').trim_end_matches('>').parse::<Address>()
                && all.len() < ADDRESSES
                && !all.contains(&address)
            {
                all.push(address);
            }
        }
    }
    all
}

/// A text field with its encoded words decoded.
fn unstructured(value: &str) -> String {
    let field = format!("Subject: {value}\r\n\r\n");
    let message = MessageParser::default().parse_headers(field.as_bytes());
    message.as_ref().and_then(Message::subject).unwrap_or_default().to_owned()
}

fn shortened(text: &str) -> String {
    clean_line(text).chars().take(LINE_CHARS).collect()
}

fn date(value: &str) -> Option<DateTime<Utc>> {
    let field = format!("Date: {value}\r\n\r\n");
    let message = MessageParser::default().parse_headers(field.as_bytes())?;
    let date = message.date().filter(|date| date.is_valid())?;
    DateTime::from_timestamp(date.to_timestamp(), 0)
}

/// Ids in angle brackets; without any, words with an `@` (email E8). Comments are skipped.
fn message_ids(value: &str) -> Vec<MessageId> {
    let mut bracketed = Vec::new();
    let mut rest = value;
    while let Some((_, after)) = rest.split_once('<') {
        let (id, behind) = after.split_once('>').unwrap_or((after, ""));
        bracketed.extend(MessageId::parse(id));
        rest = behind;
    }
    if bracketed.is_empty() {
        let words = value.split([' ', '\t', ',', ';']).filter(|word| word.contains('@') && !word.starts_with('('));
        bracketed.extend(words.filter_map(MessageId::parse));
    }
    bracketed
}

/// Refuses structures that could exhaust a recursive parser (email C1): each level of nesting costs one
/// Content-Type line that is no plain media type.
fn refuse_bombs(raw: &[u8], caps: &ParseCaps) -> Result<(), ParseFailure> {
    const FLAT: [&[u8]; 7] = [b"text/", b"image/", b"application/", b"audio/", b"video/", b"font/", b"model/"];
    let mut nesting = 0_usize;
    for line in raw.split(|&byte| byte == b'\n' || byte == b'\r') {
        let Some(name) = line.get(..12).filter(|name| name.eq_ignore_ascii_case(b"content-type")) else { continue };
        let value = line.get(name.len()..).unwrap_or_default().trim_ascii_start();
        let Some(value) = value.strip_prefix(b":") else { continue };
        let value = value.trim_ascii_start();
        let is_flat = FLAT.iter().any(|kind| value.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)));
        nesting += usize::from(!is_flat);
    }
    if nesting > caps.parts { Err(ParseFailure::Malformed(format!("more than {} nested parts", caps.parts))) } else { Ok(()) }
}

/// The leaves of the letter in order.
fn leaves(raw: &[u8], body_offset: usize, headers: &Headers, caps: &ParseCaps) -> Result<Vec<Leaf>, ParseFailure> {
    // The parser sees the block as we counted it, even when a blank line was missing.
    let mut framed = Vec::with_capacity(raw.len() + 256);
    for (name, value) in headers.iter().filter(|(name, _)| name.starts_with("content-") || *name == "mime-version") {
        framed.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    framed.extend_from_slice(b"MIME-Version: 1.0\r\n\r\n");
    framed.extend_from_slice(raw.get(body_offset..).unwrap_or_default());
    let closed = with_closed_letters(&framed);
    let Some(message) = MessageParser::default().parse(closed.as_slice()) else {
        return Err(ParseFailure::Malformed("no structure".to_owned()));
    };
    refuse_size(&message, caps)?;
    let around = alternatives(&message);
    let mut leaves = Vec::new();
    for (id, part) in message.parts.iter().enumerate() {
        if !matches!(part.body, PartType::Multipart(_)) {
            let mut leaf = leaf(&framed, part);
            leaf.alternative = around.get(id).copied().flatten();
            leaves.push(leaf);
        }
    }
    Ok(leaves)
}

/// The bytes with every attached letter's media type misspelt, each at its old place: the parser opens
/// attached letters by recursion, even encoded ones whose depth cannot be seen from outside, and a deep
/// one would end the process (email C1). We name them and do not open them.
fn with_closed_letters(framed: &[u8]) -> Vec<u8> {
    let mut closed = framed.to_vec();
    let mut at = 0;
    while let Some(rest) = closed.get_mut(at..) {
        let Some(colon) = rest.iter().position(|&byte| byte == b':') else { break };
        let (before, value) = rest.split_at_mut(colon + 1);
        let name = before.strip_suffix(b":").unwrap_or_default().trim_ascii_end();
        let is_type =
            name.len().checked_sub(12).and_then(|start| name.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(b"content-type"));
        at += colon + 1;
        if !is_type {
            continue;
        }
        let length = value_length(value);
        at += length;
        let value = value.get_mut(..length).unwrap_or_default();
        let plain_end = value.iter().position(|&byte| matches!(byte, b';' | b'(' | b'"')).unwrap_or(value.len());
        let end = if value.get(plain_end) == Some(&b';') { plain_end } else { value.len() };
        misspell(value.get_mut(..end).unwrap_or_default());
    }
    closed
}

/// Up to the line feed that no continuation follows.
fn value_length(value: &[u8]) -> usize {
    let mut lines = value.split_inclusive(|&byte| byte == b'\n').peekable();
    let mut length = 0;
    while let Some(line) = lines.next() {
        length += line.len();
        if lines.peek().is_none_or(|next| !matches!(next.first(), Some(b' ' | b'\t'))) {
            break;
        }
    }
    length
}

fn misspell(value: &mut [u8]) {
    let starts: Vec<usize> = value
        .windows(6)
        .enumerate()
        .filter(|(_, word)| [b"rfc822", b"global", b"digest"].iter().any(|closed| word.eq_ignore_ascii_case(*closed)))
        .map(|(start, _)| start)
        .collect();
    for start in starts {
        if let Some(byte) = value.get_mut(start) {
            *byte = b'x';
        }
    }
}

/// Undoes `misspell`.
fn spelt(subtype: &str) -> &str {
    match subtype {
        "xfc822" => "rfc822",
        "xlobal" => "global",
        "xigest" => "digest",
        other => other,
    }
}

fn refuse_size(message: &Message<'_>, caps: &ParseCaps) -> Result<(), ParseFailure> {
    if message.parts.len() > caps.parts {
        return Err(ParseFailure::Malformed(format!("more than {} parts", caps.parts)));
    }
    let mut depths = vec![0_usize; message.parts.len()];
    for (id, part) in message.parts.iter().enumerate() {
        let depth = depths.get(id).copied().unwrap_or_default();
        if depth > caps.depth || matches!(part.body, PartType::Message(_)) {
            return Err(ParseFailure::Malformed(format!("parts nested deeper than {}", caps.depth)));
        }
        // Children always stand behind their parent.
        let PartType::Multipart(children) = &part.body else { continue };
        for child in children {
            if let Some(slot) = usize::try_from(*child).ok().and_then(|child| depths.get_mut(child)) {
                *slot = depth + 1;
            }
        }
    }
    Ok(())
}

/// For each part the nearest multipart/alternative around it.
fn alternatives(message: &Message<'_>) -> Vec<Option<usize>> {
    let mut around: Vec<Option<usize>> = vec![None; message.parts.len()];
    for (id, part) in message.parts.iter().enumerate() {
        let PartType::Multipart(children) = &part.body else { continue };
        let inherited = around.get(id).copied().flatten();
        let is_alternative = media_type(part).is_some_and(|kind| kind == "multipart/alternative");
        for child in children {
            if let Some(slot) = usize::try_from(*child).ok().and_then(|child| around.get_mut(child)) {
                *slot = if is_alternative { Some(id) } else { inherited };
            }
        }
    }
    around
}

fn media_type(part: &MessagePart<'_>) -> Option<String> {
    let declared = part.content_type()?;
    Some(format!("{}/{}", declared.ctype(), spelt(&declared.subtype().unwrap_or("plain").to_ascii_lowercase())).to_ascii_lowercase())
}

fn leaf(raw: &[u8], part: &MessagePart<'_>) -> Leaf {
    let range = usize::try_from(part.offset_body).unwrap_or(usize::MAX)..usize::try_from(part.offset_end).unwrap_or(usize::MAX);
    let bytes = raw.get(range).unwrap_or_default();
    let encoding = part.content_transfer_encoding().map(|encoding| encoding.trim().to_ascii_lowercase()).unwrap_or_default();
    Leaf {
        media_type: media_type(part).unwrap_or_else(|| "text/plain".to_owned()),
        charset: part.content_type().and_then(|kind| kind.attribute("charset")).map(str::to_owned),
        name: part.attachment_name().map(|name| if name.contains("=?") { unstructured(name) } else { name.to_owned() }),
        attached: part.content_disposition().is_some_and(|disposition| disposition.ctype().eq_ignore_ascii_case("attachment")),
        shown_inline: part.content_id().is_some(),
        alternative: None,
        bytes: match encoding.as_str() {
            "base64" if !(part.is_encoding_problem && is_prose(bytes)) => charset::from_base64(bytes),
            "quoted-printable" => charset::from_quoted_printable(bytes),
            _ => bytes.to_vec(),
        },
    }
}

/// Text that was only declared to be base64.
fn is_prose(bytes: &[u8]) -> bool {
    let foreign = bytes.iter().filter(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'+' | b'/' | b'=' | b'\r' | b'\n')).count();
    foreign * 20 > bytes.len()
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
