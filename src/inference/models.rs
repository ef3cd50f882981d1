//! The operator's models: each a provider with its limits, price, retries and fallback.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::http::{Dialect, HttpProvider, Limits};
use super::reply::Assembly;
use super::script::ScriptProvider;
use super::{ErrorKind, ModelError, ModelEvent, Phase, Provider, Request, retry};
use crate::chat::{Reply, StopReason, Usage};
use crate::config::{ModelSettings, Price, Settings, Wire};

/// Every configured model by name. Made once per configuration.
#[derive(Debug, Default)]
pub struct Models {
    models: BTreeMap<String, Arc<Model>>,
}

/// One configured model: retries and failover stand before its provider.
#[derive(Debug)]
pub struct Model {
    own: Arc<Backend>,
    /// Tried in order when the own one stays unavailable.
    fallbacks: Vec<Arc<Backend>>,
}

/// A provider with what its operator said about it.
#[derive(Debug)]
struct Backend {
    name: String,
    provider: Box<dyn Provider>,
    context_window: u32,
    max_output: u32,
    price: Price,
    /// A number in 0..1: the jitter of waits.
    chance: fn() -> f64,
    /// Until when the server wants to be left alone, by every run (harness F8).
    rests_until: Mutex<Option<Instant>>,
}

/// A finished call.
#[derive(Debug, Clone, PartialEq)]
pub struct Completed {
    /// The answer.
    pub reply: Reply,
    /// Millionths, from the price of the model that answered (harness U4), and of every attempt before
    /// it that was billed although its answer was dropped (harness U3).
    pub cost: u64,
    /// Attempts, failed ones included.
    pub attempts: u32,
    /// Request ids and rate-limit headers (harness N9).
    pub headers: Map<String, Value>,
}

/// A call that no attempt got an answer to.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{error}")]
pub struct Unanswered {
    /// The last attempt's error.
    pub error: ModelError,
    /// Attempts, those at fallback models included.
    pub attempts: u32,
    /// Millionths: what the failed attempts are billed for all the same (harness U3).
    pub cost: u64,
}

/// What the attempts of one call have used up.
#[derive(Debug, Default)]
struct Spent {
    attempts: u32,
    cost: u64,
}

/// How the events of every attempt are watched.
type Watch<'a> = &'a (dyn Fn(&ModelEvent) + Send + Sync);

impl Models {
    /// Builds every model of the settings. `tls` carries the roots and is shared by all connections.
    ///
    /// # Errors
    /// When a rule file of the script wire is wrong, or an HTTP client cannot be built.
    pub fn build(settings: &Settings, tls: &rustls::ClientConfig) -> anyhow::Result<Models> {
        let mut backends = BTreeMap::new();
        for (name, model) in &settings.models {
            let provider = provider(model, tls).with_context(|| format!("[models.{name}]"))?;
            let backend = Backend {
                name: name.clone(),
                provider,
                context_window: model.context_window,
                max_output: model.max_output,
                price: model.price,
                chance: retry::chance,
                rests_until: Mutex::default(),
            };
            backends.insert(name.clone(), Arc::new(backend));
        }
        let models = backends
            .iter()
            .map(|(name, own)| (name.clone(), Arc::new(Model { own: own.clone(), fallbacks: fallbacks(name, settings, &backends) })))
            .collect();
        Ok(Models { models })
    }

    /// A model by its name.
    pub fn get(&self, name: &str) -> Option<Arc<Model>> {
        self.models.get(name).cloned()
    }
}

/// The fallback's fallback too, and so on; a circle ends where it closes.
fn fallbacks(name: &str, settings: &Settings, backends: &BTreeMap<String, Arc<Backend>>) -> Vec<Arc<Backend>> {
    let mut seen = vec![name];
    let mut chain = Vec::new();
    let mut next = settings.models.get(name).and_then(|model| model.fallback.as_deref());
    while let Some(name) = next.filter(|name| !seen.contains(name)) {
        seen.push(name);
        chain.extend(backends.get(name).cloned());
        next = settings.models.get(name).and_then(|model| model.fallback.as_deref());
    }
    chain
}

fn provider(model: &ModelSettings, tls: &rustls::ClientConfig) -> anyhow::Result<Box<dyn Provider>> {
    match model.wire {
        Wire::Script => Ok(Box::new(ScriptProvider::open(model)?)),
        Wire::Openai => Ok(Box::new(HttpProvider::new(Dialect::Openai, model, tls, Limits::default())?)),
        Wire::Anthropic => Ok(Box::new(HttpProvider::new(Dialect::Anthropic, model, tls, Limits::default())?)),
    }
}

impl Model {
    /// Its name, `[models.NAME]`.
    pub fn name(&self) -> &str {
        &self.own.name
    }

    /// Tokens of output that one call may ask for.
    pub fn max_output(&self) -> u32 {
        self.own.max_output
    }

    /// Tokens of input and output together.
    pub fn context_window(&self) -> u32 {
        self.own.context_window
    }

    /// What tokens cost here, in millionths.
    pub fn cost(&self, usage: &Usage) -> u64 {
        cost(&self.own.price, usage)
    }

    /// Makes the call: attempts with backoff as F1 to F4 say, then the fallback model when there is one,
    /// also when the answer is a refusal (harness S5). A failed attempt's partial answer is dropped.
    /// `watch` sees every event as it comes; a `Started` after others says that all before it is void.
    ///
    /// # Errors
    /// The last attempt's error, with what all attempts took and cost.
    pub async fn complete(&self, request: &Request, watch: &(dyn Fn(&ModelEvent) + Send + Sync)) -> Result<Completed, Unanswered> {
        let mut spent = Spent::default();
        let mut refused = None;
        let mut outcome = self.own.attempts(request, watch, &mut spent).await;
        for fallback in &self.fallbacks {
            match outcome {
                Ok(completed) if completed.reply.stop == StopReason::Refusal && refused.is_none() => refused = Some(completed),
                Err(error) if may_fail_over(error.kind) => {
                    tracing::warn!(model = self.name(), fallback = fallback.name, %error, "model unavailable, trying its fallback");
                }
                settled => return settled.map_err(|error| spent.without_answer(error)),
            }
            outcome = fallback.attempts(request, watch, &mut spent).await;
        }
        match (outcome, refused) {
            // A refusal is an answer; the fallback's error is none.
            (Err(_), Some(refusal)) => Ok(Completed { attempts: spent.attempts, cost: spent.cost, ..refusal }),
            (outcome, _) => outcome.map_err(|error| spent.without_answer(error)),
        }
    }
}

impl Spent {
    fn without_answer(&self, error: ModelError) -> Unanswered {
        Unanswered { error, attempts: self.attempts, cost: self.cost }
    }
}

/// Whether another model may do better: not when the request itself is at fault.
fn may_fail_over(kind: ErrorKind) -> bool {
    !matches!(kind, ErrorKind::ContextTooLong | ErrorKind::OutputTooBig | ErrorKind::InvalidRequest | ErrorKind::Cancelled)
}

fn cost(price: &Price, usage: &Usage) -> u64 {
    let part = |tokens: u64, price: u64| u128::from(tokens).saturating_mul(u128::from(price));
    let total = part(usage.input, price.input)
        .saturating_add(part(usage.cache_read, price.cache_read))
        .saturating_add(part(usage.cache_write, price.cache_write))
        .saturating_add(part(usage.output, price.output));
    u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl Backend {
    /// All attempts at this provider.
    async fn attempts(&self, request: &Request, watch: Watch<'_>, spent: &mut Spent) -> Result<Completed, ModelError> {
        let request = Request { max_output: request.max_output.min(self.max_output), ..request.clone() };
        let mut first_failure = None;
        let mut failures = 0;
        loop {
            self.rested().await;
            let error = match Box::pin(self.attempt(&request, watch, spent)).await {
                Ok(completed) => return Ok(completed),
                Err(error) => error,
            };
            failures += 1;
            if let Some(rest) = retry::rest(&error) {
                self.rest(rest);
            }
            let since_first: Duration = first_failure.get_or_insert_with(Instant::now).elapsed();
            let Some(wait) = retry::delay(&error, failures, since_first, (self.chance)()) else { return Err(error) };
            tracing::info!(model = self.name, %error, attempt = failures, wait_ms = wait.as_millis(), "model call failed, trying again");
            tokio::time::sleep(wait).await;
        }
    }

    /// Nobody asks this server for so long.
    fn rest(&self, rest: Duration) {
        let until = Instant::now() + rest;
        // One value is replaced: a holder that panicked left it whole.
        let mut rests_until = self.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        *rests_until = Some(rests_until.map_or(until, |before| before.max(until)));
    }

    async fn rested(&self) {
        let until = *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
    }

    async fn attempt(&self, request: &Request, watch: Watch<'_>, spent: &mut Spent) -> Result<Completed, ModelError> {
        spent.attempts += 1;
        let mut assembly = Assembly::default();
        let outcome = follow(self.provider.stream(request), &mut assembly, watch).await;
        if outcome.is_ok() || assembly.has_begun() {
            spent.cost = spent.cost.saturating_add(cost(&self.price, &assembly.usage(request)));
        }
        outcome?;
        let headers = assembly.headers().clone();
        let reply = assembly.finish(request, self.provider.origin());
        Ok(Completed { reply, cost: spent.cost, attempts: spent.attempts, headers })
    }
}

/// Reads a stream to its one terminal item (harness N5).
async fn follow(
    mut events: futures_util::stream::BoxStream<'_, Result<ModelEvent, ModelError>>,
    assembly: &mut Assembly,
    watch: Watch<'_>,
) -> Result<(), ModelError> {
    while let Some(event) = events.next().await {
        let event = event?;
        watch(&event);
        assembly.take(event);
        if assembly.is_finished() {
            return Ok(());
        }
    }
    Err(ModelError {
        kind: ErrorKind::Protocol,
        status: None,
        message: "the stream ended without an end".into(),
        retry_after: None,
        request_id: None,
        phase: Phase::MidStream,
    })
}

#[cfg(test)]
#[path = "models_tests.rs"]
mod tests;
