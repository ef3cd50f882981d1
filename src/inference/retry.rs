//! When a failed attempt is repeated, and after how long (harness F2, F3). Pure: chance and time are parameters.

use std::time::Duration;

use super::{ErrorKind, ModelError};

/// Attempts at one model.
pub(super) const ATTEMPTS: u32 = 5;
/// From the first failure on, how long attempts go on.
const TOTAL: Duration = Duration::from_mins(5);
/// A server that asks for more patience than this is not waited for: mail can be parked.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
const BASE: Duration = Duration::from_secs(1);
const CAP: Duration = Duration::from_mins(1);

/// How long to wait before the next attempt, or `None` when there is none. `failures` counts this one;
/// `since_first` is the time since the first failure; `chance` lies in 0..1 (full jitter).
pub(super) fn delay(error: &ModelError, failures: u32, since_first: Duration, chance: f64) -> Option<Duration> {
    if !error.kind.is_retryable() || failures >= ATTEMPTS {
        return None;
    }
    let asked = error.retry_after.unwrap_or_default();
    if asked > LONGEST_WAIT {
        return None;
    }
    let ceiling = BASE.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(CAP);
    let wait = asked.max(ceiling.mul_f64(chance.clamp(0.0, 1.0)));
    (since_first.saturating_add(wait) <= TOTAL).then_some(wait)
}

/// How long nobody should ask this server, when it said so and that is worth waiting for (harness F8).
pub(super) fn rest(error: &ModelError) -> Option<Duration> {
    let limited = matches!(error.kind, ErrorKind::RateLimited | ErrorKind::Overloaded);
    error.retry_after.filter(|asked| limited && *asked <= LONGEST_WAIT)
}

/// A number in 0..1 from the system's random source.
pub(super) fn chance() -> f64 {
    f64::from(u32::from_le_bytes(crate::random::bytes())) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::Phase;
    use super::*;

    fn error(kind: ErrorKind, retry_after: Option<u64>) -> ModelError {
        ModelError {
            kind,
            status: None,
            message: "x".into(),
            retry_after: retry_after.map(Duration::from_secs),
            request_id: None,
            phase: Phase::Headers,
        }
    }

    #[test]
    fn harness_f3_waits_double_up_to_the_cap_and_obey_the_server() {
        let server = error(ErrorKind::Server, None);
        let waits: Vec<_> = (1..=5).map(|n| delay(&server, n, Duration::ZERO, 1.0).map(|d| d.as_secs())).collect();
        assert_eq!(waits, [Some(1), Some(2), Some(4), Some(8), None], "five attempts, four waits");
        assert_eq!(delay(&server, 3, Duration::ZERO, 0.5), Some(Duration::from_secs(2)), "full jitter");
        assert_eq!(delay(&error(ErrorKind::RateLimited, Some(30)), 1, Duration::ZERO, 1.0), Some(Duration::from_secs(30)));
        assert_eq!(delay(&error(ErrorKind::RateLimited, Some(301)), 1, Duration::ZERO, 1.0), None, "over five minutes: no wait");
        assert_eq!(delay(&server, 2, Duration::from_secs(299), 1.0), None, "five minutes in all");
    }

    #[test]
    fn harness_f2_errors_of_our_own_making_are_not_repeated() {
        for kind in [ErrorKind::Auth, ErrorKind::Permission, ErrorKind::NotFound, ErrorKind::InvalidRequest, ErrorKind::QuotaExhausted] {
            assert_eq!(delay(&error(kind, Some(1)), 1, Duration::ZERO, 1.0), None, "{kind}");
        }
    }
}
