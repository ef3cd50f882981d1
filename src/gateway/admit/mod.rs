//! What becomes of a letter (DESIGN 2.1 "Who answers", 2.5): pure policy, decided inside the store's
//! receiving transaction from the letter and from what the store knows of it.

mod authentication;
mod classify;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use authentication::{Authentication, authentication};
pub use classify::{is_own_list, machine};

use crate::config::{Agent, Audience, AudienceEntry, Limits, Mailbox, Trust};
use crate::gateway::parse::{ParseFailure, Parsed};
use crate::mail::Address;
use crate::run::{Identity, ThreadId};
use crate::store::{Caps, Decision, Delivery, Standing, ThreadChoice, Verdict};

/// More servers than this a letter never meets (email F8).
const HOPS: usize = 50;

/// The rules of one mailbox: made once of a configuration, shared by all its letters.
#[derive(Debug, Clone)]
pub struct Border {
    /// The mailbox that the letters come to.
    pub mailbox: Mailbox,
    /// All agents; those of other mailboxes are passed over.
    pub agents: BTreeMap<String, Arc<Agent>>,
    /// `[limits]`.
    pub limits: Limits,
    /// This installation, as our own letters name it.
    pub install_id: String,
}

/// One letter at the border.
#[derive(Debug, Clone)]
pub struct Admission {
    /// The rules.
    pub border: Arc<Border>,
    /// The letter, or why it could not be read.
    pub letter: Result<Parsed, ParseFailure>,
}

/// An agent that answers, and the address that it was written to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answerer {
    agent: String,
    own_address: Address,
    why: &'static str,
}

impl Admission {
    /// Decides. Never blocks, never panics.
    pub fn decide(&self, standing: &Standing) -> Decision {
        let parsed = match &self.letter {
            Ok(parsed) => parsed,
            Err(failure) => return nobody(Identity::Ambiguous, Verdict::Quarantined, &failure.to_string()),
        };
        let border = &self.border;
        let authentication = border.authentication(parsed);
        let identity = border.identity(parsed, authentication, standing);
        if standing.duplicate_of.is_some() {
            return nobody(identity, Verdict::Duplicate, "came before");
        }
        if let Some(decision) = border.echo(parsed, authentication, standing) {
            return decision;
        }
        if parsed.headers.hops() > HOPS {
            return nobody(identity, Verdict::Quarantined, "too many hops");
        }
        if let Some(reason) = machine(&parsed.headers, &parsed.inbound, &border.mailbox) {
            return nobody(Identity::Machine, Verdict::Ignored, &reason);
        }
        if !border.is_addressed(parsed) {
            return nobody(identity, Verdict::Ignored, "not addressed to us");
        }
        border.deliver(parsed, identity, standing)
    }
}

impl Border {
    /// What proves the From line. A Maildir may be filled by a server that proved it (DESIGN 2.5).
    fn authentication(&self, parsed: &Parsed) -> Authentication {
        let found = authentication(&parsed.headers, &parsed.inbound.from.address, &self.mailbox.trusted_authserv_ids);
        if found == Authentication::None && self.mailbox.trust == Trust::Verified { Authentication::Pass } else { found }
    }

    fn identity(&self, parsed: &Parsed, authentication: Authentication, standing: &Standing) -> Identity {
        let from = &parsed.inbound.from.address;
        match authentication {
            Authentication::Fail => Identity::Forged,
            _ if self.mailbox.forms.contains(from) => Identity::Unverified,
            Authentication::Pass => Identity::Verified,
            _ if standing.related.iter().any(|related| related.mailed_to.as_ref() == Some(from)) => Identity::Thread,
            Authentication::FailNonePolicy | Authentication::None => Identity::Unverified,
        }
    }

    /// Our own letters come back as an echo; who only claims to be us is shown to the operator (email F6).
    fn echo(&self, parsed: &Parsed, authentication: Authentication, standing: &Standing) -> Option<Decision> {
        let from_us = self.is_own(&parsed.inbound.from.address);
        match (from_us, standing.ours) {
            (true, true) => Some(nobody(Identity::Machine, Verdict::Ignored, "own echo")),
            (true, false) if authentication == Authentication::Pass => Some(nobody(Identity::Machine, Verdict::Ignored, "own echo")),
            (true, false) => Some(nobody(Identity::Forged, Verdict::Quarantined, "own address without proof")),
            (false, true) => Some(nobody(Identity::Ambiguous, Verdict::Quarantined, "our Message-ID from another sender")),
            // Another of our mailboxes, or a list that put its own name on our letter. The mark can be copied, and
            // to copy it only keeps the copier from an answer.
            (false, false) if parsed.headers.all("x-dutiful-install").any(|id| id == self.install_id) => {
                Some(nobody(Identity::Machine, Verdict::Ignored, "own echo"))
            }
            (false, false) => None,
        }
    }

    /// One of the mailbox's addresses or of its agents', with or without a plus tag.
    fn is_own(&self, address: &Address) -> bool {
        let base = address.without_tag();
        let agents = self.agents_here().flat_map(|agent| &agent.addresses);
        self.mailbox.own_addresses().chain(agents).any(|own| *own == *address || *own == base)
    }

    fn agents_here(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.agents.values().filter(|agent| agent.mailbox.as_deref() == Some(self.mailbox.name.as_str()))
    }

    /// Whether the letter names us (email F10); what comes through our own lists and forms does.
    fn is_addressed(&self, parsed: &Parsed) -> bool {
        let inbound = &parsed.inbound;
        let mut named = inbound.to.iter().chain(&inbound.cc).chain(&inbound.delivered_to);
        named.any(|address| self.is_own(address))
            || is_own_list(&parsed.headers, &self.mailbox)
            || self.mailbox.forms.contains(&inbound.from.address)
    }

    fn deliver(&self, parsed: &Parsed, identity: Identity, standing: &Standing) -> Decision {
        let inbound = &parsed.inbound;
        let from = &inbound.from.address;
        let through_form = self.mailbox.forms.contains(from);
        let form_reply = match inbound.reply_to.as_slice() {
            [one] if !self.is_own(one) && !self.mailbox.forms.contains(one) => Some(one),
            _ => None,
        };
        if through_form && form_reply.is_none() && identity != Identity::Forged {
            return nobody(identity, Verdict::Quarantined, "a form's letter without one Reply-To");
        }
        let reply_to = form_reply.filter(|_| through_form).unwrap_or(from);
        let answerers = self.answerers(parsed);
        if answerers.is_empty() {
            return nobody(identity, Verdict::Ignored, "no agent answers this address");
        }
        let deliveries = answerers
            .into_iter()
            .filter_map(|answerer| {
                let agent = self.agents.get(&answerer.agent)?;
                let thread = thread(&answerer.agent, from, identity, through_form, standing);
                let (verdict, reason) = judge(agent, from, identity, thread, standing, answerer.why);
                let caps = Caps { limits: self.limits.clone(), per_domain: identity == Identity::Unverified };
                Some(Delivery {
                    agent: Some(answerer.agent),
                    own_address: Some(answerer.own_address),
                    reply_to: Some(reply_to.clone()),
                    caps: (verdict == Verdict::Accepted).then_some(caps),
                    verdict,
                    reason,
                    thread,
                })
            })
            .collect();
        Decision { identity, deliveries }
    }

    /// Who answers (DESIGN 2.1): owners of the addresses written to, each once; else the mailbox's agent.
    /// Delivered-To speaks only when To and Cc name no owner: every letter to an alias carries it.
    fn answerers(&self, parsed: &Parsed) -> Vec<Answerer> {
        let inbound = &parsed.inbound;
        let written: Vec<&Address> = inbound.to.iter().chain(&inbound.cc).collect();
        let mut found = self.owners(written.iter().copied());
        let first_own = written.iter().copied().chain(&inbound.delivered_to).find(|address| self.is_own(address));
        if found.is_empty() {
            found = self.owners(inbound.delivered_to.iter());
            if let (Some(address), [answerer]) = (first_own, found.as_mut_slice()) {
                answerer.own_address = address.clone();
            }
        }
        if found.is_empty()
            && let Some(agent) = self.mailbox.agent.as_ref().filter(|agent| self.agents.contains_key(*agent))
        {
            let own_address = first_own.unwrap_or(&self.mailbox.address).clone();
            found.push(Answerer { agent: agent.clone(), own_address, why: "the mailbox's agent" });
        }
        found
    }

    fn owners<'a>(&self, addresses: impl Iterator<Item = &'a Address>) -> Vec<Answerer> {
        let mut found: Vec<Answerer> = Vec::new();
        for address in addresses {
            let base = address.without_tag();
            let owner = |wanted: &Address| self.agents_here().find(|agent| agent.addresses.contains(wanted));
            let Some(agent) = owner(address).or_else(|| owner(&base)) else { continue };
            if found.iter().all(|known| known.agent != agent.name) {
                found.push(Answerer { agent: agent.name.clone(), own_address: address.clone(), why: "the agent's address" });
            }
        }
        found
    }
}

/// A letter that nobody gets.
fn nobody(identity: Identity, verdict: Verdict, reason: &str) -> Decision {
    let delivery = Delivery {
        agent: None,
        own_address: None,
        reply_to: None,
        verdict,
        reason: reason.to_owned(),
        thread: ThreadChoice::None,
        caps: None,
    };
    Decision { identity, deliveries: vec![delivery] }
}

/// The thread for one agent (DESIGN 2.5, email E1, E2, E9, security S5): joined only by who takes part in it,
/// on the strength of a Message-ID that was mailed to this very sender, or of proof. Else a new one, whose link
/// to the other is for the operator alone: a letter of `send_email` belongs to a customer's thread, and who
/// answers it is not that customer.
fn thread(agent: &str, from: &Address, identity: Identity, through_form: bool, standing: &Standing) -> ThreadChoice {
    let may_join = identity >= Identity::Thread && !through_form;
    let joined = standing.related.iter().find(|related| {
        let proven = identity == Identity::Verified || related.mailed_to.as_ref() == Some(from);
        may_join && related.agent == agent && proven && related.participants.contains(from)
    });
    match joined {
        Some(related) => ThreadChoice::Join(related.thread),
        None => ThreadChoice::New { related_to: standing.related.first().map(|related| related.thread) },
    }
}

fn judge(agent: &Agent, from: &Address, identity: Identity, thread: ThreadChoice, standing: &Standing, why: &str) -> (Verdict, String) {
    if identity == Identity::Forged {
        return (Verdict::Held, "forged sender".to_owned());
    }
    if !is_in_audience(&agent.audience, from, identity) {
        return (Verdict::Held, "audience".to_owned());
    }
    match thread {
        ThreadChoice::Join(id) => match held(id, standing) {
            Some(reason) => (Verdict::Held, reason),
            None => (Verdict::Accepted, why.to_owned()),
        },
        ThreadChoice::New { .. } | ThreadChoice::None => (Verdict::Accepted, why.to_owned()),
    }
}

fn held(thread: ThreadId, standing: &Standing) -> Option<String> {
    standing.related.iter().filter(|related| related.thread == thread).find_map(|related| related.held.clone())
}

fn is_in_audience(audience: &Audience, from: &Address, identity: Identity) -> bool {
    let verified = identity == Identity::Verified;
    match audience {
        Audience::Public => true,
        Audience::Verified => verified,
        Audience::Listed(entries) => {
            verified
                && entries.iter().any(|entry| match entry {
                    AudienceEntry::Address(address) => address == from,
                    AudienceEntry::Domain(domain) => domain == from.domain(),
                })
        }
    }
}

#[cfg(test)]
#[path = "corpus_tests.rs"]
mod corpus;
#[cfg(test)]
#[path = "admit_tests.rs"]
mod tests;
