//! A letter as a test writes it.

use std::fmt;

use super::Arrived;

/// A letter to be handed in.
#[derive(Clone)]
pub struct Letter {
    from: String,
    to: String,
    id: String,
    subject: String,
    fields: Vec<(String, String)>,
    text: String,
}

impl Letter {
    /// From an address to an address, with this Message-ID (without its brackets) and text.
    pub fn new(from: &str, to: &str, id: &str, text: &str) -> Letter {
        Letter {
            from: from.to_owned(),
            to: to.to_owned(),
            id: id.to_owned(),
            subject: "Do you have pistachio?".to_owned(),
            fields: Vec::new(),
            text: text.to_owned(),
        }
    }

    /// With one more header field.
    pub fn with(mut self, name: &str, value: &str) -> Letter {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// As an answer to a letter, with the references that a mail program writes.
    pub fn answering(self, letter: &Arrived) -> Letter {
        let id = letter.header("Message-ID").expect("a letter has an id");
        let references = letter.header("References").map_or_else(|| id.clone(), |earlier| format!("{earlier} {id}"));
        self.with("In-Reply-To", &id).with("References", &references)
    }

    /// As a receiver writes it that proved the sender by DMARC, or refuted it.
    pub fn judged(self, verdict: &str) -> Letter {
        let domain = self.from.rsplit('@').next().unwrap_or_default().to_owned();
        self.with("Authentication-Results", &format!("mx.example.test; dmarc={verdict} header.from={domain}"))
    }
}

impl fmt::Display for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.fields {
            writeln!(f, "{name}: {value}")?;
        }
        let Letter { from, to, id, subject, text, .. } = self;
        write!(
            f,
            "From: A Customer <{from}>\nTo: <{to}>\nSubject: {subject}\nMessage-ID: <{id}>\nDate: Mon, 30 Nov 2026 12:00:00 +0000\n\
             MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\n{text}\n"
        )
    }
}
