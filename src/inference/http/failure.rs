//! What a status, an error object or a broken connection means (harness N8, F2). Pure.

use serde_json::Value;

use crate::inference::{ErrorKind, ModelError, Phase};

/// Characters of a message that are kept.
const MESSAGE: usize = 500;

/// An error without status.
pub(in crate::inference) fn failure(kind: ErrorKind, phase: Phase, message: &str) -> ModelError {
    let message = message.chars().take(MESSAGE).collect();
    ModelError { kind, status: None, message, retry_after: None, request_id: None, phase }
}

/// An error object inside a stream, or in the place of one.
pub(in crate::inference) fn in_band(object: &Value, phase: Phase) -> ModelError {
    let report = Report::of(object);
    failure(report.kind(report.status), phase, &report.message)
}

/// A response whose status is not a success.
pub(in crate::inference) fn from_response(status: u16, body: &[u8]) -> ModelError {
    let text = String::from_utf8_lossy(body);
    let report = match serde_json::from_str::<Value>(&text) {
        Ok(object) => Report::of(&object),
        Err(_) => Report { words: text.to_lowercase(), message: page_title(&text), status: None },
    };
    let message = if report.message.is_empty() { "no message" } else { report.message.as_str() };
    ModelError { status: Some(status), ..failure(report.kind(Some(status)), Phase::Headers, message) }
}

/// The title of an HTML page, or the text as it is.
pub(super) fn page_title(text: &str) -> String {
    let title = text.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>")).map(|(title, _)| title);
    title.unwrap_or(text).trim().to_owned()
}

/// An error object, in whatever shape a vendor gives it.
struct Report {
    /// Type, code and message in lower case: where the known words are looked for.
    words: String,
    message: String,
    /// A status that the object itself names.
    status: Option<u16>,
}

impl Report {
    fn of(object: &Value) -> Report {
        let outer = object.as_array().and_then(|list| list.first()).unwrap_or(object);
        let inner = outer.get("error").filter(|error| !error.is_null()).unwrap_or(outer);
        let text = |key: &str| {
            let value = inner.get(key).or_else(|| outer.get(key));
            value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).unwrap_or_default()
        };
        let message = match inner {
            Value::String(text) => text.clone(),
            _ => [text("message"), text("detail"), text("msg")].into_iter().find(|text| !text.is_empty()).unwrap_or_default(),
        };
        let status = ["code", "status", "status_code"]
            .iter()
            .filter_map(|key| inner.get(*key).and_then(Value::as_u64))
            .find_map(|code| u16::try_from(code).ok().filter(|code| (400..600).contains(code)));
        // OpenRouter wraps the upstream's own words.
        let raw = inner.pointer("/metadata/raw").map(Value::to_string).unwrap_or_default();
        let words = format!("{} {} {message} {raw}", text("type"), text("code")).to_lowercase();
        let message = if message.is_empty() { object.to_string() } else { message };
        Report { words, message, status }
    }

    fn says(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.words.contains(word))
    }

    fn kind(&self, status: Option<u16>) -> ErrorKind {
        if status == Some(402) || self.says(&QUOTA) {
            return ErrorKind::QuotaExhausted;
        }
        // A server's own fault stays one, whatever words its text holds.
        let by_status = status.map(|status| self.kind_of_status(status));
        match by_status {
            Some(kind) if kind != ErrorKind::InvalidRequest && kind != ErrorKind::Unknown => kind,
            _ => self.kind_of_words().or(by_status).unwrap_or(ErrorKind::Unknown),
        }
    }

    fn kind_of_status(&self, status: u16) -> ErrorKind {
        match status {
            401 => ErrorKind::Auth,
            403 => ErrorKind::Permission,
            404 => ErrorKind::NotFound,
            408 => ErrorKind::Timeout,
            409 if self.says(&["lock"]) => ErrorKind::Server,
            413 => ErrorKind::ContextTooLong,
            425 => ErrorKind::Server,
            529 => ErrorKind::Overloaded,
            429 | 500..=599 if self.says(&OVERLOADED) => ErrorKind::Overloaded,
            429 => ErrorKind::RateLimited,
            500..=599 => ErrorKind::Server,
            400..=499 => ErrorKind::InvalidRequest,
            _ => ErrorKind::Unknown,
        }
    }

    fn kind_of_words(&self) -> Option<ErrorKind> {
        let unsupported = self.says(&["unsupported", "not supported"]);
        let table: [(&[&str], ErrorKind); 11] = [
            (&FILTERED, ErrorKind::ContentFiltered),
            (if unsupported { &[] } else { &OUTPUT }, ErrorKind::OutputTooBig),
            (&CONTEXT, ErrorKind::ContextTooLong),
            (&OVERLOADED, ErrorKind::Overloaded),
            (&["rate_limit", "rate limit", "too many requests"], ErrorKind::RateLimited),
            (&["authentication_error", "invalid_api_key", "invalid api key"], ErrorKind::Auth),
            (&["permission_error", "permission_denied"], ErrorKind::Permission),
            (&["not_found_error", "model_not_found"], ErrorKind::NotFound),
            (&["timeout_error", "timed out"], ErrorKind::Timeout),
            (&["invalid_request", "badrequest"], ErrorKind::InvalidRequest),
            (&["api_error", "server_error", "internal error", "internal_error", "upstream"], ErrorKind::Server),
        ];
        table.iter().find(|(words, _)| self.says(words)).map(|(_, kind)| *kind)
    }
}

const QUOTA: [&str; 7] = [
    "insufficient_quota",
    "exceeded_current_quota",
    "exceeded your current quota",
    "billing_error",
    "credit balance is too low",
    "insufficient balance",
    "insufficient credits",
];
const FILTERED: [&str; 4] = ["content_filter", "content_policy_violation", "data_inspection_failed", "content management policy"];
const OUTPUT: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
const CONTEXT: [&str; 7] = [
    "context_length_exceeded",
    "maximum context length",
    "prompt is too long",
    "input is too long",
    "context window",
    "exceeds the available context",
    "request_too_large",
];
const OVERLOADED: [&str; 3] = ["overloaded", "no capacity", "at capacity"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harness_n8_bodies_become_kinds() {
        let cases: [(u16, &str, ErrorKind); 24] = [
            (401, r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#, ErrorKind::Auth),
            (402, r#"{"error":{"message":"Insufficient Balance","type":"unknown_error"}}"#, ErrorKind::QuotaExhausted),
            (403, r#"{"error":{"message":"no access"}}"#, ErrorKind::Permission),
            (404, r#"{"detail":"Not Found"}"#, ErrorKind::NotFound),
            (408, "", ErrorKind::Timeout),
            (409, r#"{"error":{"message":"conflict"}}"#, ErrorKind::InvalidRequest),
            (409, r#"{"error":{"message":"could not acquire lock"}}"#, ErrorKind::Server),
            (
                413,
                r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
                ErrorKind::ContextTooLong,
            ),
            (422, r#"{"detail":[{"msg":"field required"}]}"#, ErrorKind::InvalidRequest),
            (425, "", ErrorKind::Server),
            (429, r#"{"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}"#, ErrorKind::RateLimited),
            (429, r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#, ErrorKind::QuotaExhausted),
            (429, r#"{"error":{"message":"The engine is currently overloaded","type":"engine_overloaded_error"}}"#, ErrorKind::Overloaded),
            (500, "<html><head><title>500 Internal</title></head></html>", ErrorKind::Server),
            (503, "{\"error\":{\"message\":\"max_tokens service down\"}}", ErrorKind::Server),
            (522, "", ErrorKind::Server),
            (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, ErrorKind::Overloaded),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}"#,
                ErrorKind::ContextTooLong,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
                ErrorKind::ContextTooLong,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 100000 > 64000, which is the maximum allowed"}}"#,
                ErrorKind::OutputTooBig,
            ),
            (
                400,
                r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model.","type":"invalid_request_error"}}"#,
                ErrorKind::InvalidRequest,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
                ErrorKind::QuotaExhausted,
            ),
            (400, r#"{"error":{"code":"content_filter","message":"The response was filtered"}}"#, ErrorKind::ContentFiltered),
            (400, r#"[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]"#, ErrorKind::InvalidRequest),
        ];
        for (status, body, kind) in cases {
            let error = from_response(status, body.as_bytes());
            assert_eq!(error.kind, kind, "{status} {body}");
            assert_eq!(error.status, Some(status));
        }
    }

    #[test]
    fn errors_in_a_stream_are_typed_by_their_words_or_code() {
        let cases = [
            (r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, ErrorKind::Overloaded),
            (r#"{"error":{"code":502,"message":"Provider returned error"}}"#, ErrorKind::Server),
            (r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#, ErrorKind::RateLimited),
            (r#"{"error":{"code":429,"message":"Provider returned error","metadata":{"raw":"x"}}}"#, ErrorKind::RateLimited),
            (r#"{"error":"upstream connect error"}"#, ErrorKind::Server),
            (r#"{"error":{"message":"odd"}}"#, ErrorKind::Unknown),
        ];
        for (body, kind) in cases {
            assert_eq!(in_band(&serde_json::from_str(body).unwrap(), Phase::MidStream).kind, kind, "{body}");
        }
    }

    #[test]
    fn messages_are_bounded_and_pages_told_by_title() {
        assert_eq!(from_response(502, b"<html><title> Bad gateway </title>").message, "Bad gateway");
        assert_eq!(from_response(500, "ü".repeat(9000).as_bytes()).message.chars().count(), 500);
    }
}
