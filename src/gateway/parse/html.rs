//! HTML to text (email C9, C10). A linear pass of our own drops what a reader would not see and flattens
//! what nests too deep, so that the recursive renderer only ever meets small, well-formed trees.

use std::collections::HashMap;

/// The most HTML that is read.
const HTML_BYTES: usize = 2 * 1024 * 1024;
/// The most nested elements that reach the renderer.
const DEPTH: usize = 200;
/// Stands where text was hidden from the reader.
pub(super) const HIDDEN: &str = "[hidden text removed]";
/// A colour that nobody can know: a picture.
const UNKNOWN_COLOUR: &str = "?";

/// What became of a piece of HTML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rendered {
    pub(super) text: String,
    /// Text was there that a reader would not have seen.
    pub(super) hidden: bool,
    /// Only the first 2 MiB were read.
    pub(super) cut: bool,
}

/// Turns HTML into text. Nothing is fetched (email K5).
pub(super) fn to_text(html: &str) -> Rendered {
    let mut end = html.len().min(HTML_BYTES);
    while !html.is_char_boundary(end) {
        end -= 1;
    }
    let mut pass = Pass::default();
    pass.run(html.get(..end).unwrap_or_default());
    let rendered = html2text::config::plain_no_decorate()
        .no_table_borders()
        .allow_width_overflow()
        .string_from_read(pass.out.as_bytes(), 4000)
        .unwrap_or_else(|_| bare_text(&pass.out));
    let mut text = String::with_capacity(rendered.len());
    for line in rendered.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Rendered { text: text.trim().to_owned(), hidden: pass.hidden_text, cut: end < html.len() }
}

/// The text between tags, when the renderer gives up.
fn bare_text(html: &str) -> String {
    let mut inside = false;
    html.chars()
        .filter_map(|c| match c {
            '<' => {
                inside = true;
                None
            }
            '>' if inside => {
                inside = false;
                Some(' ')
            }
            other => (!inside).then_some(other),
        })
        .collect()
}

/// One open element.
#[derive(Debug)]
struct Open {
    name: String,
    /// As it was written to the output.
    written: Option<&'static str>,
    /// Nothing inside can be seen.
    hidden: bool,
    /// What is hidden is no text for anybody: not worth a remark.
    silent: bool,
    /// A link's target, written behind its text.
    target: Option<String>,
    look: Look,
}

/// What decides whether text right inside an element can be seen; elements further in may change it.
#[derive(Debug, Clone)]
struct Look {
    background: String,
    colour: String,
    font_is_zero: bool,
}

impl Look {
    fn hides_text(&self) -> bool {
        self.font_is_zero || self.colour == self.background && self.background != UNKNOWN_COLOUR
    }

    /// The look inside an element with these attributes.
    fn with(&self, attributes: &Attributes) -> Look {
        let font_is_zero = match attributes.declared("font-size") {
            Some(size) if is_zero(size) => true,
            // A part of nothing is nothing.
            Some(size) if size.ends_with("em") && !size.ends_with("rem") || size.ends_with('%') || size == "inherit" => self.font_is_zero,
            Some(_) => false,
            None => self.font_is_zero,
        };
        Look {
            background: attributes.background().unwrap_or_else(|| self.background.clone()),
            colour: attributes.colour().unwrap_or_else(|| self.colour.clone()),
            font_is_zero,
        }
    }
}

impl Default for Look {
    fn default() -> Self {
        Look { background: "ffffff".to_owned(), colour: "000000".to_owned(), font_is_zero: false }
    }
}

#[derive(Debug, Default)]
struct Pass {
    out: String,
    stack: Vec<Open>,
    open_names: HashMap<String, usize>,
    written: usize,
    hidden_text: bool,
    hidden_noted: bool,
}

impl Pass {
    fn run(&mut self, html: &str) {
        let mut rest = html;
        while let Some((text, after)) = rest.split_once('<') {
            self.text(text);
            rest = self.markup(after);
        }
        self.text(rest);
        while let Some(open) = self.stack.pop() {
            self.close_written(&open);
        }
    }

    /// Handles what stands behind a `<`; gives what is left.
    fn markup<'x>(&mut self, after: &'x str) -> &'x str {
        if let Some(comment) = after.strip_prefix("!--") {
            return comment.split_once("-->").map_or("", |(_, rest)| rest);
        }
        if after.starts_with(['!', '?']) {
            return after.split_once('>').map_or("", |(_, rest)| rest);
        }
        let closing = after.strip_prefix('/');
        let inside = closing.unwrap_or(after);
        if !inside.starts_with(|c: char| c.is_ascii_alphabetic()) {
            self.text("\u{2039}");
            return after;
        }
        let Some(length) = tag_length(inside) else { return "" };
        let (tag, rest) = inside.split_at_checked(length).unwrap_or((inside, ""));
        let rest = rest.strip_prefix('>').unwrap_or(rest);
        let name_end = tag.find(|c: char| c.is_ascii_whitespace() || c == '/').unwrap_or(tag.len());
        let (name, attributes) = tag.split_at_checked(name_end).unwrap_or((tag, ""));
        let name = name.to_ascii_lowercase();
        if closing.is_some() {
            self.close(&name);
            return rest;
        }
        if matches!(name.as_str(), "script" | "style" | "title" | "textarea" | "xmp" | "noembed" | "noframes" | "iframe") {
            return after_raw_text(rest, &name);
        }
        self.open(&name, attributes);
        rest
    }

    fn open(&mut self, name: &str, attributes: &str) {
        let attributes = Attributes::read(attributes);
        match name {
            "br" => return self.write("<br>"),
            "hr" => return self.write("<div>---</div>"),
            "img" => {
                let alt = attributes.value("alt");
                if !self.hides_text() && !alt.trim().is_empty() {
                    self.text(&format!("[{}]", alt.replace('<', "\u{2039}")));
                }
                return;
            }
            "input" | "meta" | "link" | "base" | "area" | "col" | "embed" | "param" | "source" | "track" | "wbr" => return,
            "body" => self.close("head"),
            _ => {}
        }
        if is_block(name) && self.stack.last().is_some_and(|open| open.name == "p") {
            self.close("p");
        }
        if matches!(name, "li" | "td" | "th" | "tr" | "dt" | "dd" | "option") && self.stack.last().is_some_and(|open| open.name == name) {
            self.close(name);
        }
        let look = self.stack.last().map_or_else(|| Look::default().with(&attributes), |outer| outer.look.with(&attributes));
        let silent = matches!(name, "head" | "svg" | "math" | "object" | "select" | "datalist" | "audio" | "video")
            || self.stack.last().is_some_and(|outer| outer.silent);
        let hidden = silent || name == "template" || attributes.hide() || self.is_hidden();
        let written = written_as(name).filter(|_| self.written < DEPTH && !hidden);
        if let Some(tag) = written {
            self.write(&format!("<{tag}>"));
            self.written += 1;
        }
        let target = (name == "a").then(|| attributes.value("href")).filter(|href| !href.trim().is_empty());
        *self.open_names.entry(name.to_owned()).or_default() += 1;
        self.stack.push(Open { name: name.to_owned(), written, hidden, silent, target, look });
    }

    /// Closes the innermost element of this name, and what was left open inside it.
    fn close(&mut self, name: &str) {
        if self.open_names.get(name).is_none_or(|count| *count == 0) {
            return;
        }
        while let Some(open) = self.stack.pop() {
            self.close_written(&open);
            if open.name == name {
                return;
            }
        }
    }

    fn close_written(&mut self, open: &Open) {
        if let Some(count) = self.open_names.get_mut(&open.name) {
            *count = count.saturating_sub(1);
        }
        if let Some(target) = &open.target
            && !open.hidden
            && !self.out.ends_with(target.as_str())
        {
            self.write(&format!(" &lt;{}&gt;", target.trim().replace('<', "%3C").replace('>', "%3E")));
        }
        if let Some(tag) = open.written {
            self.write(&format!("</{tag}>"));
            self.written = self.written.saturating_sub(1);
        }
    }

    fn text(&mut self, text: &str) {
        let is_blank = is_blank(text);
        if !self.hides_text() {
            self.hidden_noted &= is_blank;
            self.out.push_str(text);
        } else if !is_blank && !self.hidden_noted && self.stack.last().is_some_and(|open| !open.silent) {
            self.hidden_noted = true;
            self.hidden_text = true;
            self.out.push(' ');
            self.out.push_str(HIDDEN);
            self.out.push(' ');
        }
    }

    fn write(&mut self, markup: &str) {
        if !self.is_hidden() {
            self.out.push_str(markup);
        }
    }

    fn is_hidden(&self) -> bool {
        self.stack.last().is_some_and(|open| open.hidden)
    }

    fn hides_text(&self) -> bool {
        self.stack.last().is_some_and(|open| open.hidden || open.look.hides_text())
    }
}

/// Whether a text shows nothing. Preheaders are filled with blanks written as entities.
fn is_blank(text: &str) -> bool {
    text.split('&').enumerate().all(|(at, piece)| {
        let (entity, rest) = if at == 0 { ("", piece) } else { piece.split_once(';').unwrap_or((piece, "")) };
        let is_blank_entity = matches!(
            entity,
            "" | "nbsp" | "zwnj" | "zwj" | "shy" | "#847" | "#8199" | "#65279" | "#173" | "#160" | "#8203" | "#8204" | "#xFEFF" | "#xA0"
        );
        is_blank_entity && rest.chars().all(|c| c.is_whitespace() || crate::mail::is_invisible(c))
    })
}

/// Up to the `>` that ends a tag; quotes hide it. None when it never ends.
fn tag_length(tag: &str) -> Option<usize> {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in tag.char_indices() {
        match (quote, c) {
            (None, '>') => return Some(at),
            // A quote opens a value only behind an equals sign, as browsers read it.
            (None, '"' | '\'') if before == '=' => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
        if !c.is_whitespace() {
            before = c;
        }
    }
    tag.find('>')
}

/// Skips raw text up to and with its end tag.
fn after_raw_text<'x>(rest: &'x str, name: &str) -> &'x str {
    let mut from = rest;
    while let Some((_, after)) = from.split_once("</") {
        let is_end = after.get(..name.len()).is_some_and(|tag| tag.eq_ignore_ascii_case(name));
        if is_end {
            return after.split_once('>').map_or("", |(_, behind)| behind);
        }
        from = after;
    }
    ""
}

fn is_block(name: &str) -> bool {
    matches!(written_as(name), Some("div" | "p" | "ul" | "ol" | "blockquote" | "pre" | "table" | "h1" | "h2" | "h3"))
}

/// What an element becomes; attributes never pass.
fn written_as(name: &str) -> Option<&'static str> {
    Some(match name {
        "p" => "p",
        "div" | "section" | "article" | "aside" | "header" | "footer" | "main" | "nav" | "form" | "fieldset" | "center" | "address"
        | "figure" | "figcaption" | "details" | "summary" | "dl" | "dt" | "dd" | "legend" | "caption" => "div",
        "table" => "table",
        "tr" => "tr",
        "td" | "th" => "td",
        "ul" => "ul",
        "ol" => "ol",
        "li" => "li",
        "blockquote" => "blockquote",
        "pre" => "pre",
        "h1" => "h1",
        "h2" => "h2",
        "h3" | "h4" | "h5" | "h6" => "h3",
        _ => return None,
    })
}

/// The attributes of a tag that matter: everything else is forgotten.
#[derive(Debug, Default)]
struct Attributes {
    pairs: Vec<(String, String)>,
    /// Declarations of `style`: property and value, lower case, no white space.
    style: Vec<(String, String)>,
}

impl Attributes {
    fn read(text: &str) -> Attributes {
        let mut attributes = Attributes::default();
        let mut rest = text.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        while !rest.is_empty() {
            let end = rest.find(|c: char| c.is_whitespace() || c == '=' || c == '/').unwrap_or(rest.len());
            let (name, after) = rest.split_at_checked(end.max(1)).unwrap_or((rest, ""));
            let after = after.trim_start();
            let (value, after) = match after.strip_prefix('=') {
                Some(value) => attribute_value(value.trim_start()),
                None => ("", after),
            };
            let name = name.to_ascii_lowercase();
            // The first of its name counts, as in browsers.
            if matches!(name.as_str(), "style" | "hidden" | "href" | "alt" | "bgcolor" | "background" | "color")
                && attributes.pairs.iter().all(|(known, _)| *known != name)
            {
                attributes.pairs.push((name, decoded(value)));
            }
            rest = after.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        }
        let style = attributes.value("style").to_ascii_lowercase();
        for declaration in style.split(';') {
            if let Some((property, value)) = declaration.split_once(':') {
                let value: String = value.replace("!important", "").chars().filter(|c| !c.is_whitespace()).collect();
                attributes.style.push((property.trim().to_owned(), value));
            }
        }
        attributes
    }

    fn value(&self, name: &str) -> String {
        self.pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()).unwrap_or_default()
    }

    fn declared(&self, property: &str) -> Option<&str> {
        self.style.iter().rev().find(|(known, _)| known == property).map(|(_, value)| value.as_str())
    }

    fn hide(&self) -> bool {
        let is = |property: &str, wanted: &str| self.declared(property).is_some_and(|value| value == wanted);
        let is_zero = |property: &str| self.declared(property).is_some_and(is_zero);
        let pushed_out = |property: &str| self.declared(property).and_then(number).is_some_and(|pixels| pixels <= -500.0);
        self.pairs.iter().any(|(name, _)| name == "hidden")
            || is("display", "none")
            || is("visibility", "hidden")
            || is("visibility", "collapse")
            || is("mso-hide", "all")
            || is_zero("opacity")
            || is("color", "transparent")
            || is("overflow", "hidden") && ["max-height", "height", "max-width", "width"].into_iter().any(is_zero)
            || ["text-indent", "left", "top", "margin-left"].into_iter().any(pushed_out)
    }

    fn colour(&self) -> Option<String> {
        let attribute = self.value("color");
        self.declared("color").map(str::to_owned).or((!attribute.is_empty()).then_some(attribute)).map(|value| colour_key(&value))
    }

    fn background(&self) -> Option<String> {
        let attribute = self.value("bgcolor");
        let image = !self.value("background").is_empty() || self.declared("background-image").is_some_and(|value| value != "none");
        if image {
            return Some(UNKNOWN_COLOUR.to_owned());
        }
        let declared = self.declared("background-color").or_else(|| self.declared("background"));
        declared
            .map(str::to_owned)
            .or((!attribute.is_empty()).then_some(attribute))
            .map(|value| colour_key(&value))
            .filter(|value| !matches!(value.as_str(), "transparent" | "none" | "inherit" | "initial"))
    }
}

/// Splits an attribute's value from what follows it.
fn attribute_value(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote) {
            return inner.split_once(quote).unwrap_or((inner, ""));
        }
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// The few entities that hide a property from a plain look.
fn decoded(value: &str) -> String {
    if !value.contains('&') {
        return value.to_owned();
    }
    value.replace("&amp;", "&").replace("&quot;", "\"").replace("&#58;", ":").replace("&colon;", ":").replace("&#39;", "'")
}

fn is_zero(value: &str) -> bool {
    number(value).is_some_and(|number| number.abs() < 0.011 || value.ends_with("px") && number.abs() < 1.01)
}

/// The number at the start of a length.
fn number(value: &str) -> Option<f64> {
    let end = value.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(value.len());
    value.get(..end)?.parse().ok()
}

/// One spelling for one colour.
fn colour_key(value: &str) -> String {
    let value = value.trim().to_ascii_lowercase();
    let hex = value.trim_start_matches('#');
    match hex {
        "white" | "fff" | "rgb(255,255,255)" | "rgba(255,255,255,1)" => "ffffff".to_owned(),
        "black" | "000" | "rgb(0,0,0)" | "rgba(0,0,0,1)" => "000000".to_owned(),
        short if short.len() == 3 && short.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            short.chars().flat_map(|digit| [digit, digit]).collect()
        }
        // A picture or a gradient may be of any colour.
        other if other.contains("url(") || other.contains("gradient") => UNKNOWN_COLOUR.to_owned(),
        // Every open element keeps its colours: none may be large.
        other => other.chars().take(32).collect(),
    }
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;
