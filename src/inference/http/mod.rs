//! A model behind HTTP: one request, one stream of events. The only place that holds a key (harness N10).

mod decoder;
mod exchange;
mod failure;
mod headers;
mod sse;

use std::time::Duration;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::{Host, Url};

use self::decoder::{Decoder, Dialected};
use self::exchange::Exchange;
pub(super) use self::failure::{failure, from_response, in_band};
use super::anthropic::{self, AnthropicStream};
use super::openai::{self, OpenaiStream};
use super::{ErrorKind, ModelError, ModelEvent, Phase, Provider, Request};
use crate::chat::Origin;
use crate::config::{ModelSettings, Secret};

/// How long each part of an exchange may take (harness F1), and how large a request may be (harness W9).
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    connect: Duration,
    headers: Duration,
    /// Nothing at all came.
    silence: Duration,
    /// Something came, but only signs of life: keep-alives flow while a model is dead.
    idle: Duration,
    total: Duration,
    /// Bytes.
    request: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connect: Duration::from_secs(10),
            headers: Duration::from_mins(1),
            silence: Duration::from_mins(2),
            idle: Duration::from_mins(5),
            total: Duration::from_mins(15),
            request: 32 * 1024 * 1024,
        }
    }
}

/// The wires that go over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `BASE/chat/completions`.
    Openai,
    /// `BASE/v1/messages`.
    Anthropic,
}

/// A provider that speaks one of the HTTP wires.
#[derive(Debug)]
pub(super) struct HttpProvider {
    origin: Origin,
    dialect: Dialect,
    settings: ModelSettings,
    endpoint: Endpoint,
}

/// Where requests go, and with what.
#[derive(Debug)]
struct Endpoint {
    client: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    /// Never to be seen in an error's text.
    secrets: Vec<Secret>,
    limits: Limits,
}

impl HttpProvider {
    /// Prepares the client of one model.
    pub(super) fn new(
        dialect: Dialect,
        settings: &ModelSettings,
        tls: &rustls::ClientConfig,
        limits: Limits,
    ) -> anyhow::Result<HttpProvider> {
        let base = settings.base_url.as_ref().context("base_url is missing")?;
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(limits.connect)
            .redirect(reqwest::redirect::Policy::none());
        if is_loopback(base) {
            client = client.no_proxy();
        }
        let secrets = settings.api_key.iter().chain(settings.headers.values()).cloned().collect();
        let endpoint = Endpoint {
            client: client.build()?,
            url: address(base, dialect)?,
            headers: request_headers(settings, dialect)?,
            secrets,
            limits,
        };
        let origin = Origin { provider: settings.name.clone(), wire: settings.wire.as_str().into(), model: settings.model.clone() };
        Ok(HttpProvider { origin, dialect, settings: settings.clone(), endpoint })
    }

    fn prepare(&self, request: &Request) -> Result<(String, Decoder), ModelError> {
        let (body, decoder) = match self.dialect {
            Dialect::Openai => {
                let stream = OpenaiStream::new(self.settings.quirks.clone(), request);
                (openai::body(&self.settings, &self.origin, request), Decoder::new(Dialected::Openai(stream)))
            }
            Dialect::Anthropic => {
                (anthropic::body(&self.settings, &self.origin, request), Decoder::new(Dialected::Anthropic(AnthropicStream::new(request))))
            }
        };
        let body = body.to_string();
        if body.len() > self.endpoint.limits.request {
            return Err(failure(ErrorKind::ContextTooLong, Phase::Connect, "the request is too large to send"));
        }
        Ok((body, decoder))
    }
}

impl Provider for HttpProvider {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn stream<'a>(&'a self, request: &'a Request) -> BoxStream<'a, Result<ModelEvent, ModelError>> {
        match self.prepare(request) {
            Ok((body, decoder)) => stream::unfold(Exchange::new(&self.endpoint, body, decoder), Exchange::next).boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }
}

/// `BASE/chat/completions` or `BASE/v1/messages`.
fn address(base: &Url, dialect: Dialect) -> anyhow::Result<Url> {
    let mut url = base.clone();
    {
        let mut path = url.path_segments_mut().map_err(|()| anyhow::anyhow!("base_url has no path"))?;
        path.pop_if_empty();
        match dialect {
            Dialect::Openai => path.extend(["chat", "completions"]),
            Dialect::Anthropic if base.path().trim_end_matches('/').ends_with("/v1") => path.push("messages"),
            Dialect::Anthropic => path.extend(["v1", "messages"]),
        };
    }
    Ok(url)
}

fn request_headers(settings: &ModelSettings, dialect: Dialect) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if dialect == Dialect::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
    if let Some(key) = &settings.api_key {
        match dialect {
            Dialect::Anthropic => headers.insert("x-api-key", sensitive(key.reveal())?),
            Dialect::Openai => headers.insert("authorization", sensitive(&format!("Bearer {}", key.reveal()))?),
        };
    }
    for (name, value) in &settings.headers {
        let name: HeaderName = name.parse().with_context(|| format!("header {name:?}"))?;
        headers.insert(name, sensitive(value.reveal())?);
    }
    Ok(headers)
}

fn sensitive(value: &str) -> anyhow::Result<HeaderValue> {
    // The error of the conversion would be fine to show; the value would not.
    let mut value = HeaderValue::from_str(value).map_err(|_| anyhow::anyhow!("a secret holds characters that no header may hold"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
