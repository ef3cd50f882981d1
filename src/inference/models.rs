//! The operator's models: each a provider with its limits, price, retries and place in the queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{ModelError, ModelEvent, Request};
use crate::chat::{Reply, Usage};
use crate::config::Settings;

/// Every configured model by name. Made once per configuration.
#[derive(Debug, Default)]
pub struct Models {
    models: BTreeMap<String, Arc<Model>>,
}

/// One configured model: retries, failover and the concurrency limit stand before its provider.
#[derive(Debug)]
pub struct Model {}

/// A finished call.
#[derive(Debug, Clone, PartialEq)]
pub struct Completed {
    /// The answer.
    pub reply: Reply,
    /// Millionths, from the price of the model that answered (harness U4).
    pub cost: u64,
    /// Attempts, failed ones included.
    pub attempts: u32,
    /// Request ids and rate-limit headers (harness N9).
    pub headers: Map<String, Value>,
}

impl Models {
    /// Builds every model of the settings. `tls` carries the roots and is shared by all connections.
    ///
    /// # Errors
    /// When a rule file of the script wire is wrong, or an HTTP client cannot be built.
    pub fn build(_settings: &Settings, _tls: &rustls::ClientConfig) -> anyhow::Result<Models> {
        unimplemented!()
    }

    /// A model by its name.
    pub fn get(&self, name: &str) -> Option<Arc<Model>> {
        self.models.get(name).cloned()
    }
}

impl Model {
    /// Its name, `[models.NAME]`.
    pub fn name(&self) -> &str {
        unimplemented!()
    }

    /// Tokens of output that one call may ask for.
    pub fn max_output(&self) -> u32 {
        unimplemented!()
    }

    /// Tokens of input and output together.
    pub fn context_window(&self) -> u32 {
        unimplemented!()
    }

    /// What tokens cost here, in millionths.
    pub fn cost(&self, _usage: &Usage) -> u64 {
        unimplemented!()
    }

    /// Makes the call: attempts with backoff as F1 to F4 say, then the fallback model when there is one.
    /// A failed attempt's partial answer is dropped. `watch` sees every event as it comes.
    ///
    /// # Errors
    /// The last attempt's error.
    pub async fn complete(&self, _request: &Request, _watch: &(dyn Fn(&ModelEvent) + Send + Sync)) -> Result<Completed, ModelError> {
        unimplemented!()
    }
}
