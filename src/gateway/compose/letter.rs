//! From a draft to the final bytes, once (email G2-G5, F9, G15, G17). The result is read back by another
//! parser before it may leave: what was meant is what stands there (security S25).

use std::collections::BTreeSet;
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox, Message, MultiPart, SinglePart};

use super::markdown;
use super::read_back;
use crate::mail::{Address, Draft, MessageId, OutgoingKind};
use crate::run::OutboxError;

/// The longest text that is mailed (email G18).
const TEXT_BYTES: usize = 100 * 1024;

/// The longest subject, in characters (email G3).
const SUBJECT_CHARACTERS: usize = 255;

/// The longest From name, in characters.
const NAME_CHARACTERS: usize = 100;

/// Stands where a text was cut.
const CUT: &str = "\n\n[The rest was left out: the letter would have been too long.]";

/// Which automatic answers the other side should not give. Bounces must come (email F9).
const SUPPRESS: &str = "DR, RN, NRN, OOF, AutoReply";

/// What a letter carries besides its draft. All of it is the operator's; nothing is a model's.
#[derive(Debug, Clone, Copy)]
pub(in crate::gateway) struct Letterhead<'a> {
    /// The From name (email G5).
    pub(in crate::gateway) display_name: Option<&'a str>,
    /// Under the text.
    pub(in crate::gateway) signature: Option<&'a str>,
    /// Hosts that may be live links.
    pub(in crate::gateway) links: &'a BTreeSet<String>,
    /// This installation, for recognising our own echo (email F6).
    pub(in crate::gateway) install_id: &'a str,
}

/// A letter as composed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gateway) struct Composed {
    /// The subject as written.
    pub(in crate::gateway) subject: String,
    /// The text as written, without signature.
    pub(in crate::gateway) text: String,
    /// The whole message, CRLF lines.
    pub(in crate::gateway) bytes: Vec<u8>,
}

/// Builds the bytes of a letter. The same values give the same bytes.
///
/// # Errors
/// [`OutboxError::Empty`] without a text, [`OutboxError::Malformed`] when the bytes do not say what the draft says.
pub(in crate::gateway) fn compose(
    draft: &Draft,
    head: Letterhead<'_>,
    message_id: &MessageId,
    now: DateTime<Utc>,
) -> Result<Composed, OutboxError> {
    let text = bounded_text(&draft.text);
    if text.is_empty() {
        return Err(OutboxError::Empty);
    }
    let subject = clean_line(&draft.subject, SUBJECT_CHARACTERS);
    let name = head.display_name.map(|name| clean_line(name, NAME_CHARACTERS)).filter(|name| !name.is_empty());
    let in_reply_to: Vec<&MessageId> = draft.in_reply_to.iter().filter(|id| writable(id)).collect();
    let mut references: Vec<&MessageId> = draft.references.iter().filter(|id| writable(id)).collect();
    if references.is_empty() {
        // Some servers give a letter another Message-ID on its way: an answer still names ours (email E6).
        references.push(message_id);
    }

    let mut builder = Message::builder()
        .from(Mailbox::new(name.clone(), wire_address(&draft.from)?))
        .subject(subject.clone())
        .date(SystemTime::from(now))
        .message_id(Some(message_id.bracketed()));
    for recipient in &draft.to {
        builder = builder.to(Mailbox::new(None, wire_address(recipient)?));
    }
    if !in_reply_to.is_empty() {
        builder = builder.in_reply_to(joined(&in_reply_to));
    }
    if !references.is_empty() {
        builder = builder.references(joined(&references));
    }
    for (name, value) in
        [("Auto-Submitted", auto_submitted(draft)), ("X-Auto-Response-Suppress", SUPPRESS), ("X-Dutiful-Install", head.install_id)]
    {
        let name = HeaderName::new_from_ascii(name.to_owned()).map_err(malformed)?;
        builder = builder.raw_header(HeaderValue::new(name, value.to_owned()));
    }
    let plain = plain_part(&text, head.signature);
    let message = builder.multipart(alternatives(&plain, &html_part(&text, head), message_id)?).map_err(malformed)?;
    let bytes = message.formatted();

    let meant = read_back::Meant {
        from: &draft.from,
        from_name: name.as_deref(),
        to: &draft.to,
        subject: &subject,
        message_id,
        in_reply_to: &in_reply_to,
        references: &references,
        plain: &plain,
    };
    read_back::check(&bytes, &meant).map_err(OutboxError::Malformed)?;
    Ok(Composed { subject, text, bytes })
}

/// The readable text and its HTML twin (email G2).
fn alternatives(plain: &str, html: &str, message_id: &MessageId) -> Result<MultiPart, OutboxError> {
    let part = |content_type: ContentType, text: &str| {
        Body::new_with_encoding(text.to_owned(), ContentTransferEncoding::QuotedPrintable)
            .map(|body| SinglePart::builder().header(content_type).body(body))
            .map_err(|_| OutboxError::Malformed("a part could not be encoded".to_owned()))
    };
    // No line of quoted-printable holds "=_", so the boundary cannot occur in a part.
    let boundary: String = message_id.as_str().chars().filter(char::is_ascii_alphanumeric).take(32).collect();
    Ok(MultiPart::alternative()
        .boundary(format!("=_{boundary}"))
        .singlepart(part(ContentType::TEXT_PLAIN, plain)?)
        .singlepart(part(ContentType::TEXT_HTML, html)?))
}

fn plain_part(text: &str, signature: Option<&str>) -> String {
    match signature.map(clean_text).filter(|signature| !signature.is_empty()) {
        Some(signature) => format!("{text}\n\n-- \n{signature}\n"),
        None => format!("{text}\n"),
    }
}

fn html_part(text: &str, head: Letterhead<'_>) -> String {
    let body = markdown::to_html(text, head.links);
    let signature = head.signature.map(clean_text).filter(|signature| !signature.is_empty());
    let signature = signature.map_or(String::new(), |signature| format!("<p>-- <br>\n{}</p>\n", markdown::plain_to_html(&signature)));
    format!("<!DOCTYPE html>\n<html>\n<body>\n{body}{signature}</body>\n</html>\n")
}

/// RFC 3834: a reply in a thread answers, everything else was begun by us (email F9).
fn auto_submitted(draft: &Draft) -> &'static str {
    match draft.kind {
        OutgoingKind::Reply => "auto-replied",
        OutgoingKind::Question | OutgoingKind::Tool if draft.in_reply_to.is_some() => "auto-replied",
        OutgoingKind::Question | OutgoingKind::Tool | OutgoingKind::Report | OutgoingKind::Notice => "auto-generated",
    }
}

/// Whether an id can stand in a header and help somebody there: ASCII, none that we made up for a letter
/// without one, nothing that reads as an encoded word.
fn writable(id: &MessageId) -> bool {
    let id = id.as_str();
    id.bytes().all(|byte| byte.is_ascii_graphic()) && !id.contains("=?") && !id.ends_with("@missing.invalid")
}

fn joined(ids: &[&MessageId]) -> String {
    ids.iter().map(|id| id.bracketed()).collect::<Vec<_>>().join(" ")
}

fn wire_address(address: &Address) -> Result<lettre::Address, OutboxError> {
    lettre::Address::new(address.local(), address.domain()).map_err(malformed)
}

fn malformed(error: impl std::fmt::Display) -> OutboxError {
    OutboxError::Malformed(error.to_string())
}

/// One header's text: one line, bounded, and nothing that a reader would take for an encoded word.
fn clean_line(text: &str, characters: usize) -> String {
    let spaced: String = text.chars().map(|c| if c.is_control() || c.is_whitespace() { ' ' } else { c }).collect();
    let line = spaced.split_whitespace().collect::<Vec<_>>().join(" ").replace("=?", "= ?");
    line.chars().take(characters).collect::<String>().trim_end().to_owned()
}

/// A body's text: LF lines, no control character but tab, no blank edge.
fn clean_text(text: &str) -> String {
    let lines = text.replace("\r\n", "\n").replace(['\r', '\u{2028}', '\u{2029}', '\u{85}'], "\n");
    let kept: String = lines.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect();
    kept.trim_matches('\n').trim_end().to_owned()
}

fn bounded_text(text: &str) -> String {
    let text = clean_text(text);
    if text.len() <= TEXT_BYTES {
        return text;
    }
    let kept = text.get(..text.floor_char_boundary(TEXT_BYTES - CUT.len())).unwrap_or_default();
    format!("{}{CUT}", kept.trim_end())
}

#[cfg(test)]
#[path = "letter_tests.rs"]
mod tests;
