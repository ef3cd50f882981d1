//! Markdown of a model, made into HTML that can do nothing but be read (security S18, S19).

use std::collections::BTreeSet;

use pulldown_cmark::{CodeBlockKind, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd, html};
use url::Url;

/// The HTML of a Markdown text: raw HTML shows as the text it is, an image as its description, and a link
/// lives only when its host is one of `live_hosts`.
pub(super) fn to_html(markdown: &str, live_hosts: &BTreeSet<String>) -> String {
    let parser = Parser::new_ext(markdown, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH);
    let mut open_links = Vec::new();
    let mut page = String::with_capacity(markdown.len() * 2);
    html::push_html(&mut page, parser.flat_map(|event| harmless(event, live_hosts, &mut open_links)));
    page
}

/// Escapes a plain text for HTML, line by line.
pub(super) fn plain_to_html(text: &str) -> String {
    let mut page = String::with_capacity(text.len() + 16);
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            page.push_str("<br>\n");
        }
        for c in line.chars() {
            match c {
                '&' => page.push_str("&amp;"),
                '<' => page.push_str("&lt;"),
                '>' => page.push_str("&gt;"),
                '"' => page.push_str("&quot;"),
                c => page.push(c),
            }
        }
    }
    page
}

/// One event as it may be rendered; `open_links` remembers for each open link what follows its label, none
/// when it lives.
fn harmless<'a>(event: Event<'a>, live_hosts: &BTreeSet<String>, open_links: &mut Vec<Option<String>>) -> Vec<Event<'a>> {
    match event {
        Event::Html(raw) | Event::InlineHtml(raw) => vec![Event::Text(raw)],
        Event::Start(Tag::HtmlBlock) => vec![Event::Start(Tag::Paragraph)],
        Event::End(TagEnd::HtmlBlock) => vec![Event::End(TagEnd::Paragraph)],
        Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => Vec::new(),
        Event::Start(Tag::CodeBlock(_)) => vec![Event::Start(Tag::CodeBlock(CodeBlockKind::Indented))],
        Event::Start(Tag::Link { link_type, dest_url, id, .. }) => match live(&dest_url, live_hosts) {
            Some(url) => {
                open_links.push(None);
                vec![Event::Start(Tag::Link { link_type: LinkType::Inline, dest_url: url.into(), title: CowStr::Borrowed(""), id })]
            }
            None => {
                open_links.push(Some(shown(&dest_url, link_type)));
                Vec::new()
            }
        },
        Event::End(TagEnd::Link) => match open_links.pop() {
            Some(Some(shown)) => vec![Event::Text(shown.into())],
            _ => vec![Event::End(TagEnd::Link)],
        },
        other => vec![other],
    }
}

/// What a reader sees of a dead link after its label: its address, when a person could want it.
fn shown(target: &str, link_type: LinkType) -> String {
    let wanted = Url::parse(target).is_ok_and(|url| matches!(url.scheme(), "http" | "https" | "mailto"));
    if wanted && !matches!(link_type, LinkType::Autolink | LinkType::Email) { format!(" ({target})") } else { String::new() }
}

/// The address of a link as it may live, or none.
fn live(target: &str, live_hosts: &BTreeSet<String>) -> Option<String> {
    // `<alice@shop.example>` arrives without its scheme.
    let url = Url::parse(target).or_else(|_| Url::parse(&format!("mailto:{target}"))).ok()?;
    let host = match url.scheme() {
        "http" | "https" if url.username().is_empty() && url.password().is_none() => url.host_str()?.to_owned(),
        "mailto" if url.query().is_none() && url.fragment().is_none() => {
            let (local, domain) = url.path().split_once('@')?;
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+');
            (!local.is_empty() && local.chars().all(plain) && domain.chars().all(plain)).then(|| domain.to_ascii_lowercase())?
        }
        _ => return None,
    };
    live_hosts.contains(&host).then(|| url.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(markdown: &str) -> String {
        to_html(markdown, &BTreeSet::from(["shop.example".to_owned()]))
    }

    #[test]
    fn email_g2_text_becomes_html_and_raw_html_becomes_text() {
        assert_eq!(html("*Hi* **you**\n\n- a\n- b"), "<p><em>Hi</em> <strong>you</strong></p>\n<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n");
        assert_eq!(html("a <b onclick=x>b</b>"), "<p>a &lt;b onclick=x&gt;b&lt;/b&gt;</p>\n");
        assert_eq!(html("<script>\nalert(1)\n</script>"), "<p>&lt;script&gt;\nalert(1)\n&lt;/script&gt;</p>\n");
    }

    #[test]
    fn security_s18_nothing_that_loads_survives() {
        let payloads = [
            "![x](http://evil.example/p.png)",
            "![x][r]\n\n[r]: //evil.example/p.png",
            "[![x](cid:1)](http://evil.example)",
            "<img src=http://evil.example>",
            "<svg onload=alert(1)>",
            "<iframe src=//evil.example></iframe>",
            "<style>@import 'http://evil.example'</style>",
            "```\"><img src=x>\ncode\n```",
            "[x](data:text/html,hi)",
            "[x](javascript:alert(1))",
            "[x]( \"'><img src=x>\" )",
        ];
        for payload in payloads {
            let page = html(payload);
            for forbidden in ["<img", "<a ", "<svg", "<iframe", "<style", "<script", "src=\"", "href="] {
                assert!(!page.contains(forbidden), "{payload} gave {page}");
            }
        }
    }

    #[test]
    fn security_s19_only_listed_hosts_live() {
        assert!(html("[menu](https://SHOP.example/menu?x=1)").contains("<a href=\"https://shop.example/menu?x=1\">menu</a>"));
        assert!(html("<https://shop.example/a>").contains("<a href=\"https://shop.example/a\">"));
        assert!(html("<help@shop.example>").contains("<a href=\"mailto:help@shop.example\">"));
        for dead in [
            "[m](https://evil.example/?c=canary)",
            "[m](https://sub.shop.example/)",
            "[m](https://shop.example@evil.example/)",
            "[m](https://canary@shop.example/)",
            "[m](https://shop.example.evil.example/)",
            "[m](//shop.example/x)",
            "[m](/x)",
            "[m](mailto:a@shop.example?bcc=b@evil.example)",
            "[m](mailto:a@shop.example,b@evil.example)",
            "[m](mailto:b@evil.example)",
            "[m](ftp://shop.example/)",
            "[m](https://xn--shp-1na.example/)",
        ] {
            let page = html(dead);
            assert!(!page.contains("href"), "{dead} gave {page}");
            assert!(page.contains('m'), "{dead} lost its label: {page}");
        }
        assert_eq!(html("[the carrier](https://track.example/1)"), "<p>the carrier (https://track.example/1)</p>\n");
    }
}
