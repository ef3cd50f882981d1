//! How long to wait before trying again: growing, with jitter, and a pace for logins (email A11, A12).

use std::time::Duration;

use tokio::time::Instant;

/// Waits that double from a floor to a ceiling, each shortened at random by up to a fifth so that many
/// clients do not come back at once.
#[derive(Debug, Clone)]
pub struct Backoff {
    floor: Duration,
    ceiling: Duration,
    failures: u32,
}

impl Backoff {
    /// Starts at the floor.
    pub fn new(floor: Duration, ceiling: Duration) -> Backoff {
        Backoff { floor, ceiling, failures: 0 }
    }

    /// The wait after one more failure.
    pub fn after_failure(&mut self) -> Duration {
        let doubled = self.floor.saturating_mul(2_u32.saturating_pow(self.failures.min(20)));
        self.failures = self.failures.saturating_add(1);
        jittered(doubled.min(self.ceiling), 20)
    }

    /// Back to the floor: what was tried works again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last reset.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// A duration shortened at random by up to `percent`.
pub fn jittered(duration: Duration, percent: u32) -> Duration {
    let share = u32::from(u16::from_be_bytes(crate::random::bytes())) * percent.min(100) / u32::from(u16::MAX);
    duration * (100 - share) / 100
}

/// Lets a few logins pass at once and then one for each `every` (email A11): a server that takes the
/// login and then drops the connection must not be hammered.
#[derive(Debug)]
pub struct LoginPace {
    burst: u32,
    every: Duration,
    left: u32,
    since: Instant,
}

impl LoginPace {
    /// A full allowance.
    pub fn new(burst: u32, every: Duration) -> LoginPace {
        LoginPace { burst, every, left: burst, since: Instant::now() }
    }

    /// How long to wait before the next login, which is counted.
    pub fn next(&mut self, now: Instant) -> Duration {
        while self.left < self.burst && now.saturating_duration_since(self.since) >= self.every {
            self.left += 1;
            self.since += self.every;
        }
        if self.left == self.burst {
            self.since = now;
        }
        if self.left > 0 {
            self.left -= 1;
            return Duration::ZERO;
        }
        let wait = (self.since + self.every).saturating_duration_since(now);
        self.since += self.every;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn email_a11_waits_double_up_to_the_ceiling_and_start_over_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(300));
        for expected in [2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            let wait = backoff.after_failure();
            assert!(wait <= Duration::from_secs(expected), "{wait:?} for {expected}");
            assert!(wait >= Duration::from_secs(expected) * 79 / 100, "{wait:?} for {expected}");
        }
        backoff.reset();
        assert!(backoff.after_failure() <= Duration::from_secs(2));
    }

    #[test]
    fn email_a11_logins_beyond_the_burst_are_paced() {
        let start = Instant::now();
        let mut pace = LoginPace::new(2, Duration::from_secs(60));
        assert_eq!(pace.next(start), Duration::ZERO);
        assert_eq!(pace.next(start), Duration::ZERO);
        assert_eq!(pace.next(start), Duration::from_secs(60));
        let later = start + Duration::from_secs(60);
        assert_eq!(pace.next(later), Duration::from_secs(60));
        let calm = start + Duration::from_secs(600);
        assert_eq!(pace.next(calm), Duration::ZERO);
        assert_eq!(pace.next(calm), Duration::ZERO);
        assert!(pace.next(calm) > Duration::ZERO);
    }
}
