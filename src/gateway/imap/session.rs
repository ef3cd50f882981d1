//! A logged-in session: the commands that receiving needs, each with a limit and followed to its own
//! tagged answer. After any error but a refusal the session must be dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_imap::imap_proto::{MailboxDatum, MessageSection, Outcome, RequestId, Response, ResponseCode, Status, StatusAttribute};
use async_imap::types::Capability;
use chrono::{DateTime, Utc};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::names::quoted;
use super::response::{capability_word, facts_of, section_of, sent_rank, uid_of, verdict};
use super::{ImapError, Stream, bounded, folder_argument, from_crate, from_read, uid_set, within};
use crate::gateway::receive::Timing;
use crate::mail::MessageId;

/// Bytes that a server may send in answer to a command that asks for no letter.
const ANSWER: u64 = 32 << 20;

/// What SELECT told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selected {
    /// UIDVALIDITY; none when the server has no UIDs that last.
    pub uidvalidity: Option<u32>,
    /// UIDNEXT, which some servers leave out (email B5).
    pub uidnext: Option<u32>,
    /// New keywords may be made (PERMANENTFLAGS has `\*`).
    pub keywords: bool,
}

/// What is known of a letter before its body is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// UID.
    pub uid: u32,
    /// RFC822.SIZE.
    pub bytes: u64,
    /// INTERNALDATE.
    pub received_at: Option<DateTime<Utc>>,
    /// `\Deleted` is set (email B8).
    pub deleted: bool,
}

/// A fetched body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// UID.
    pub uid: u32,
    /// The whole message.
    pub raw: Vec<u8>,
}

/// Looks at one response.
type See<'a> = &'a mut (dyn FnMut(&Response<'_>) + Send);

/// Why IDLE ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The server tells of letters.
    News,
    /// It is time to renew it, or to look anyway.
    Due,
    /// We were told to stop.
    Stopped,
    /// The server refuses IDLE (email A9).
    Refused,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    inner: async_imap::Session<Stream>,
    capabilities: BTreeSet<String>,
    timing: Timing,
    /// Letters in the folder, as last told. Servers repeat the number: only a larger one is news.
    exists: u32,
    /// The number grew since the last look: look again before waiting (email A6).
    news: bool,
}

impl Session {
    /// Takes a session just logged in; asks for its capabilities unless the login told them (email A5).
    pub(super) async fn new(inner: async_imap::Session<Stream>, told: Option<Vec<String>>, timing: Timing) -> Result<Session, ImapError> {
        let mut session = Session { inner, capabilities: BTreeSet::new(), timing, exists: 0, news: false };
        session.capabilities = match told {
            Some(told) => told.into_iter().collect(),
            None => session.ask_capabilities().await?,
        };
        if !session.offers("IMAP4REV1") && !session.offers("IMAP4REV2") {
            return Err(ImapError::Violation("the server speaks no IMAP4rev1"));
        }
        Ok(session)
    }

    async fn ask_capabilities(&mut self) -> Result<BTreeSet<String>, ImapError> {
        let mut found = BTreeSet::new();
        let see = &mut |answer: &Response<'_>| {
            if let Response::Capabilities(listed) = answer {
                found.extend(listed.iter().map(|capability| capability_word(&Capability::from(capability))));
            }
        };
        self.command("CAPABILITY", "CAPABILITY", see).await?;
        Ok(found)
    }

    /// Whether the server has a capability, given in upper case.
    pub fn offers(&self, capability: &str) -> bool {
        self.capabilities.contains(capability)
    }

    /// Whether the server spoke of letters since the last look.
    pub fn has_news(&self) -> bool {
        self.news
    }

    /// Opens a folder, for writing or, with `examine`, for reading only.
    ///
    /// # Errors
    /// See [`ImapError`].
    pub async fn select(&mut self, folder: &str, examine: bool) -> Result<Selected, ImapError> {
        let (step, verb) = if examine { ("EXAMINE", "EXAMINE") } else { ("SELECT", "SELECT") };
        let mut selected = Selected { uidvalidity: None, uidnext: None, keywords: false };
        let see = &mut |answer: &Response<'_>| {
            if let Response::Data { outcome: Outcome { code: Some(code), .. }, .. } = answer {
                match code {
                    ResponseCode::UidValidity(value) => selected.uidvalidity = Some(*value).filter(|value| *value > 0),
                    ResponseCode::UidNext(value) => selected.uidnext = Some(*value).filter(|value| *value > 0),
                    ResponseCode::PermanentFlags(flags) => selected.keywords = flags.iter().any(|flag| flag == "\\*"),
                    _ => {}
                }
            }
        };
        self.command(step, &format!("{verb} {}", folder_argument(folder)), see).await?;
        self.news = false;
        Ok(selected)
    }

    /// UIDNEXT by STATUS, for servers whose SELECT leaves it out (email B5).
    ///
    /// # Errors
    /// See [`ImapError`].
    pub async fn uidnext(&mut self, folder: &str) -> Result<Option<u32>, ImapError> {
        let mut found = None;
        let see = &mut |answer: &Response<'_>| {
            if let Response::MailboxData(MailboxDatum::Status { status, .. }) = answer {
                found = status.iter().find_map(|attribute| match attribute {
                    StatusAttribute::UidNext(value) => Some(*value).filter(|value| *value > 0),
                    _ => None,
                });
            }
        };
        self.command("STATUS", &format!("STATUS {} (UIDNEXT)", folder_argument(folder)), see).await?;
        Ok(found)
    }

    /// Makes the server tell what changed.
    ///
    /// # Errors
    /// See [`ImapError`].
    pub async fn noop(&mut self) -> Result<(), ImapError> {
        self.command("NOOP", "NOOP", &mut |_| {}).await
    }

    /// UIDs of the opened folder that meet the criteria, ascending.
    ///
    /// # Errors
    /// See [`ImapError`].
    pub async fn search(&mut self, criteria: &str) -> Result<Vec<u32>, ImapError> {
        self.news = false;
        let mut uids = BTreeSet::new();
        let see = &mut |answer: &Response<'_>| {
            if let Response::MailboxData(MailboxDatum::Search(found)) = answer {
                uids.extend(found.iter().copied());
            }
        };
        self.command("UID SEARCH", &format!("UID SEARCH {criteria}"), see).await?;
        Ok(uids.into_iter().collect())
    }

    /// Whether the opened folder holds a letter with this Message-ID.
    ///
    /// # Errors
    /// See [`ImapError`].
    pub async fn holds(&mut self, message_id: &MessageId) -> Result<bool, ImapError> {
        let found = self.search(&format!("HEADER Message-ID {}", quoted(&message_id.bracketed()))).await?;
        Ok(!found.is_empty())
    }

    /// Sizes, dates and flags of letters, ascending. `set` is a sequence set; what it does not name, like
    /// another client's flag changes, must be filtered by the caller (email B3, B7).
    ///
    /// # Errors
    /// See [`ImapError`].
    pub async fn facts(&mut self, set: &str) -> Result<Vec<Facts>, ImapError> {
        self.news = false;
        let mut found = BTreeMap::new();
        let see = &mut |answer: &Response<'_>| {
            if let Response::Fetch(_, attributes) = answer
                && let Some(facts) = facts_of(attributes)
            {
                found.insert(facts.uid, facts);
            }
        };
        self.command("FETCH of sizes", &format!("UID FETCH {set} (UID RFC822.SIZE INTERNALDATE FLAGS)"), see).await?;
        Ok(found.into_values().collect())
    }

    /// The bodies of letters, ascending, without marking them as read. `bytes` is their announced size.
    ///
    /// # Errors
    /// See [`ImapError`].
    pub async fn bodies(&mut self, uids: &[u32], bytes: u64) -> Result<Vec<Body>, ImapError> {
        let text = format!("UID FETCH {} (UID BODY.PEEK[])", uid_set(uids.iter().copied()));
        // Some servers announce a size before they convert line ends: twice as much may come.
        let allowed = bytes.saturating_mul(2).saturating_add(ANSWER);
        let mut found = BTreeMap::new();
        let see = &mut |answer: &Response<'_>| {
            if let Response::Fetch(_, attributes) = answer
                && let (Some(uid), Some(raw)) = (uid_of(attributes), section_of(attributes, None))
                && uids.contains(&uid)
            {
                found.insert(uid, raw.to_vec());
            }
        };
        self.run("FETCH", &text, self.timing.fetch, allowed, see).await?;
        Ok(found.into_iter().map(|(uid, raw)| Body { uid, raw }).collect())
    }

    /// The header and the first bytes of the text of a letter that is too large (email J1).
    ///
    /// # Errors
    /// See [`ImapError`].
    pub async fn beginning(&mut self, uid: u32, header: usize, text: usize) -> Result<Option<Vec<u8>>, ImapError> {
        let command = format!("UID FETCH {uid} (UID BODY.PEEK[HEADER]<0.{header}> BODY.PEEK[TEXT]<0.{text}>)");
        let mut found = None;
        let see = &mut |answer: &Response<'_>| {
            if let Response::Fetch(_, attributes) = answer
                && uid_of(attributes) == Some(uid)
                && let Some(head) = section_of(attributes, Some(MessageSection::Header))
            {
                let rest = section_of(attributes, Some(MessageSection::Text)).unwrap_or_default();
                found = Some(head.iter().take(header).chain(rest.iter().take(text)).copied().collect());
            }
        };
        self.run("FETCH", &command, self.timing.fetch, ANSWER, see).await?;
        Ok(found)
    }

    /// Adds a flag to letters.
    ///
    /// # Errors
    /// See [`ImapError`].
    pub async fn add_flag(&mut self, set: &str, flag: &str) -> Result<(), ImapError> {
        self.command("STORE", &format!("UID STORE {set} +FLAGS.SILENT ({flag})"), &mut |_| {}).await
    }

    /// Moves letters into another folder, which is made when it is missing (email B14).
    ///
    /// # Errors
    /// See [`ImapError`].
    pub async fn move_to(&mut self, set: &str, folder: &str) -> Result<(), ImapError> {
        match self.move_once(set, folder).await {
            Err(ImapError::Refused { text, .. }) if text.contains("TRYCREATE") || text.contains("TryCreate") => {
                self.command("CREATE", &format!("CREATE {}", folder_argument(folder)), &mut |_| {}).await?;
                self.move_once(set, folder).await
            }
            done => done,
        }
    }

    async fn move_once(&mut self, set: &str, folder: &str) -> Result<(), ImapError> {
        let target = folder_argument(folder);
        if self.offers("MOVE") {
            return self.command("MOVE", &format!("UID MOVE {set} {target}"), &mut |_| {}).await;
        }
        if !self.offers("UIDPLUS") {
            // A plain EXPUNGE would also remove what somebody else marked as deleted.
            return Err(ImapError::Refused { step: "MOVE", text: "the server offers neither MOVE nor UIDPLUS".to_owned() });
        }
        self.command("COPY", &format!("UID COPY {set} {target}"), &mut |_| {}).await?;
        self.add_flag(set, "\\Deleted").await?;
        self.command("EXPUNGE", &format!("UID EXPUNGE {set}"), &mut |_| {}).await
    }

    /// The folder for sent letters, by its special use (RFC 6154), else by a usual name.
    ///
    /// # Errors
    /// See [`ImapError`].
    pub async fn sent_folder(&mut self) -> Result<Option<String>, ImapError> {
        let mut best: Option<(usize, String)> = None;
        let see = &mut |answer: &Response<'_>| {
            if let Response::MailboxData(MailboxDatum::List(listed)) = answer
                && let Some(rank) = sent_rank(listed)
                && best.as_ref().is_none_or(|(other, _)| rank < *other)
            {
                best = Some((rank, listed.name.to_string()));
            }
        };
        self.command("LIST", "LIST \"\" \"*\"", see).await?;
        Ok(best.map(|(_, name)| name))
    }

    /// Opens, for reading, a folder whose name the server itself gave.
    ///
    /// # Errors
    /// See [`ImapError`].
    pub async fn examine_listed(&mut self, name: &str) -> Result<(), ImapError> {
        self.command("EXAMINE", &format!("EXAMINE {}", quoted(name)), &mut |_| {}).await
    }

    /// Puts a letter, marked as read, into a folder whose name the server itself gave.
    ///
    /// # Errors
    /// See [`ImapError`].
    pub async fn append_listed(&mut self, name: &str, bytes: &[u8]) -> Result<(), ImapError> {
        let limit = self.timing.fetch;
        self.inner.get_mut().allow(ANSWER);
        let text = format!("APPEND {} (\\Seen) {{{}}}", quoted(name), bytes.len());
        within("APPEND", limit, async {
            let tag = self.inner.run_command(&text).await.map_err(|error| from_crate("APPEND", error))?;
            if let Some(ended) = self.consent("APPEND", &tag).await? {
                return ended.and(Err(ImapError::Violation("APPEND ended before it began")));
            }
            let stream = self.inner.get_mut();
            stream.write_all(bytes).await.map_err(|error| super::lost(&error))?;
            stream.write_all(b"\r\n").await.map_err(|error| super::lost(&error))?;
            stream.flush().await.map_err(|error| super::lost(&error))?;
            self.finish("APPEND", &tag, &mut |_| {}).await
        })
        .await
    }

    /// Waits for the server's word. Ends with a clean session, ready for commands (email A6 to A10).
    ///
    /// # Errors
    /// See [`ImapError`].
    pub async fn idle(&mut self, until: Instant, stop: &CancellationToken) -> Result<Woken, ImapError> {
        // By hand: the crate's handle waits for ever when IDLE is answered NO, and takes a closed
        // connection for an interrupt that we asked for.
        self.inner.get_mut().allow(ANSWER);
        let (start, done) = (self.timing.dial, self.timing.idle_done);
        // News from before are not lost: whoever calls this looks first, and again when `has_news`.
        self.news = false;
        let Some(tag) = within("IDLE", start, self.begin_idle()).await? else { return Ok(Woken::Refused) };
        let woken = if self.news { Woken::News } else { self.idling(until, stop).await? };
        within("DONE", done, async {
            self.inner.run_command_untagged("DONE").await.map_err(|error| from_crate("DONE", error))?;
            self.finish("DONE", &tag, &mut |_| {}).await
        })
        .await?;
        Ok(woken)
    }

    /// Sends IDLE; none when it is refused.
    async fn begin_idle(&mut self) -> Result<Option<RequestId>, ImapError> {
        let tag = self.inner.run_command("IDLE").await.map_err(|error| from_crate("IDLE", error))?;
        Ok(self.consent("IDLE", &tag).await?.is_none().then_some(tag))
    }

    /// Waits for the server's `+`; gives its verdict when it ended the command instead.
    async fn consent(&mut self, step: &'static str, tag: &RequestId) -> Result<Option<Result<(), ImapError>>, ImapError> {
        loop {
            let ended = self.read(step, |answer| match answer {
                Response::Continue(_) => Some(None),
                Response::Done { tag: answered, status, outcome } if answered == tag => Some(Some(verdict(step, status, outcome))),
                _ => None,
            });
            if let Some(ended) = ended.await? {
                return Ok(ended);
            }
        }
    }

    async fn idling(&mut self, until: Instant, stop: &CancellationToken) -> Result<Woken, ImapError> {
        loop {
            // Each line of the server, like `* OK Still here`, shows that the link lives.
            let silent = Instant::now() + self.timing.idle_renewal;
            let ended = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(Woken::Stopped),
                ended = self.read("IDLE", |answer| matches!(answer, Response::Done { .. })) => ended?,
                () = tokio::time::sleep_until(silent.min(until)) => return Ok(Woken::Due),
            };
            if ended {
                return Err(ImapError::Violation("the server ended IDLE by itself"));
            }
            if self.news {
                return Ok(Woken::News);
            }
        }
    }

    /// Says goodbye; no matter whether it is heard (email A15).
    pub async fn logout(mut self) {
        let limit = Duration::from_secs(2);
        if let Err(error) = tokio::time::timeout(limit, self.command("LOGOUT", "LOGOUT", &mut |_| {})).await {
            tracing::debug!(%error, "logout");
        }
    }

    async fn command(&mut self, step: &'static str, text: &str, see: See<'_>) -> Result<(), ImapError> {
        self.run(step, text, self.timing.command, ANSWER, see).await
    }

    async fn run(&mut self, step: &'static str, text: &str, limit: Duration, bytes: u64, see: See<'_>) -> Result<(), ImapError> {
        self.inner.get_mut().allow(bytes);
        within(step, limit, async {
            let tag = self.inner.run_command(text).await.map_err(|error| from_crate(step, error))?;
            self.finish(step, &tag, see).await
        })
        .await
    }

    /// Shows each response up to the tagged one, whose verdict it gives.
    async fn finish(&mut self, step: &'static str, tag: &RequestId, see: See<'_>) -> Result<(), ImapError> {
        loop {
            let ended = self.read(step, |answer| match answer {
                Response::Done { tag: answered, status, outcome } if answered == tag => Some(verdict(step, status, outcome)),
                answer => {
                    see(answer);
                    None
                }
            });
            if let Some(ended) = ended.await? {
                return ended;
            }
        }
    }

    /// Reads and shows the next response. A goodbye ends the session wherever it comes.
    async fn read<T>(&mut self, step: &'static str, see: impl FnOnce(&Response<'_>) -> T) -> Result<T, ImapError> {
        let answer = self.inner.read_response().await.map_err(|error| from_read(step, &error))?;
        let Some(answer) = answer else { return Err(ImapError::Lost("closed by the server".to_owned())) };
        match answer.parsed() {
            Response::Data { status: Status::Bye, outcome } if step != "LOGOUT" => {
                return Err(ImapError::Lost(format!("goodbye: {}", bounded(outcome.information.as_deref().unwrap_or_default()))));
            }
            Response::MailboxData(MailboxDatum::Exists(count)) => {
                self.news |= *count > self.exists;
                self.exists = *count;
            }
            Response::Expunge(_) => self.exists = self.exists.saturating_sub(1),
            _ => {}
        }
        Ok(see(answer.parsed()))
    }
}
