//! Bytes of a part to text: transfer encodings, declared and undeclared charsets (email C5). Total: every
//! input gives some text.

use chardetng::EncodingDetector;
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// How much of a part the detector looks at.
const DETECTED_BYTES: usize = 64 * 1024;

/// Decodes text with the declared charset; when that is unknown, absent or wrong: strict UTF-8, else
/// what the detector says, else windows-1252.
pub(super) fn decode(bytes: &[u8], declared: Option<&str>) -> String {
    let label = declared.map(|label| label.trim().trim_matches('"').to_ascii_lowercase()).unwrap_or_default();
    if matches!(label.as_str(), "utf-7" | "unicode-1-1-utf-7" | "csutf7")
        && let Some(decoder) = mail_parser_utf7()
    {
        return decoder(bytes);
    }
    if let Some((encoding, skipped)) = Encoding::for_bom(bytes) {
        let rest = bytes.get(skipped..).unwrap_or_default();
        return encoding.decode_without_bom_handling(rest).0.into_owned();
    }
    match encoding_of(&label) {
        // Declared as plain ASCII or left out, yet with high bytes: the label says nothing.
        None => undeclared(bytes),
        Some(encoding) if encoding == UTF_16BE || encoding == UTF_16LE => encoding.decode_without_bom_handling(bytes).0.into_owned(),
        Some(encoding) => match encoding.decode_without_bom_handling_and_without_replacement(bytes) {
            Some(text) => text.into_owned(),
            None => wrongly_declared(bytes, encoding),
        },
    }
}

/// Undoes base64 as mail has it: line ends, stray characters and missing padding do not matter.
pub(super) fn from_base64(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() / 4 * 3);
    let mut group = 0_u32;
    let mut bits = 0_u32;
    for &byte in bytes {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => {
                // Padding ends a group; some writers join several encoded pieces.
                (group, bits) = (0, 0);
                continue;
            }
            _ => continue,
        };
        group = (group << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push(u8::try_from((group >> bits) & 0xff).unwrap_or_default());
        }
    }
    out
}

/// Undoes quoted-printable; what is no valid escape stays as it is.
pub(super) fn from_quoted_printable(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let mut rest = line;
        while let Some((&byte, after)) = rest.split_first() {
            if byte != b'=' {
                out.push(byte);
                rest = after;
            } else if after.iter().all(u8::is_ascii_whitespace) {
                rest = &[];
            } else if let [high, low, tail @ ..] = after
                && let (Some(high), Some(low)) = (hex(*high), hex(*low))
            {
                out.push(high << 4 | low);
                rest = tail;
            } else {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn encoding_of(label: &str) -> Option<&'static Encoding> {
    // The labels table maps "us-ascii" and "iso-8859-1" to windows-1252; only the latter says anything.
    if label.is_empty() || matches!(label, "us-ascii" | "ascii" | "ansi_x3.4-1968" | "unknown" | "unknown-8bit" | "x-unknown" | "default") {
        return None;
    }
    let label = match label {
        "cp1250" | "cp1251" | "cp1252" | "cp1253" | "cp1254" | "cp1255" | "cp1256" | "cp1257" | "cp1258" => label.replace("cp", "windows-"),
        "cp936" | "x-gbk" => "gbk".to_owned(),
        "cp932" | "ms932" => "shift_jis".to_owned(),
        "cp949" => "euc-kr".to_owned(),
        "cp950" => "big5".to_owned(),
        "utf8mb4" => "utf-8".to_owned(),
        "iso-2022-jp-ms" | "iso-2022-jp-1" | "iso-2022-jp-2" | "cp50220" | "cp50221" => "iso-2022-jp".to_owned(),
        other => other.to_owned(),
    };
    Encoding::for_label_no_replacement(label.as_bytes())
}

fn undeclared(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !has_jis_escape(bytes) => text.to_owned(),
        _ => detected(bytes),
    }
}

/// A cut or slightly broken text of the declared charset stays in it; what is valid UTF-8 is UTF-8.
fn wrongly_declared(bytes: &[u8], declared: &'static Encoding) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) if declared == UTF_8 && !mostly_utf8(bytes) => detected(bytes),
        Err(_) => declared.decode_without_bom_handling(bytes).0.into_owned(),
    }
}

/// Whether multi-byte sequences outnumber the bytes that fit none: a damaged UTF-8 text.
fn mostly_utf8(bytes: &[u8]) -> bool {
    let lossy = String::from_utf8_lossy(bytes);
    let broken = lossy.chars().filter(|&c| c == char::REPLACEMENT_CHARACTER).count();
    let whole = lossy.chars().filter(|&c| !c.is_ascii() && c != char::REPLACEMENT_CHARACTER).count();
    whole > broken
}

fn has_jis_escape(bytes: &[u8]) -> bool {
    bytes.windows(3).any(|window| matches!(window, [0x1b, b'$', b'B' | b'@'] | [0x1b, b'(', b'J' | b'I']))
}

fn detected(bytes: &[u8]) -> String {
    let mut detector = EncodingDetector::new();
    detector.feed(bytes.get(..DETECTED_BYTES).unwrap_or(bytes), true);
    let (encoding, sure) = detector.guess_assess(None, false);
    let encoding = if sure { encoding } else { WINDOWS_1252 };
    encoding.decode_without_bom_handling(bytes).0.into_owned()
}

/// UTF-7 is in no encoding standard for the web; the mail parser brings a decoder.
fn mail_parser_utf7() -> Option<fn(&[u8]) -> String> {
    mail_parser::decoders::charsets::map::charset_decoder(b"utf-7")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn email_c5_declared_charsets_are_read() {
        for (label, bytes, wanted) in [
            ("koi8-r", &b"\xf0\xd2\xc9\xd7\xc5\xd4"[..], "Привет"),
            ("iso-2022-jp", b"\x1b$B$3$s$K$A$O\x1b(B", "こんにちは"),
            ("Shift_JIS", b"\x82\xb1\x82\xf1", "こん"),
            ("gb2312", b"\xc4\xe3\xba\xc3", "你好"),
            ("big5", b"\xa7A\xa6n", "你好"),
            ("ks_c_5601-1987", b"\xb0\xa1", "가"),
            ("utf-16le", b"h\0i\0", "hi"),
            ("iso-8859-15", b"\xa4", "€"),
            ("cp1250", b"\xe8", "č"),
            ("\"UTF-8\"", "é".as_bytes(), "é"),
        ] {
            assert_eq!(decode(bytes, Some(label)), wanted, "{label}");
        }
    }

    #[test]
    fn email_c5_wrong_and_missing_labels_fall_back() {
        assert_eq!(decode("Grüße".as_bytes(), Some("us-ascii")), "Grüße");
        assert_eq!(decode("Grüße".as_bytes(), None), "Grüße");
        assert_eq!(decode("Grüße".as_bytes(), Some("x-made-up")), "Grüße");
        assert_eq!(decode(b"Gr\xfc\xdfe aus M\xfcnchen", None), "Grüße aus München");
        assert_eq!(decode(b"Gr\xfc\xdfe aus M\xfcnchen", Some("utf-8")), "Grüße aus München");
    }

    #[test]
    fn email_c5_transfer_encodings_bear_damage() {
        assert_eq!(from_base64(b"SGVs\r\nbG8"), b"Hello");
        assert_eq!(from_base64(b"SGU=bGxv"), b"Hello");
        assert_eq!(from_quoted_printable(b"a=3Db=\r\nc=ZZ =C3=A9"), "a=bc=ZZ é".as_bytes());
        assert_eq!(from_quoted_printable(b"a=  \r\nb="), b"ab");
    }
}
