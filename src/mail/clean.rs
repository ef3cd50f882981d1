//! Text without what no reader would see: control characters, bidi overrides, zero-width and tag
//! characters (email C4, C9), and safe names for files (email C11).

use unicode_normalization::UnicodeNormalization;

/// The longest file name, in bytes.
const NAME_BYTES: usize = 120;

/// One line: a subject, a display name. White space of any kind is one space; the result is NFC.
pub fn clean_line(text: &str) -> String {
    let spaced: String = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    let visible = without_invisible(&spaced, |_| false);
    let mut line = String::with_capacity(visible.len());
    for word in visible.split(' ').filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

/// A body: line feeds and tabs stay, every kind of line end is one line feed; the result is NFC.
pub fn clean_text(text: &str) -> String {
    let lines = text.replace("\r\n", "\n").replace(['\r', '\u{2028}', '\u{2029}'], "\n");
    without_invisible(&lines, |c| matches!(c, '\n' | '\t'))
}

/// A base name that is safe on any file system; never empty.
pub fn clean_file_name(name: &str) -> String {
    let line = clean_line(name);
    let base = line.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut kept = String::with_capacity(base.len());
    for c in base.chars() {
        match c {
            '<' | '>' | ':' | '"' | '|' | '?' | '*' => kept.push('_'),
            '.' if kept.is_empty() || kept.ends_with('.') => {}
            other => kept.push(other),
        }
    }
    let kept = shortened(kept.trim_matches([' ', '.']));
    let stem = kept.split('.').next().unwrap_or_default().to_ascii_uppercase();
    if kept.is_empty() {
        "attachment".to_owned()
    } else if is_reserved(&stem) {
        format!("_{kept}")
    } else {
        kept
    }
}

/// Whether a character shows nothing and can carry hidden meaning: bidi controls, zero-width
/// characters, tags, and the variation selectors that no font uses.
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fe00}'..='\u{fe0f}' | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Drops control and invisible characters. Joiners and emoji selectors stay where writing systems use
/// them, after a visible character beyond ASCII, so that hidden letters cannot be spelled with them.
fn without_invisible(text: &str, keep_control: impl Fn(char) -> bool) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut before = ' ';
    for c in text.chars() {
        let joins = matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0f}');
        let dropped = if c.is_control() {
            !keep_control(c)
        } else if joins {
            before.is_ascii() || is_invisible(before) && !(c == '\u{200d}' && before == '\u{fe0f}')
        } else {
            is_invisible(c)
        };
        if !dropped {
            kept.push(c);
            before = c;
        }
    }
    kept.nfc().collect()
}

fn is_reserved(stem: &str) -> bool {
    matches!(stem, "CON" | "PRN" | "AUX" | "NUL")
        || stem
            .strip_prefix("COM")
            .or_else(|| stem.strip_prefix("LPT"))
            .is_some_and(|rest| rest.len() == 1 && rest != "0" && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Cuts the stem, so that the extension stays.
fn shortened(name: &str) -> String {
    if name.len() <= NAME_BYTES {
        return name.to_owned();
    }
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if extension.len() <= 16 => (stem, format!(".{extension}")),
        _ => (name, String::new()),
    };
    let mut end = NAME_BYTES.saturating_sub(extension.len()).min(stem.len());
    while !stem.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{extension}", stem.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn email_c4_lines_lose_controls_bidi_and_tags() {
        assert_eq!(clean_line("Hi\r\nBcc: x@y\u{0}\u{202e}gpj.exe\u{e0041}\u{200b}"), "Hi Bcc: x@ygpj.exe");
        assert_eq!(clean_line("  a \t\n b  "), "a b");
        assert_eq!(clean_line("ig\u{200d}nore"), "ignore");
    }

    #[test]
    fn email_c4_emoji_and_joined_scripts_survive() {
        assert_eq!(clean_line("\u{1f468}\u{200d}\u{1f469} \u{2764}\u{fe0f}"), "\u{1f468}\u{200d}\u{1f469} \u{2764}\u{fe0f}");
        assert_eq!(clean_line("\u{645}\u{6cc}\u{200c}\u{62e}"), "\u{645}\u{6cc}\u{200c}\u{62e}");
        assert_eq!(clean_line("\u{1f600}\u{fe01}\u{fe02}\u{e0101}"), "\u{1f600}");
    }

    #[test]
    fn email_c5_text_is_composed_and_line_ends_are_one_kind() {
        assert_eq!(clean_text("a\r\nb\rc\u{2028}d\u{7}e\u{301}"), "a\nb\nc\nd\u{e9}");
    }

    #[test]
    fn email_c11_security_s28_names_are_safe_base_names() {
        for (given, wanted) in [
            ("../../etc/passwd", "passwd"),
            ("C:\\Users\\x\\cake.pdf", "cake.pdf"),
            ("..", "attachment"),
            ("", "attachment"),
            (".htaccess", "htaccess"),
            ("NUL.txt", "_NUL.txt"),
            ("com1", "_com1"),
            ("a\u{202e}fdp.exe", "afdp.exe"),
            ("what?.txt.", "what_.txt"),
            ("a..b.txt", "a.b.txt"),
        ] {
            assert_eq!(clean_file_name(given), wanted, "{given:?}");
        }
        let long = clean_file_name(&format!("{}.pdf", "\u{e9}".repeat(200)));
        assert!(long.len() <= NAME_BYTES && long.ends_with(".pdf"), "{long}");
    }
}
