//! `clock`: what day and time it is. It stands in the newest message, for it changes with every run.

use chrono::{DateTime, Utc};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Piece, Resolver};
use crate::chat::Source;
use crate::run::RunContext;

/// The instant that the run began, for all of it (harness PC5).
#[derive(Debug)]
pub(super) struct Clock {
    pub(super) now: DateTime<Utc>,
}

impl Resolver for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn resolve<'a>(&'a self, _context: &'a RunContext) -> BoxFuture<'a, anyhow::Result<Option<Piece>>> {
        let text = format!("Now: {}", self.now.format("%A, %Y-%m-%d, %H:%M UTC"));
        async { Ok(Some(Piece::Head { text, source: Source::Operator })) }.boxed()
    }
}
