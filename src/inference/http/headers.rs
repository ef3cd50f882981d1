//! Response headers worth keeping, and how long a server asks us to wait (harness N9, F3). Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::header::HeaderMap;
use serde_json::{Map, Value};

/// The names under which servers give the id of a request, best first.
const REQUEST_IDS: [&str; 4] = ["request-id", "x-request-id", "x-msh-request-id", "cf-ray"];
/// Characters kept of one header.
const LENGTH: usize = 200;

/// Request ids and rate limits.
pub(super) fn worth_keeping(headers: &HeaderMap) -> Map<String, Value> {
    let mut kept: Vec<(String, Value)> = headers
        .iter()
        .filter(|(name, _)| {
            let name = name.as_str();
            REQUEST_IDS.contains(&name) || name.contains("ratelimit") || name.starts_with("retry-after")
        })
        .filter_map(|(name, value)| {
            let value: String = value.to_str().ok()?.chars().take(LENGTH).collect();
            Some((name.as_str().to_owned(), Value::String(value)))
        })
        .collect();
    kept.sort_by(|left, right| left.0.cmp(&right.0));
    kept.into_iter().collect()
}

/// The vendor's id of the request.
pub(super) fn request_id(headers: &HeaderMap) -> Option<String> {
    REQUEST_IDS.iter().find_map(|name| Some(headers.get(*name)?.to_str().ok()?.chars().take(LENGTH).collect()))
}

/// `retry-after-ms`, `Retry-After` in seconds or as a date.
pub(super) fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(wait) = text("retry-after-ms").and_then(|value| value.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(wait / 1000.0).ok();
    }
    let value = text("retry-after")?;
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let due = DateTime::parse_from_rfc2822(value).ok()?;
    Some((due.to_utc() - now).to_std().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn harness_f3_retry_after_in_all_its_forms() {
        let now = DateTime::parse_from_rfc3339("2026-12-01T10:00:00Z").unwrap().to_utc();
        let wait = |pairs: &[_]| retry_after(&headers(pairs), now);
        assert_eq!(wait(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
        assert_eq!(wait(&[("retry-after", "1.5")]), Some(Duration::from_millis(1500)));
        assert_eq!(wait(&[("retry-after", "60"), ("retry-after-ms", "250")]), Some(Duration::from_millis(250)));
        assert_eq!(wait(&[("retry-after", "Tue, 01 Dec 2026 10:00:30 GMT")]), Some(Duration::from_secs(30)));
        assert_eq!(wait(&[("retry-after", "Tue, 01 Dec 2026 09:00:00 GMT")]), Some(Duration::ZERO));
        for nonsense in ["-5", "soon", "1e400", "NaN"] {
            assert_eq!(wait(&[("retry-after", nonsense)]), None, "{nonsense}");
        }
    }

    #[test]
    fn harness_n9_request_ids_and_limits_are_kept_and_nothing_else() {
        let all = headers(&[("x-request-id", "r1"), ("x-ratelimit-remaining-requests", "3"), ("set-cookie", "s"), ("date", "d")]);
        assert_eq!(worth_keeping(&all).keys().collect::<Vec<_>>(), ["x-ratelimit-remaining-requests", "x-request-id"]);
        assert_eq!(request_id(&all).as_deref(), Some("r1"));
    }
}
