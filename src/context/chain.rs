//! Resolvers in the order of an agent's chain, and their pieces put together.

use std::fmt;

use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;

use super::clock::Clock;
use super::customer::Customer;
use super::document::Document;
use super::history::History;
use super::persona::Persona;
use crate::chat::{Block, Message, Source};
use crate::config::Agent;
use crate::mail::Inbound;
use crate::run::RunContext;
use crate::store::{Contribution, Store};

/// Contributes one piece of context. Third parties of this trait are the resolvers of this folder.
pub trait Resolver: Send + Sync + fmt::Debug {
    /// As written in the chain.
    fn name(&self) -> &str;

    /// Its piece for this run; none when it has nothing to say.
    fn resolve<'a>(&'a self, context: &'a RunContext) -> BoxFuture<'a, anyhow::Result<Option<Piece>>>;
}

/// A piece of context and its place (DESIGN 2.7).
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// In the system text.
    System(String),
    /// Earlier messages.
    History(Vec<Message>),
    /// At the head of the newest user message.
    Head {
        /// The text, wrapped when it is untrusted.
        text: String,
        /// Where it is from.
        source: Source,
    },
}

/// What opens the run: the newest user message.
#[derive(Debug, Clone)]
pub enum Opening {
    /// A letter.
    Letter {
        /// The letter.
        letter: Box<Inbound>,
        /// Its wrapping's delimiter.
        nonce: String,
        /// When it came.
        received_at: DateTime<Utc>,
    },
}

/// A chain, ready to be asked.
#[derive(Debug)]
pub struct Chain {
    resolvers: Vec<Box<dyn Resolver>>,
    opening: Opening,
}

/// The prompt of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Assembled {
    /// The system text.
    pub system: String,
    /// History, then the opening message.
    pub messages: Vec<Message>,
    /// What each resolver gave.
    pub contributions: Vec<Contribution>,
}

/// A resolver failed; the run cannot begin.
#[derive(Debug, thiserror::Error)]
#[error("the resolver \"{resolver}\" failed: {source}")]
pub struct ResolveError {
    /// Which.
    pub resolver: String,
    /// Why.
    pub source: anyhow::Error,
}

impl Piece {
    fn place(&self) -> &'static str {
        match self {
            Piece::System(_) => "system",
            Piece::History(_) => "history",
            Piece::Head { .. } => "head",
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Piece::System(text) | Piece::Head { text, .. } => text.len(),
            Piece::History(messages) => messages.iter().map(message_bytes).sum(),
        }
    }
}

/// Bytes of what a message says, calls and results included.
pub(super) fn message_bytes(message: &Message) -> usize {
    match message {
        Message::User { blocks } | Message::Assistant { blocks, .. } => blocks.iter().map(block_bytes).sum(),
        Message::Results { results } => results.iter().map(|result| result.text.len()).sum(),
    }
}

fn block_bytes(block: &Block) -> usize {
    match block {
        Block::Text { text, .. } => text.len(),
        Block::Reasoning { text, opaque } => text.len() + opaque.as_ref().map_or(0, |json| json.to_string().len()),
        Block::Call(call) => call.name.as_str().len() + call.arguments.len(),
        Block::Opaque { json } => json.to_string().len(),
    }
}

fn contribution(resolver: &str, place: &str, bytes: usize) -> Contribution {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    // An estimate: 3.2 bytes a token (harness C1).
    Contribution { resolver: resolver.to_owned(), place: place.to_owned(), bytes, tokens: bytes.saturating_mul(10).div_ceil(32) }
}

impl Chain {
    /// The reactive chain of an agent, for this letter. `now` is what the clock will say all through the run.
    pub fn reactive(agent: &Agent, store: &Store, opening: Opening, now: DateTime<Utc>) -> Chain {
        let resolvers = agent.reactive.iter().filter_map(|name| resolver(name, store, &opening, now)).collect();
        Chain { resolvers, opening }
    }

    /// Asks each resolver and puts the pieces together: system, history, then one user message whose head
    /// is what changes and whose end is the letter (harness PC1).
    ///
    /// # Errors
    /// The first resolver that failed.
    pub async fn assemble(&self, context: &RunContext) -> Result<Assembled, ResolveError> {
        let mut system = Vec::new();
        let mut messages = Vec::new();
        let mut newest = Vec::new();
        let mut contributions = Vec::new();
        for resolver in &self.resolvers {
            let name = resolver.name();
            let failed = |source| ResolveError { resolver: name.to_owned(), source };
            let Some(piece) = resolver.resolve(context).await.map_err(failed)? else {
                contributions.push(contribution(name, "none", 0));
                continue;
            };
            contributions.push(contribution(name, piece.place(), piece.bytes()));
            match piece {
                Piece::System(text) => system.push(text),
                Piece::History(earlier) => messages.extend(earlier),
                Piece::Head { text, source } => newest.push(Block::Text { text: format!("{text}\n\n"), source }),
            }
        }
        let opening = self.opening.text();
        contributions.push(contribution("letter", "head", opening.len()));
        newest.push(Block::Text { text: opening, source: Source::Customer });
        messages.push(Message::User { blocks: newest });
        Ok(Assembled { system: system.join("\n\n"), messages, contributions })
    }
}

/// The resolver behind a name. The configuration was checked: a name that is not known here is a fault.
fn resolver(name: &str, store: &Store, opening: &Opening, now: DateTime<Utc>) -> Option<Box<dyn Resolver>> {
    let resolver: Box<dyn Resolver> = match name {
        "persona" => Box::new(Persona),
        "clock" => Box::new(Clock { now }),
        "customer" => Box::new(Customer { nonce: opening.nonce().to_owned() }),
        "history" => Box::new(History { store: store.clone() }),
        name => match name.strip_prefix("document:") {
            Some(path) => Box::new(Document::new(path)),
            None => {
                tracing::error!(resolver = name, "an unknown resolver stands in a checked chain; it is left out");
                return None;
            }
        },
    };
    Some(resolver)
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
