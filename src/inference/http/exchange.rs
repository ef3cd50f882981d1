//! One HTTP exchange as a state machine that yields events: send, read, decode, end once (harness N5, F1, W3).

use std::collections::VecDeque;

use reqwest::header::CONTENT_TYPE;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};

use super::Endpoint;
use super::decoder::{Decoder, is_ended};
use super::failure::{failure, from_response, page_title};
use super::headers::{request_id, retry_after, worth_keeping};
use crate::inference::{ErrorKind, ModelError, ModelEvent, Phase};

/// Bytes read of the body of an error.
const LARGEST_ERROR: usize = 64 * 1024;
/// Bytes read of a response.
const LARGEST_RESPONSE: usize = 64 * 1024 * 1024;

type Outcome<T> = Result<T, ModelError>;

/// An exchange under way.
pub(super) struct Exchange<'a> {
    endpoint: &'a Endpoint,
    decoder: Decoder,
    state: State,
    ready: VecDeque<ModelEvent>,
    kept_headers: Map<String, Value>,
    request_id: Option<String>,
    received: usize,
    begun: Instant,
    /// When the last bytes came, and the last bytes with meaning.
    heard: Instant,
    said: Instant,
    /// Whether anything with meaning came.
    phase: Phase,
}

enum State {
    /// Nothing was sent yet.
    Unsent(String),
    Streaming(reqwest::Response),
    /// Only what is ready is left.
    Closing(Option<Box<ModelError>>),
}

impl<'a> Exchange<'a> {
    /// An exchange that begins when it is first asked for an event.
    pub(super) fn new(endpoint: &'a Endpoint, body: String, decoder: Decoder) -> Exchange<'a> {
        let now = Instant::now();
        Exchange {
            endpoint,
            decoder,
            state: State::Unsent(body),
            ready: VecDeque::new(),
            kept_headers: Map::new(),
            request_id: None,
            received: 0,
            begun: now,
            heard: now,
            said: now,
            phase: Phase::Connect,
        }
    }

    /// The next event, and the exchange to go on with.
    pub(super) async fn next(mut self) -> Option<(Outcome<ModelEvent>, Exchange<'a>)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some((Ok(event), self));
            }
            let state = std::mem::replace(&mut self.state, State::Closing(None));
            let step = match state {
                State::Closing(None) => return None,
                State::Closing(Some(error)) => return Some((Err(self.explained(*error)), self)),
                State::Unsent(body) => Box::pin(self.send(body)).await,
                State::Streaming(response) => self.read(response).await,
            };
            self.state = step.unwrap_or_else(|error| State::Closing(Some(Box::new(error))));
        }
    }

    async fn send(&mut self, body: String) -> Outcome<State> {
        self.begun = Instant::now();
        let request = self.endpoint.client.post(self.endpoint.url.clone()).headers(self.endpoint.headers.clone()).body(body).send();
        let response = timeout_at(self.begun + self.endpoint.limits.headers, request)
            .await
            .map_err(|_| failure(ErrorKind::Timeout, Phase::Headers, "no response headers in time"))?
            .map_err(|error| broken(&error, if error.is_connect() { Phase::Connect } else { Phase::Headers }))?;
        self.heard = Instant::now();
        self.said = self.heard;
        self.phase = Phase::BeforeFirstToken;
        self.kept_headers = worth_keeping(response.headers());
        self.request_id = request_id(response.headers());
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default().to_lowercase();
        if kind.contains("html") {
            let page = self.body(response, LARGEST_ERROR).await?;
            let title = page_title(&String::from_utf8_lossy(&page));
            return Err(failure(ErrorKind::Protocol, Phase::BeforeFirstToken, &format!("a web page in place of an answer: {title}")));
        }
        if kind.contains("application/json") {
            let body = self.body(response, LARGEST_RESPONSE).await?;
            return self.decode(|decoder, events| decoder.whole(&body, events));
        }
        Ok(State::Streaming(response))
    }

    async fn read(&mut self, mut response: reqwest::Response) -> Outcome<State> {
        let limits = &self.endpoint.limits;
        let deadline = (self.heard + limits.silence).min(self.said + limits.idle).min(self.begun + limits.total);
        match timeout_at(deadline, response.chunk()).await {
            Err(_) => self.close_early(failure(ErrorKind::Timeout, self.phase, "the model fell silent")),
            // A cut chunked body, a reset: what came before it may still be a whole answer.
            Ok(Err(error)) => self.close_early(broken(&error, Phase::MidStream)),
            Ok(Ok(None)) => self.decode(Decoder::finish),
            Ok(Ok(Some(bytes))) => {
                self.heard = Instant::now();
                self.received = self.received.saturating_add(bytes.len());
                if self.received > LARGEST_RESPONSE {
                    return Err(failure(ErrorKind::Protocol, self.phase, "the response is larger than 64 MB"));
                }
                let ended = self.feed(&bytes)?;
                Ok(if ended { State::Closing(None) } else { State::Streaming(response) })
            }
        }
    }

    /// Decodes the last of the input; what was decoded before an error is still handed over.
    fn decode(&mut self, last: impl FnOnce(&mut Decoder, &mut Vec<ModelEvent>) -> Outcome<()>) -> Outcome<State> {
        let mut events = Vec::new();
        let outcome = last(&mut self.decoder, &mut events);
        self.hand_over(events);
        outcome.map(|()| State::Closing(None))
    }

    /// Decodes bytes; true once the end was decoded.
    fn feed(&mut self, bytes: &[u8]) -> Outcome<bool> {
        let mut events = Vec::new();
        let outcome = self.decoder.push(bytes, &mut events);
        let ended = is_ended(&events);
        self.hand_over(events);
        if outcome? {
            self.said = self.heard;
            self.phase = Phase::MidStream;
        }
        Ok(ended)
    }

    /// The input broke off: an error, unless all had been said and only the end marker was missing.
    fn close_early(&mut self, error: ModelError) -> Outcome<State> {
        self.decode(|decoder, events| decoder.end(events).map_err(|_| error))
    }

    /// Makes events ready, each `Started` with the headers.
    fn hand_over(&mut self, events: Vec<ModelEvent>) {
        for event in events {
            self.ready.push_back(match event {
                ModelEvent::Started { response_id, .. } => ModelEvent::Started { response_id, headers: self.kept_headers.clone() },
                other => other,
            });
        }
    }

    async fn refused(&mut self, response: reqwest::Response) -> ModelError {
        let status = response.status().as_u16();
        let wait = retry_after(response.headers(), crate::clock::now());
        // A body that breaks off leaves the status to speak.
        let body = self.body(response, LARGEST_ERROR).await.unwrap_or_default();
        ModelError { retry_after: wait, ..from_response(status, &body) }
    }

    /// Reads at most `most` bytes of a body; the rest is left on the wire.
    async fn body(&mut self, mut response: reqwest::Response, most: usize) -> Outcome<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let limits = &self.endpoint.limits;
            let deadline = (self.heard + limits.silence).min(self.begun + limits.total);
            let chunk = timeout_at(deadline, response.chunk())
                .await
                .map_err(|_| failure(ErrorKind::Timeout, self.phase, "the response fell silent"))?
                .map_err(|error| broken(&error, Phase::MidStream))?;
            let Some(chunk) = chunk else { return Ok(body) };
            self.heard = Instant::now();
            let room = most.saturating_sub(body.len());
            body.extend(chunk.iter().take(room));
            if body.len() >= most {
                return Ok(body);
            }
        }
    }

    /// Adds what only the exchange knows, and takes out what nobody may see.
    fn explained(&self, mut error: ModelError) -> ModelError {
        error.request_id = error.request_id.or_else(|| self.request_id.clone());
        for secret in self.endpoint.secrets.iter().filter(|secret| !secret.reveal().is_empty()) {
            error.message = error.message.replace(secret.reveal(), "[secret]");
        }
        error
    }
}

/// A connection that failed. The address is left out: it may hold a key.
fn broken(error: &reqwest::Error, phase: Phase) -> ModelError {
    let kind = if error.is_timeout() { ErrorKind::Timeout } else { ErrorKind::Network };
    let mut message = String::from("the connection failed");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    failure(kind, phase, &message)
}
