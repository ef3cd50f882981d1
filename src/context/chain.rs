//! Resolvers in the order of an agent's chain, and their pieces put together.

use std::fmt;

use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;

use crate::chat::{Message, Source};
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

impl Chain {
    /// The reactive chain of an agent, for this letter.
    pub fn reactive(_agent: &Agent, _store: &Store, _opening: Opening, _now: DateTime<Utc>) -> Chain {
        unimplemented!()
    }

    /// Asks each resolver and puts the pieces together: system, history, then one user message.
    ///
    /// # Errors
    /// The first resolver that failed.
    pub async fn assemble(&self, _context: &RunContext) -> Result<Assembled, ResolveError> {
        let _ = (&self.resolvers, &self.opening);
        unimplemented!()
    }
}
