use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::*;

fn text(html: &str) -> String {
    to_text(html).text
}

#[test]
fn email_c9_what_a_reader_sees_is_kept_apart() {
    assert_eq!(text("<p>One</p><p>Two <b>bold</b></p>"), "One\n\nTwo bold");
    assert_eq!(text("a<br>b<div>c</div>d"), "a\nb\nc\nd");
    let table = text("<table><tr><td>q1</td><td>2l</td></tr><tr><td>x</td><td>y</td></tr></table>");
    assert!(!table.contains("q12l") && table.contains("q1") && table.contains("2l"), "{table}");
    assert_eq!(text("<blockquote>said</blockquote>I answer"), "> said\n\nI answer");
    assert_eq!(text("1 &lt; 2 &amp; caf&eacute; 3 < 4"), "1 < 2 & caf\u{e9} 3 \u{2039} 4");
}

#[test]
fn email_c9_links_keep_their_target() {
    assert_eq!(text("<a href='https://evil.example/x?a=1&amp;b=2'>shop.example</a>!"), "shop.example <https://evil.example/x?a=1&b=2>!");
    assert_eq!(text("<a href=https://shop.example>https://shop.example</a>"), "https://shop.example");
}

#[test]
fn email_c9_code_and_comments_are_dropped() {
    assert_eq!(text("<head><title>t</title><style>p{}</style></head><body>seen<script>alert('</p>')</script><!-- no --></body>"), "seen");
    assert_eq!(text("seen<!-- never closed secret"), "seen");
    assert_eq!(text("seen<script>never closed secret"), "seen");
}

#[test]
fn email_c9_hidden_text_is_removed_and_told() {
    for hidden in [
        "<div style='display:none'>SECRET</div>",
        "<div style=\"DISPLAY : none !important\">SECRET</div>",
        "<span style='visibility:hidden'>SECRET</span>",
        "<span style='font-size:0'>SECRET</span>",
        "<span style='font-size:0.0px'>SECRET</span>",
        "<span style='opacity:0'>SECRET</span>",
        "<p hidden>SECRET</p>",
        "<p hidden=\"\">SECRET</p>",
        "<font color=white>SECRET</font>",
        "<span style='color:#fff'>SECRET</span>",
        "<span style='color:#FFFFFF;background:white'>SECRET</span>",
        "<div style='background-color:#123456'><span style='color:#123456'>SECRET</span></div>",
        "<div style='max-height:0;overflow:hidden'>SECRET</div>",
        "<div style='position:absolute;left:-9999px'>SECRET</div>",
        "<div style='display&#58;none'>SECRET</div>",
        "<div style='display:none'><p>in<b>SECRET</b></p></div>",
        "<div style='display:none'>SECRET",
        "<template>SECRET</template>",
        "<div style='font-size:0'><b style='font-size:2em'>SECRET</b></div>",
        "<div style='color:#fff'><b>SECRET</b></div>",
    ] {
        let rendered = to_text(&format!("<p>before</p>{hidden}"));
        assert!(!rendered.text.contains("SECRET"), "{hidden}: {}", rendered.text);
        assert!(rendered.hidden && rendered.text.contains(HIDDEN), "{hidden}: {}", rendered.text);
    }
}

#[test]
fn email_c9_visible_text_is_not_taken_for_hidden() {
    for html in [
        "<div style='font-size:0.9em'>seen</div>",
        "<div style='opacity:0.5'>seen</div>",
        "<td style='font-size:0px'><div style='font-size:13px'>seen</div></td>",
        "<div style='background:black'><p><font color='white'>seen</font></p></div>",
        "<div bgcolor=black><span style='color:#fff'>seen</span></div>",
        "<table bgcolor='#000'><tr><td style='color:white'>seen</td></tr></table>",
        "<div style='background:url(x.png)'><span style='color:#fff'>seen</span></div>",
        "<div style='display:none'></div>seen",
        "<div style='display:none'>&nbsp;&zwnj;</div>seen",
        "<p style='display:none'><p>seen",
    ] {
        let rendered = to_text(html);
        assert!(rendered.text.contains("seen") && !rendered.hidden, "{html}: {rendered:?}");
    }
}

#[test]
fn email_c10_security_s27_bombs_are_cheap() {
    let mut nested = "<div>".repeat(30_000);
    nested.push_str("deep");
    let mut misnested = String::new();
    for n in 0..4_000 {
        write!(misnested, "<b><p><i></b>{n}").unwrap();
    }
    let unclosed = "<a href=x".repeat(30_000);
    let quotes = "<p x=\"".repeat(30_000);
    let comments = "<!--".repeat(30_000);
    let tables = "<table><tr><td>".repeat(4_000);
    for (name, bomb) in [
        ("nested", nested),
        ("misnested", misnested),
        ("unclosed", unclosed),
        ("quotes", quotes),
        ("comments", comments),
        ("tables", tables),
    ] {
        let began = Instant::now();
        let rendered = to_text(&bomb);
        assert!(began.elapsed() < Duration::from_secs(5), "{name}: {:?}", began.elapsed());
        assert!(name != "nested" || rendered.text.contains("deep"), "{name}");
    }
}

#[test]
fn email_c10_no_more_than_the_cap_is_read() {
    let rendered = to_text(&format!("{}<p>end</p>", "é".repeat(HTML_BYTES / 2)));
    assert!(rendered.cut && !rendered.text.contains("end"));
}
