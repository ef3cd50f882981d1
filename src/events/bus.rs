//! A bounded broadcast that forgets what nobody reads in time.

use serde_json::Value;
use tokio::sync::broadcast;

use super::Event;
use crate::run::{EventKind, RunId};

/// Where events are emitted and watched. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Events {
    sender: broadcast::Sender<Event>,
}

impl Default for Events {
    fn default() -> Self {
        Events { sender: broadcast::channel(1024).0 }
    }
}

impl Events {
    /// Tells everybody who watches; nobody watching is no error.
    pub fn emit(&self, run: Option<&RunId>, kind: EventKind, data: Value) {
        tracing::debug!(run = run.map(RunId::as_str), kind = kind.as_str(), "event");
        drop(self.sender.send(Event { at: crate::clock::now(), run: run.cloned(), kind, data }));
    }

    /// From now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.sender.subscribe()
    }
}
