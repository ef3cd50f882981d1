//! From the leaves of a letter to one readable text and a list of attachments (email C6-C8, C11).

use sha2::{Digest, Sha256};

use super::{charset, html};
use crate::mail::{Attachment, clean_file_name, clean_line, clean_text};

/// The most text that is kept of one letter.
const TEXT_BYTES: usize = 1024 * 1024;
/// The most bytes of all text parts that are decoded: each step on the way to the text copies them.
const READ_BYTES: usize = 4 * TEXT_BYTES;
/// How far back a line end is looked for, so that no character is cut in two.
const LINE_REACH: usize = 64 * 1024;
/// Stands between texts that were separate parts of one letter.
const BETWEEN: &str = "\n\n[next part]\n\n";

/// A part without parts, transfer encoding undone.
#[derive(Debug, Clone, Default)]
pub(super) struct Leaf {
    /// Declared media type, lower case; `text/plain` when none was.
    pub(super) media_type: String,
    /// Declared charset.
    pub(super) charset: Option<String>,
    /// File name as decoded, not yet safe.
    pub(super) name: Option<String>,
    /// `Content-Disposition: attachment`.
    pub(super) attached: bool,
    /// It has a Content-ID: HTML may show it.
    pub(super) shown_inline: bool,
    /// The nearest multipart/alternative around it.
    pub(super) alternative: Option<usize>,
    /// Decoded bytes.
    pub(super) bytes: Vec<u8>,
}

impl Leaf {
    fn is_plain(&self) -> bool {
        // A multipart that could not be taken apart is text for want of anything better (email C8).
        !self.attached && (self.media_type == "text/plain" && !self.is_file() || self.media_type.starts_with("multipart/"))
    }

    fn is_html(&self) -> bool {
        !self.attached && self.media_type == "text/html" && !self.is_file()
    }

    /// Text of a kind that nobody knows; a letter's only part all the same.
    fn is_other_text(&self) -> bool {
        !self.attached && self.media_type.starts_with("text/") && !matches!(self.media_type.as_str(), "text/html" | "text/calendar")
    }

    /// Named text beside other parts is a file even when it is declared inline.
    fn is_file(&self) -> bool {
        self.name.is_some() && self.alternative.is_none()
    }

    fn is_signature(&self) -> bool {
        matches!(self.media_type.as_str(), "application/pgp-signature" | "application/pkcs7-signature" | "application/x-pkcs7-signature")
    }
}

/// What a letter says and brings.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) text: String,
    pub(super) remarks: Vec<String>,
    pub(super) attachments: Vec<Attachment>,
    pub(super) calendar_method: Option<String>,
}

/// Reads the leaves in their order.
pub(super) fn read(leaves: &[Leaf]) -> Body {
    let mut body = Body::default();
    let alone = leaves.len() == 1;
    let mut texts: Vec<Unit> = Vec::new();
    let mut room = READ_BYTES;
    for leaf in leaves {
        if leaf.is_plain() || alone && leaf.is_other_text() {
            let bytes = taken(leaf, &mut room, &mut body.remarks);
            unit(&mut texts, leaf.alternative).plain.push(clean_text(&charset::decode(bytes, leaf.charset.as_deref())));
        } else if leaf.is_html() || alone && leaf.media_type == "text/html" && !leaf.attached {
            let rendered = read_html(leaf, taken(leaf, &mut room, &mut body.remarks), &mut body.remarks);
            unit(&mut texts, leaf.alternative).html.push(rendered);
        } else if !leaf.is_signature() {
            body.attachments.push(attachment(leaf));
        }
        if leaf.media_type == "text/calendar" {
            body.calendar_method = calendar_field(leaf, "METHOD").map(|method| method.to_ascii_uppercase());
        }
        note(leaf, &mut body.remarks);
    }
    let chosen: Vec<String> = texts.into_iter().map(Unit::choose).filter(|text| is_visible(text)).collect();
    body.text = chosen.join(BETWEEN);
    if body.text.is_empty() {
        body.text = without_text(leaves, &body.attachments);
    }
    cut(&mut body);
    body
}

/// The texts of one alternative, or of one part outside of any.
struct Unit {
    alternative: Option<usize>,
    plain: Vec<String>,
    html: Vec<String>,
}

impl Unit {
    /// The plain text, unless it is empty or only says that there is HTML (email C6).
    fn choose(self) -> String {
        let plain = self.plain.join("\n").trim().to_owned();
        let html = self.html.join("\n").trim().to_owned();
        let (plain_length, html_length) = (visible_length(&plain), visible_length(&html));
        if plain_length == 0 || plain_length * 5 < html_length { html } else { plain }
    }
}

fn unit(texts: &mut Vec<Unit>, alternative: Option<usize>) -> &mut Unit {
    let known = alternative.and_then(|id| texts.iter().position(|unit| unit.alternative == Some(id)));
    let at = known.unwrap_or_else(|| {
        texts.push(Unit { alternative, plain: Vec::new(), html: Vec::new() });
        texts.len() - 1
    });
    #[expect(clippy::indexing_slicing, reason = "the position was found, or made, just above")]
    &mut texts[at]
}

/// The bytes of a text part that are decoded, while there is room (security S27).
fn taken<'x>(leaf: &'x Leaf, room: &mut usize, remarks: &mut Vec<String>) -> &'x [u8] {
    let taken = beginning(&leaf.bytes, *room);
    *room = room.saturating_sub(taken.len());
    if taken.len() < leaf.bytes.len() {
        remark(remarks, "only the first 4 MiB of the text were read");
    }
    taken
}

/// At most so many bytes, up to a line end or at least to a character's.
fn beginning(bytes: &[u8], most: usize) -> &[u8] {
    let Some(head) = bytes.get(..most).filter(|head| head.len() < bytes.len()) else { return bytes };
    let reach = head.get(most.saturating_sub(LINE_REACH)..).unwrap_or_default();
    let dropped = match reach.iter().rposition(|&byte| byte == b'\n') {
        Some(line_end) => reach.len() - line_end - 1,
        // The rest of a character in UTF-8: its continuation bytes, and the byte that began it.
        None => reach.iter().rev().take(4).position(|byte| !(0x80..0xc0).contains(byte)).map_or(0, |continued| continued + 1),
    };
    head.get(..most - dropped).unwrap_or_default()
}

fn read_html(leaf: &Leaf, bytes: &[u8], remarks: &mut Vec<String>) -> String {
    let charset = leaf.charset.clone().or_else(|| meta_charset(bytes));
    let rendered = html::to_text(&charset::decode(bytes, charset.as_deref()));
    if rendered.hidden {
        remark(remarks, "hidden text removed");
    }
    if rendered.cut {
        remark(remarks, "only the first 2 MiB of the HTML were read");
    }
    clean_text(&rendered.text)
}

/// A charset that only the HTML itself names.
fn meta_charset(bytes: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(bytes.get(..1024).unwrap_or(bytes)).to_ascii_lowercase();
    let (_, after) = head.split_once("charset=")?;
    let label: String =
        after.trim_start_matches(['"', '\'']).chars().take_while(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).collect();
    (!label.is_empty()).then_some(label)
}

fn note(leaf: &Leaf, remarks: &mut Vec<String>) {
    match leaf.media_type.as_str() {
        "application/ms-tnef" | "application/vnd.ms-tnef" => remark(remarks, "attachments in winmail.dat cannot be read"),
        "multipart/encrypted" | "application/pgp-encrypted" => remark(remarks, "encrypted mail cannot be read"),
        "application/pkcs7-mime" | "application/x-pkcs7-mime" => remark(remarks, "encrypted or enveloped mail cannot be read"),
        _ => {}
    }
}

fn remark(remarks: &mut Vec<String>, text: &str) {
    if remarks.iter().all(|known| known != text) {
        remarks.push(text.to_owned());
    }
}

fn attachment(leaf: &Leaf) -> Attachment {
    let hash = format!("{:x}", Sha256::digest(&leaf.bytes));
    Attachment {
        name: clean_file_name(leaf.name.as_deref().unwrap_or_default()),
        media_type: clean_line(&leaf.media_type),
        bytes: u64::try_from(leaf.bytes.len()).unwrap_or(u64::MAX),
        sha256: hash,
        inline: leaf.shown_inline && !leaf.attached,
    }
}

fn is_visible(text: &str) -> bool {
    visible_length(text) > 0
}

fn visible_length(text: &str) -> usize {
    text.chars().filter(|&c| !c.is_whitespace() && !crate::mail::is_invisible(c)).count()
}

/// A calendar's summary, else the number of attachments (email C6, C13).
fn without_text(leaves: &[Leaf], attachments: &[Attachment]) -> String {
    let summary = leaves.iter().find(|leaf| leaf.media_type == "text/calendar").map(|leaf| {
        let fields = ["METHOD", "SUMMARY", "DTSTART", "DTEND", "LOCATION", "ORGANIZER"];
        let lines = fields.iter().filter_map(|name| calendar_field(leaf, name).map(|value| format!("{name}: {value}")));
        lines.collect::<Vec<_>>().join("\n")
    });
    match summary {
        Some(summary) if is_visible(&summary) => summary,
        _ => match attachments.len() {
            0 => "(no text)".to_owned(),
            1 => "(no text; 1 attachment)".to_owned(),
            many => format!("(no text; {many} attachments)"),
        },
    }
}

fn calendar_field(leaf: &Leaf, name: &str) -> Option<String> {
    let text = clean_text(&charset::decode(beginning(&leaf.bytes, TEXT_BYTES), leaf.charset.as_deref())).replace("\n ", "");
    text.lines().find_map(|line| {
        let (field, value) = line.split_once(':')?;
        let field = field.split(';').next().unwrap_or_default();
        field.trim().eq_ignore_ascii_case(name).then(|| clean_line(value).chars().take(500).collect())
    })
}

fn cut(body: &mut Body) {
    if body.text.len() > TEXT_BYTES {
        let mut end = TEXT_BYTES;
        while !body.text.is_char_boundary(end) {
            end -= 1;
        }
        body.text.truncate(end);
        remark(&mut body.remarks, "only the first 1 MiB of the text was kept");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(media_type: &str, text: &str) -> Leaf {
        let charset = Some("utf-8".to_owned());
        Leaf { media_type: media_type.to_owned(), charset, bytes: text.as_bytes().to_vec(), ..Leaf::default() }
    }

    #[test]
    fn security_s27_no_more_than_4_mib_of_all_texts_is_decoded() {
        for media_type in ["text/plain", "text/html"] {
            let body = read(&[part(media_type, &format!("caf\u{e9}\n{}", "\u{20ac} ".repeat(READ_BYTES / 4)))]);
            assert!(body.text.starts_with("caf\u{e9}") && !body.text.contains('\u{e2}'), "still read as UTF-8");
            assert!(body.remarks.iter().any(|remark| remark == "only the first 4 MiB of the text were read"), "{:?}", body.remarks);
        }
        let many: Vec<Leaf> = (0..6).map(|_| part("text/plain", &"a line\n".repeat(READ_BYTES / 28))).collect();
        let mut room = READ_BYTES;
        let mut remarks = Vec::new();
        let lengths: Vec<usize> = many.iter().map(|leaf| taken(leaf, &mut room, &mut remarks).len()).collect();
        assert!(lengths.iter().sum::<usize>() <= READ_BYTES && lengths[5] < 8, "all parts share the room: {lengths:?}");
        assert_eq!(remarks.len(), 1);
        assert!(read(&[part("text/plain", "short")]).remarks.is_empty());
    }

    #[test]
    fn email_c5_a_text_is_cut_between_lines_or_characters() {
        for shift in 0..3 {
            let text = format!("{}{}", "x".repeat(shift), "\u{20ac}".repeat(40_000));
            for most in [0, 1, 2, 3, 99_997, 99_998, 99_999] {
                let head = beginning(text.as_bytes(), most);
                assert!(head.len() <= most && most - head.len() < 6 && std::str::from_utf8(head).is_ok(), "{shift} {most} {}", head.len());
            }
        }
        assert_eq!(beginning(b"a line\nanother line", 12), b"a line\n");
        assert_eq!(beginning(b"short", 5), b"short");
    }
}
