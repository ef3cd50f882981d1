//! What a server's responses say. Pure: the session reads them, here they are understood.

use async_imap::imap_proto::{AttributeValue, MailboxListData, MessageSection, NameAttribute, Outcome, SectionPath, Status};
use async_imap::types::Capability;
use chrono::{DateTime, Utc};

use super::{Facts, ImapError, bounded};

/// A capability as a server writes it, in capitals.
pub(super) fn capability_word(capability: &Capability) -> String {
    match capability {
        Capability::Imap4rev1 => "IMAP4REV1".to_owned(),
        Capability::Auth(name) => format!("AUTH={}", name.to_ascii_uppercase()),
        Capability::Atom(name) => name.to_ascii_uppercase(),
    }
}

/// Names under which servers without SPECIAL-USE keep sent letters, the likeliest first.
const USUAL_SENT_NAMES: [&str; 7] = ["Sent", "Sent Items", "Sent Messages", "Sent Mail", "Gesendet", "Gesendete Objekte", "Envoyés"];

/// How likely a folder is the one for sent letters: 0 by its special use, then by its name's place in the
/// list; none when it is not.
pub(super) fn sent_rank(listed: &MailboxListData<'_>) -> Option<usize> {
    if listed.name_attributes.contains(&NameAttribute::NoSelect) {
        return None;
    }
    if listed.name_attributes.contains(&NameAttribute::Sent) {
        return Some(0);
    }
    let delimiter = listed.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());
    let last = delimiter.map_or(listed.name.as_ref(), |delimiter| listed.name.rsplit(delimiter).next().unwrap_or_default());
    USUAL_SENT_NAMES.iter().position(|usual| usual.eq_ignore_ascii_case(last)).map(|at| at + 1)
}

/// What the tagged answer says of its command.
pub(super) fn verdict(step: &'static str, status: &Status, outcome: &Outcome<'_>) -> Result<(), ImapError> {
    if *status == Status::Ok {
        return Ok(());
    }
    let code = outcome.code.as_ref().map(|code| format!("[{code:?}] ")).unwrap_or_default();
    Err(ImapError::Refused { step, text: bounded(&format!("{code}{}", outcome.information.as_deref().unwrap_or_default())) })
}

/// The letter that an answer tells of.
pub(super) fn uid_of(attributes: &[AttributeValue<'_>]) -> Option<u32> {
    attributes.iter().find_map(|attribute| match attribute {
        AttributeValue::Uid(uid) => Some(*uid),
        _ => None,
    })
}

/// What is known of a letter; none for an answer that tells another client's flag change (email B7).
pub(super) fn facts_of(attributes: &[AttributeValue<'_>]) -> Option<Facts> {
    let uid = uid_of(attributes)?;
    let mut facts = Facts { uid, bytes: 0, received_at: None, deleted: false };
    let mut sized = false;
    for attribute in attributes {
        match attribute {
            AttributeValue::Rfc822Size(bytes) => {
                facts.bytes = u64::from(*bytes);
                sized = true;
            }
            AttributeValue::InternalDate(text) => {
                let parsed = DateTime::parse_from_str(text.trim(), "%d-%b-%Y %H:%M:%S %z");
                facts.received_at = parsed.ok().map(|date| date.with_timezone(&Utc));
            }
            AttributeValue::Flags(flags) => facts.deleted = flags.iter().any(|flag| flag.eq_ignore_ascii_case("\\Deleted")),
            _ => {}
        }
    }
    sized.then_some(facts)
}

/// The bytes of the whole letter, or of a section of it.
pub(super) fn section_of<'a>(attributes: &'a [AttributeValue<'_>], wanted: Option<MessageSection>) -> Option<&'a [u8]> {
    let wanted = wanted.map(SectionPath::Full);
    attributes.iter().find_map(|attribute| match attribute {
        AttributeValue::BodySection { section, data: Some(data), .. } if *section == wanted => Some(data.as_ref()),
        _ => None,
    })
}
