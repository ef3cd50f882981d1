//! A run's pen: steps are folded at once and written before the next effect. Steps that need no commit of
//! their own wait and share the next one (DESIGN 3, "few fsyncs a letter").

use super::transcript::Transcript;
use crate::run::RunId;
use crate::store::{Step, Store, StoreError};

/// Transcript and journal of one run, kept together.
#[derive(Debug)]
pub(super) struct Journal<'a> {
    store: &'a Store,
    run: &'a RunId,
    transcript: Transcript,
    unwritten: Vec<Step>,
}

impl<'a> Journal<'a> {
    pub(super) fn new(store: &'a Store, run: &'a RunId, transcript: Transcript) -> Journal<'a> {
        Journal { store, run, transcript, unwritten: Vec::new() }
    }

    pub(super) fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Folds a step; it is written with the next flush.
    pub(super) fn push(&mut self, step: Step) {
        self.transcript.apply(&step);
        self.unwritten.push(step);
    }

    /// Commits what was pushed. Called before every effect and after every effect that may not be repeated.
    pub(super) async fn flush(&mut self) -> Result<(), StoreError> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        self.store.append(self.run, std::mem::take(&mut self.unwritten)).await
    }

    /// The steps that the closing transaction takes along.
    pub(super) fn into_unwritten(self) -> (Transcript, Vec<Step>) {
        (self.transcript, self.unwritten)
    }
}
