//! What a reply inherits from the letter it answers: subject and references. Pure functions.

use super::{Inbound, MessageId};

/// Reply prefixes that mail programs of the world write (email G3), lower case, without the colon.
const REPLY_PREFIXES: [&str; 27] = [
    "re",
    "réf",
    "rép",
    "aw",
    "antw",
    "antwort",
    "sv",
    "vs",
    "vá",
    "rv",
    "res",
    "resp",
    "rif",
    "r",
    "odp",
    "ynt",
    "yan",
    "atb",
    "bls",
    "απ",
    "σχετ",
    "תגובה",
    "رد",
    "回复",
    "回覆",
    "答复",
    "返信",
];

/// The longest subject that is written, in characters.
const SUBJECT_CHARACTERS: usize = 255;

/// How many ids References keeps besides the first (email G4).
const LAST_REFERENCES: usize = 20;

/// The subject of a reply: the customer's, with `Re: ` in front unless a reply prefix of any language is
/// already there; one line of at most 255 characters (email G3).
pub fn reply_subject(subject: &str) -> String {
    let clean = one_line(subject);
    let prefixed = if has_reply_prefix(&clean) { clean } else { format!("Re: {clean}") };
    prefixed.trim_end().chars().take(SUBJECT_CHARACTERS).collect()
}

/// The References of a reply: those of the parent (else its In-Reply-To, if it is a single one), then the
/// parent itself; the first and the last 20 are kept (email G4, RFC 5322 section 3.6.4).
pub fn reply_references(parent: &Inbound) -> Vec<MessageId> {
    let mut ids: Vec<MessageId> = match (parent.references.as_slice(), parent.in_reply_to.as_slice()) {
        ([], [only]) => vec![only.clone()],
        (references, _) => references.to_vec(),
    };
    ids.retain(|id| *id != parent.message_id);
    ids.push(parent.message_id.clone());
    match ids.len().checked_sub(LAST_REFERENCES) {
        Some(surplus) if surplus > 1 => {
            let last = ids.split_off(surplus);
            ids.truncate(1);
            ids.extend(last);
            ids
        }
        _ => ids,
    }
}

/// A text as one line: control characters and line separators become spaces, runs of white space one.
fn one_line(text: &str) -> String {
    let spaced: String = text.chars().map(|c| if c.is_control() || c.is_whitespace() { ' ' } else { c }).collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `Re:`, `AW :`, `Re[2]:`, `回复：`.
fn has_reply_prefix(subject: &str) -> bool {
    let Some((head, _)) = subject.split_once([':', '：']) else { return false };
    let word = head.trim_end();
    let word = match word.split_once(['[', '(']) {
        Some((word, count)) if count.trim_end_matches([']', ')']).chars().all(|c| c.is_ascii_digit()) => word,
        Some(_) => return false,
        None => word,
    };
    REPLY_PREFIXES.contains(&word.trim_end().to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn email_g3_a_prefix_is_written_once_in_any_language() {
        for (subject, expected) in [
            ("Your menu", "Re: Your menu"),
            ("Re: Your menu", "Re: Your menu"),
            ("RE : Your menu", "RE : Your menu"),
            ("AW: Speisekarte", "AW: Speisekarte"),
            ("Re[2]: x", "Re[2]: x"),
            ("回复：菜单", "回复：菜单"),
            ("SV: meny", "SV: meny"),
            ("Regarding: x", "Re: Regarding: x"),
            ("Order 7: late", "Re: Order 7: late"),
            ("", "Re:"),
            ("a\r\nBcc: evil@example.com", "Re: a Bcc: evil@example.com"),
        ] {
            assert_eq!(reply_subject(subject), expected);
        }
        assert_eq!(reply_subject(&"é".repeat(1000)).chars().count(), 255);
    }

    fn parent(references: usize, in_reply_to: &[&str]) -> Inbound {
        let address: crate::mail::Address = "a@example.com".parse().unwrap();
        Inbound {
            message_id: MessageId::parse("<parent@x>").unwrap(),
            in_reply_to: in_reply_to.iter().filter_map(|id| MessageId::parse(id)).collect(),
            references: (0..references).filter_map(|n| MessageId::parse(&format!("{n}@x"))).collect(),
            from: crate::mail::NamedAddress { name: None, address },
            reply_to: vec![],
            to: vec![],
            cc: vec![],
            delivered_to: vec![],
            subject: String::new(),
            text: String::new(),
            remarks: vec![],
            attachments: vec![],
            date: None,
        }
    }

    fn ids(parent: &Inbound) -> Vec<String> {
        reply_references(parent).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn email_g4_references_keep_the_first_and_the_last_twenty() {
        assert_eq!(ids(&parent(0, &[])), ["parent@x"]);
        assert_eq!(ids(&parent(0, &["<q@x>"])), ["q@x", "parent@x"]);
        assert_eq!(ids(&parent(0, &["<q@x>", "<r@x>"])), ["parent@x"]);
        assert_eq!(ids(&parent(2, &["<q@x>"])), ["0@x", "1@x", "parent@x"]);
        assert_eq!(ids(&parent(20, &[])).len(), 21);
        let many = ids(&parent(60, &[]));
        assert_eq!(many.len(), 21);
        assert_eq!((many[0].as_str(), many[1].as_str(), many[20].as_str()), ("0@x", "41@x", "parent@x"));
    }
}
