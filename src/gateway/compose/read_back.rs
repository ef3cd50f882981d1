//! The last look at finished bytes: another parser must find in them exactly what was meant, and no byte
//! that two servers could read differently (email G17, security S25, S26).

use mail_parser::{HeaderName, HeaderValue, Message, MessageParser};

use crate::mail::{Address, Draft, MessageId, OutgoingKind};

/// The longest line, without its CRLF (RFC 5322 section 2.1.1).
const LINE_BYTES: usize = 998;

/// Headers that stand exactly once.
const ONCE: [&str; 10] = [
    "from",
    "to",
    "subject",
    "date",
    "message-id",
    "mime-version",
    "content-type",
    "auto-submitted",
    "x-auto-response-suppress",
    "x-dutiful-install",
];

/// Headers that stand at most once. No other may occur.
const AT_MOST_ONCE: [&str; 2] = ["in-reply-to", "references"];

/// What a letter must say.
#[derive(Debug)]
pub(super) struct Meant<'a> {
    pub(super) from: &'a Address,
    pub(super) from_name: Option<&'a str>,
    pub(super) to: &'a [Address],
    pub(super) subject: &'a str,
    pub(super) message_id: &'a MessageId,
    pub(super) in_reply_to: &'a [&'a MessageId],
    pub(super) references: &'a [&'a MessageId],
    pub(super) plain: &'a str,
}

/// Reads the bytes back.
///
/// # Errors
/// What differs, in words.
pub(super) fn check(bytes: &[u8], meant: &Meant<'_>) -> Result<(), String> {
    check_lines(bytes)?;
    check_header_names(bytes)?;
    let message = MessageParser::default().parse(bytes).ok_or("it cannot be read back")?;
    let says = |holds: bool, what: &str| if holds { Ok(()) } else { Err(format!("{what} is not read back as written")) };
    let from = message.from().and_then(|from| from.first());
    says(from.and_then(|from| from.address()).is_some_and(|read| same_address(read, meant.from)), "From")?;
    says(from.and_then(|from| from.name()) == meant.from_name, "the From name")?;
    let to: Vec<&str> = message.to().map(|to| to.iter().filter_map(|one| one.address()).collect()).unwrap_or_default();
    says(to.len() == meant.to.len() && to.iter().zip(meant.to).all(|(read, meant)| same_address(read, meant)), "To")?;
    says(message.subject().unwrap_or_default() == meant.subject, "the subject")?;
    says(message.message_id() == Some(meant.message_id.as_str()), "the Message-ID")?;
    says(ids(message.in_reply_to()) == words(meant.in_reply_to), "In-Reply-To")?;
    says(ids(message.references()) == words(meant.references), "References")?;
    says(message.date().is_some(), "the date")?;
    says(message.text_body.len() == 1 && message.html_body.len() == 1 && message.attachments.is_empty(), "the structure")?;
    says(plain_text(&message).is_some_and(|read| read == meant.plain.trim_end()), "the text")
}

/// CRLF only, no NUL, no line over the limit.
fn check_lines(bytes: &[u8]) -> Result<(), String> {
    let mut previous = 0;
    let mut length = 0;
    for &byte in bytes {
        match (previous, byte) {
            (b'\r', b'\n') => length = 0,
            (b'\r', _) => return Err("a bare CR".to_owned()),
            (_, b'\n') => return Err("a bare LF".to_owned()),
            (_, 0) => return Err("a NUL".to_owned()),
            (_, b'\r') => {}
            _ => length += 1,
        }
        if length > LINE_BYTES {
            return Err("a line is too long".to_owned());
        }
        previous = byte;
    }
    if previous == b'\n' { Ok(()) } else { Err("the last line is not ended".to_owned()) }
}

/// Our headers, each as often as it may be, and no other.
fn check_header_names(bytes: &[u8]) -> Result<(), String> {
    let mut seen: Vec<String> = Vec::new();
    for line in bytes.split(|&byte| byte == b'\n') {
        match line {
            [b'\r'] => break,
            [b' ' | b'\t', ..] => {}
            _ => {
                let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
                seen.push(String::from_utf8_lossy(name).to_ascii_lowercase());
            }
        }
    }
    let count = |name: &str| seen.iter().filter(|one| *one == name).count();
    if let Some(wrong) = ONCE.iter().find(|name| count(name) != 1) {
        return Err(format!("{wrong} does not stand once"));
    }
    if let Some(double) = AT_MOST_ONCE.iter().find(|name| count(name) > 1) {
        return Err(format!("{double} stands more than once"));
    }
    match seen.iter().find(|name| !ONCE.contains(&name.as_str()) && !AT_MOST_ONCE.contains(&name.as_str())) {
        Some(foreign) => Err(format!("a header that nobody wrote: {}", foreign.chars().take(40).collect::<String>())),
        None => Ok(()),
    }
}

fn same_address(read: &str, meant: &Address) -> bool {
    read.parse::<Address>().is_ok_and(|read| read == *meant)
}

fn ids(value: &HeaderValue<'_>) -> Vec<String> {
    match value {
        HeaderValue::Text(one) => vec![one.to_string()],
        HeaderValue::TextList(many) => many.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

fn words(ids: &[&MessageId]) -> Vec<String> {
    ids.iter().map(|id| id.as_str().to_owned()).collect()
}

fn plain_text(message: &Message<'_>) -> Option<String> {
    Some(message.body_text(0)?.replace("\r\n", "\n").trim_end().to_owned())
}

/// The draft that finished bytes were made of, with another text, and their Message-ID.
pub(in crate::gateway) fn draft_of(bytes: &[u8], kind: OutgoingKind, text: &str) -> Option<(Draft, MessageId)> {
    let message = MessageParser::default().parse_headers(bytes)?;
    let address = |text: &str| text.parse::<Address>().ok();
    let id = message_id(bytes)?;
    let to = message.to()?.iter().map(|one| one.address().and_then(address)).collect::<Option<Vec<Address>>>()?;
    let mut references: Vec<MessageId> = ids(message.references()).iter().filter_map(|id| MessageId::parse(id)).collect();
    // A first letter names itself (email E6): it is named anew.
    references.retain(|reference| *reference != id);
    let draft = Draft {
        kind,
        to,
        from: message.from()?.first()?.address().and_then(address)?,
        subject: message.subject().unwrap_or_default().to_owned(),
        text: text.to_owned(),
        in_reply_to: ids(message.in_reply_to()).first().and_then(|id| MessageId::parse(id)),
        references,
        effect_key: String::new(),
    };
    Some((draft, id))
}

/// The Message-ID of finished bytes.
pub(in crate::gateway) fn message_id(bytes: &[u8]) -> Option<MessageId> {
    let message = MessageParser::default().parse_headers(bytes)?;
    let value = message.header(HeaderName::MessageId)?;
    MessageId::parse(value.as_text()?)
}
