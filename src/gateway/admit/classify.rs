//! Is it from a machine? (email F1-F5, H1, H5; security S8, S21.) The reason found stands in lists.

use crate::config::Mailbox;
use crate::gateway::parse::Headers;
use crate::mail::{Address, Inbound};

/// Why a letter is machine mail; none for a person's. What comes through the mailbox's `own_lists` and
/// `forms` is excused from the rules that such mail always breaks.
pub fn machine(headers: &Headers, inbound: &Inbound, mailbox: &Mailbox) -> Option<String> {
    let through_form = mailbox.forms.contains(&inbound.from.address);
    let reason = report(headers)
        .or_else(|| automatic(headers))
        .or_else(|| bounce(headers, &inbound.from.address))
        .or_else(|| if is_own_list(headers, mailbox) { None } else { bulk(headers) })
        .or_else(|| looped(headers, mailbox))
        .or_else(|| out_of_office(headers, inbound))
        .or_else(|| if through_form { None } else { no_reply(inbound.from.address.local()) });
    reason.map(str::to_owned)
}

/// Whether the letter came through one of the shop's own groups.
pub fn is_own_list(headers: &Headers, mailbox: &Mailbox) -> bool {
    headers.all("list-id").any(|value| {
        let id = value.rsplit_once('<').map_or(value, |(_, rest)| rest.split('>').next().unwrap_or_default()).trim();
        mailbox.own_lists.iter().any(|own| own.trim_matches(['<', '>']).eq_ignore_ascii_case(id))
    })
}

/// Delivery, disposition and feedback reports (email H1, H5): the outer type decides.
fn report(headers: &Headers) -> Option<&'static str> {
    let media_type = headers.media_type();
    let kind = headers.content_type_parameter("report-type").unwrap_or_default();
    match (media_type.as_str(), kind.as_str()) {
        ("multipart/report", "delivery-status") | ("message/delivery-status", _) => Some("bounce"),
        ("multipart/report", "disposition-notification") | ("message/disposition-notification", _) => Some("read receipt"),
        ("multipart/report", "feedback-report") | ("message/feedback-report", _) => Some("abuse report"),
        ("multipart/report", _) => Some("report"),
        ("text/calendar", _) if headers.content_type_parameter("method").is_some_and(|method| is_calendar_answer(&method)) => {
            Some("calendar reply")
        }
        _ => headers.calendar_method.as_deref().filter(|method| is_calendar_answer(method)).map(|_| "calendar reply"),
    }
}

fn is_calendar_answer(method: &str) -> bool {
    matches!(method.to_ascii_uppercase().as_str(), "REPLY" | "COUNTER" | "DECLINECOUNTER")
}

fn automatic(headers: &Headers) -> Option<&'static str> {
    // RFC 3834: everything but "no", with comments and parameters aside (email F3).
    if headers.all("auto-submitted").map(first_word).any(|word| !word.is_empty() && word != "no") {
        return Some("auto-submitted");
    }
    let set = |name: &str| headers.all(name).any(|value| !matches!(first_word(value).as_str(), "" | "no" | "none" | "false"));
    let answers = ["x-autoreply", "x-autorespond", "x-autoresponder", "x-auto-reply", "x-ms-exchange-inbox-rules-loop", "x-mail-autoreply"];
    if answers.into_iter().any(set) {
        return Some("automatic reply");
    }
    if set("x-fc-machinegenerated") { Some("machine generated") } else { None }
}

fn first_word(value: &str) -> String {
    let value = value.trim_start();
    let value = if value.starts_with('(') { value.split_once(')').map_or("", |(_, rest)| rest.trim_start()) } else { value };
    value.split([' ', '\t', ';', '(', ',']).next().unwrap_or_default().trim_matches('"').to_ascii_lowercase()
}

fn bounce(headers: &Headers, from: &Address) -> Option<&'static str> {
    let returned =
        headers.first("return-path").map(|path| path.trim().trim_start_matches('<').trim_end_matches('>').trim().to_ascii_lowercase());
    if returned.as_deref() == Some("") {
        return Some("empty return path");
    }
    let is_daemon = |local: &str| matches!(local, "mailer-daemon" | "mail-daemon" | "maildaemon");
    let path = returned.as_deref().and_then(|path| path.split('@').next()).unwrap_or_default();
    (is_daemon(path) || is_daemon(&from.local().to_ascii_lowercase()) || headers.first("x-failed-recipients").is_some()).then_some("bounce")
}

fn bulk(headers: &Headers) -> Option<&'static str> {
    if headers.iter().any(|(name, _)| name.starts_with("list-")) || headers.first("mailing-list").is_some() {
        return Some("list mail");
    }
    let precedence =
        headers.all("precedence").map(first_word).find(|word| matches!(word.as_str(), "bulk" | "list" | "junk" | "auto_reply"))?;
    Some(if precedence == "auto_reply" { "automatic reply" } else { "bulk mail" })
}

/// A loop mark with one of our own addresses in it.
fn looped(headers: &Headers, mailbox: &Mailbox) -> Option<&'static str> {
    let marks = headers.iter().filter(|(name, _)| matches!(*name, "x-loop" | "x-dutiful-loop" | "x-beenthere"));
    let mut words = marks.flat_map(|(_, value)| value.split([' ', ',', '<', '>', ';']));
    words.any(|word| word.parse::<Address>().is_ok_and(|address| mailbox.own_addresses().any(|own| *own == address))).then_some("loop")
}

/// A subject that answering machines write raises suspicion; it decides only together with a sign that no
/// person wrote (email F5).
fn out_of_office(headers: &Headers, inbound: &Inbound) -> Option<&'static str> {
    const SUBJECTS: [&str; 26] = [
        "automatic reply",
        "auto reply",
        "auto-reply",
        "autoreply",
        "auto response",
        "auto-response",
        "out of office",
        "out of the office",
        "abwesend",
        "abwesenheitsnotiz",
        "automatische antwort",
        "abwesenheit",
        "réponse automatique",
        "absence du bureau",
        "respuesta automática",
        "fuera de la oficina",
        "risposta automatica",
        "fuori sede",
        "resposta automática",
        "automatisch antwoord",
        "afwezigheidsbericht",
        "autosvar",
        "automaattinen vastaus",
        "odpowiedź automatyczna",
        "автоответ",
        "自動応答",
    ];
    let subject = inbound.subject.to_lowercase();
    let suspected = SUBJECTS.iter().any(|start| subject.strip_prefix(start).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric)));
    let suppresses = headers
        .all("x-auto-response-suppress")
        .any(|value| value.split([',', ' ']).any(|word| matches!(word.to_ascii_lowercase().as_str(), "all" | "oof" | "autoreply")));
    let answers = !inbound.in_reply_to.is_empty() || !inbound.references.is_empty();
    let by_hand = headers.first("user-agent").or_else(|| headers.first("x-mailer")).is_some();
    (suspected && (suppresses || answers && !by_hand)).then_some("automatic reply")
}

/// Senders that nobody reads (email F4).
fn no_reply(local: &str) -> Option<&'static str> {
    let local = local.to_ascii_lowercase();
    let base = local.split('+').next().unwrap_or_default();
    let flat: String = base.chars().filter(|c| !matches!(c, '-' | '_' | '.')).collect();
    let is_no_reply =
        ["noreply", "donotreply", "nepasrepondre", "noresponder"].iter().any(|word| flat.starts_with(word) || flat.ends_with(word));
    let is_machine = matches!(base, "postmaster" | "mailer-daemon" | "bounce" | "bounces")
        || base.starts_with("owner-")
        || base.ends_with("-request")
        || base.ends_with("-bounces")
        || base.starts_with("bounce-")
        || base.starts_with("bounces-");
    if is_no_reply {
        Some("no-reply sender")
    } else if is_machine {
        Some("machine sender")
    } else {
        None
    }
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
