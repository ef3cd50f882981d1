//! `[mailboxes.NAME]`.

use std::time::Duration;

use super::server::{is_loopback, receive, send};
use super::{Entry, Section, unacted};
use crate::config::names::Names;
use crate::config::{AfterProcessing, Mailbox, OnUncertain, Receive, Security, Send, SentCopy, Trust};
use crate::mail::Address;

/// Bytes of a file with certificates.
const LONGEST_CA: u64 = 1 << 20;

/// Reads one mailbox; none when something required is wrong, which is recorded then.
pub(super) fn mailbox(name: &str, entry: &Entry<'_>, names: &Names) -> Option<Mailbox> {
    let section = entry.section()?;
    let plaintext = section.get("plaintext");
    let plain = plaintext.as_ref().and_then(Entry::boolean).unwrap_or(false);
    let address = section.required("address", "address = \"NAME@DOMAIN\"").and_then(|entry| entry.parsed::<Address>());
    let receive_entry = section.required("receive", "receive = \"imaps://HOST\"");
    let received = receive_entry.as_ref().and_then(|entry| receive(entry, section.home(), plain));
    let send_entry = section.required("send", "send = \"submissions://HOST\"");
    let sent = send_entry.as_ref().and_then(|entry| send(entry, section.home(), plain));
    if let Some(entry) = plaintext.filter(|_| plain) {
        only_loopback(&entry, received.as_ref(), sent.as_ref());
    }
    let login = login(&section, received.as_ref(), sent.as_ref());
    if let (Some(entry), Some(Send::Sendmail(path))) = (&send_entry, &sent) {
        warn_of_sendmail(entry, path);
    }
    let trust = section.get("trust");
    let trusted = trust.as_ref().and_then(|entry| entry.word(&[("none", Trust::None), ("verified", Trust::Verified)]));
    if let (Some(entry), Some(Trust::Verified), Some(Receive::Imap(_))) = (trust, trusted, &received) {
        entry.wrong("is \"verified\" for an IMAP mailbox", "leave it out and name the receiver in trusted_authserv_ids");
    }
    let trust = trusted.unwrap_or(Trust::None);
    let trusted_authserv_ids = section.strings("trusted_authserv_ids").unwrap_or_default();
    if trusted_authserv_ids.is_empty() && trust == Trust::None {
        section.warning(
            "nobody is ever verified here: everybody is answered and conversations are held, but nothing is done for a customer on the strength of a From line; name your receiver in trusted_authserv_ids",
        );
    }
    let aliases = addresses(&section, "aliases");
    let forms = addresses(&section, "forms");
    let folder = section.text("folder").unwrap_or_else(|| "INBOX".into());
    let agent = section.get("agent").and_then(|entry| names.agents.pointed(&entry));
    let ca = section.get("ca_file").and_then(|entry| ca(&entry));
    let own_lists = section.strings("own_lists").unwrap_or_default();
    let poll = poll(&section);
    let after_processing = section.get("after_processing").and_then(|entry| after(&entry)).unwrap_or(AfterProcessing::Keyword);
    let copies = [("auto", SentCopy::Auto), ("on", SentCopy::On), ("off", SentCopy::Off)];
    let sent_copy = section.word("sent_copy", &copies).unwrap_or(SentCopy::Auto);
    let choices = [("resend_once", OnUncertain::ResendOnce), ("hold", OnUncertain::Hold)];
    let on_uncertain = section.word("on_uncertain", &choices).unwrap_or(OnUncertain::ResendOnce);
    section.finish();
    Some(Mailbox {
        name: name.to_owned(),
        address: address?,
        aliases,
        receive: received?,
        send: sent?,
        username: login.username,
        password: login.password,
        token_command: login.token_command,
        folder,
        agent,
        ca,
        trusted_authserv_ids,
        own_lists,
        forms,
        poll,
        after_processing,
        sent_copy,
        on_uncertain,
        trust,
    })
}

struct Login {
    username: Option<String>,
    password: Option<crate::config::Secret>,
    token_command: Option<Vec<String>>,
}

fn login(section: &Section<'_>, receive: Option<&Receive>, send: Option<&Send>) -> Login {
    let username = section.text("username");
    let password_entry = section.get("password");
    let oauth2 = section.get("oauth2");
    if let (Some(_), Some(entry)) = (&password_entry, &oauth2) {
        entry.wrong("stands beside a password", "keep one of the two");
    }
    let servers = matches!(receive, Some(Receive::Imap(_))) || matches!(send, Some(Send::Smtp(_)));
    let title = section.title();
    if servers && section.get("username").is_none() {
        section.problem(format!("{title} has no `username`; its servers want one: write username = \"NAME\""));
    }
    if servers && password_entry.is_none() && oauth2.is_none() {
        section.problem(format!("{title} has no `password`; its servers want one: write password = {{ credential = \"NAME\" }}"));
    }
    let password = password_entry.and_then(|entry| entry.secret());
    Login { username, password, token_command: oauth2.and_then(|entry| token_command(&entry)) }
}

/// `oauth2`: a command that prints a token, or a provider with what it asks for.
fn token_command(entry: &Entry<'_>) -> Option<Vec<String>> {
    let section = entry.section()?;
    let command = section.get("token_command");
    let provider = section.get("provider");
    let found = command.as_ref().and_then(Entry::command);
    match (&command, &provider) {
        (Some(_), None) => {}
        (None, Some(named)) => {
            named.word(&[("google", ()), ("microsoft", ())]);
            section.required("client_id", "client_id = \"ID\"").and_then(|entry| entry.text());
            for key in ["client_secret", "refresh_token"] {
                section.required(key, &format!("{key} = {{ credential = \"NAME\" }}")).and_then(|entry| entry.secret());
            }
            unacted::warn(named, "oauth2.provider", "`oauth2.provider`");
        }
        _ => entry.wrong("needs one of token_command and provider", "write { token_command = [\"PROGRAM\"] }"),
    }
    for key in ["client_id", "client_secret", "refresh_token"] {
        if let (Some(extra), Some(_)) = (section.get(key), &command) {
            extra.wrong("stands beside token_command", "take it out");
        }
    }
    section.finish();
    found
}

fn only_loopback(entry: &Entry<'_>, receive: Option<&Receive>, send: Option<&Send>) {
    let receiving = receive.and_then(|receive| if let Receive::Imap(server) = receive { Some(server) } else { None });
    let sending = send.and_then(|send| if let Send::Smtp(server) = send { Some(server) } else { None });
    for server in [receiving, sending].into_iter().flatten().filter(|server| server.security == Security::Plaintext) {
        if !is_loopback(&server.host) {
            entry.wrong(
                format_args!("would send the password to {} in the clear", server.host),
                "take it out; it is only for a loopback host",
            );
        }
    }
}

fn warn_of_sendmail(entry: &Entry<'_>, path: &std::path::Path) {
    if !path.is_file() {
        entry.warning(format!("there is no program {}; no letter leaves until it is there", path.display()));
    }
    entry.warning(
        "`sendmail:` cannot work under systemd's NoNewPrivileges, which the shipped unit sets; use submission:// or submissions://",
    );
}

/// A list of addresses.
pub(super) fn addresses(section: &Section<'_>, key: &'static str) -> Vec<Address> {
    let items = section.get(key).and_then(|entry| entry.items()).unwrap_or_default();
    items.iter().filter_map(Entry::parsed).collect()
}

fn poll(section: &Section<'_>) -> Duration {
    let usual = Duration::from_secs(60);
    let Some(entry) = section.get("poll") else { return usual };
    let poll = entry.duration().unwrap_or(usual);
    if poll < Duration::from_secs(1) {
        entry.wrong("is under a second", "write \"1s\" or more");
    }
    poll
}

fn after(entry: &Entry<'_>) -> Option<AfterProcessing> {
    match entry.string()? {
        "none" => Some(AfterProcessing::None),
        "seen" => Some(AfterProcessing::Seen),
        "keyword" => Some(AfterProcessing::Keyword),
        text => match text.strip_prefix("move:").filter(|folder| !folder.is_empty() && !folder.contains(char::is_control)) {
            Some(folder) => Some(AfterProcessing::Move(folder.to_owned())),
            None => {
                entry.wrong(format_args!("is {}", super::quoted(text)), "write one of \"none\", \"seen\", \"keyword\", \"move:FOLDER\"");
                None
            }
        },
    }
}

/// A certificate file that holds no certificate is found now, not at the first connection.
fn ca(entry: &Entry<'_>) -> Option<Vec<u8>> {
    let (_, bytes) = entry.file(LONGEST_CA)?;
    if crate::tls::client_config(Some(&bytes)).is_err() {
        entry.wrong("names a file without a usable certificate", "name a PEM file with the server's root certificate");
        return None;
    }
    Some(bytes)
}
