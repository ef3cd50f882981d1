//! A letter as a reader sees it: a few header lines, then the text.

use chrono::{DateTime, Utc};

use super::Inbound;

/// Bytes of one header line's value, and attachments named at most.
const LINE: usize = 500;
const ATTACHMENTS: usize = 20;

impl Inbound {
    /// From, Subject, Date (when it came: the sender's own is a claim), attachments by name, what was
    /// noticed, then the text, cut to `text_bytes`. All of it is the sender's and untrusted.
    pub fn readable(&self, received_at: DateTime<Utc>, text_bytes: usize) -> String {
        let name = self.from.name.as_deref().map(|name| format!("{} ", one_line(name))).unwrap_or_default();
        let mut lines = vec![
            format!("From: {name}<{}>", self.from.address),
            format!("Subject: {}", one_line(&self.subject)),
            format!("Date: {}", received_at.format("%Y-%m-%d %H:%M UTC")),
        ];
        for attachment in self.attachments.iter().take(ATTACHMENTS) {
            let (name, kind) = (one_line(&attachment.name), one_line(&attachment.media_type));
            lines.push(format!("Attachment (not opened): {name} ({kind}, {} bytes)", attachment.bytes));
        }
        if self.attachments.len() > ATTACHMENTS {
            lines.push(format!("And {} more attachments.", self.attachments.len() - ATTACHMENTS));
        }
        lines.extend(self.remarks.iter().take(ATTACHMENTS).map(|remark| format!("Note: {}", one_line(remark))));
        let text = self.text.trim();
        let head = text.get(..text.floor_char_boundary(text_bytes)).unwrap_or_default();
        lines.extend([String::new(), head.to_owned()]);
        if head.len() < text.len() {
            lines.push(format!("[the letter goes on for {} more bytes]", text.len() - head.len()));
        }
        lines.join("\n")
    }
}

fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.get(..line.floor_char_boundary(LINE)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::{Attachment, MessageId, NamedAddress};

    fn letter(subject: &str, text: &str) -> Inbound {
        Inbound {
            message_id: MessageId::parse("<a@example.com>").unwrap(),
            in_reply_to: Vec::new(),
            references: Vec::new(),
            from: NamedAddress { name: Some("Alice\nSubject: x".to_owned()), address: "alice@example.com".parse().unwrap() },
            reply_to: Vec::new(),
            to: Vec::new(),
            cc: Vec::new(),
            delivered_to: Vec::new(),
            subject: subject.to_owned(),
            text: text.to_owned(),
            remarks: vec!["hidden text was removed".to_owned()],
            attachments: vec![Attachment {
                name: "menu.pdf".to_owned(),
                media_type: "application/pdf".to_owned(),
                bytes: 7,
                sha256: String::new(),
                inline: false,
            }],
            date: None,
        }
    }

    #[test]
    fn a_letter_reads_as_header_lines_and_text() {
        let at = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        assert_eq!(
            letter("Cake", " Two cakes, please.\n").readable(at, 1000),
            "From: Alice Subject: x <alice@example.com>\nSubject: Cake\nDate: 2027-01-15 08:00 UTC\n\
             Attachment (not opened): menu.pdf (application/pdf, 7 bytes)\nNote: hidden text was removed\n\nTwo cakes, please."
        );
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let at = DateTime::from_timestamp(0, 0).unwrap();
        assert!(letter("", "äöü").readable(at, 3).ends_with("\n\nä\n[the letter goes on for 4 more bytes]"));
    }
}
