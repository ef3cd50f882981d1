//! What an attempt means for a letter, and what it means for the whole queue (email G9, G10). Pure.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::smtp::Outcome;
use crate::store::{ClaimedOutgoing, Sent};

/// When a refused letter is tried again, by attempts so far; the last one repeats.
const STEPS: [TimeDelta; 7] = [
    TimeDelta::minutes(1),
    TimeDelta::minutes(5),
    TimeDelta::minutes(15),
    TimeDelta::minutes(60),
    TimeDelta::hours(3),
    TimeDelta::hours(6),
    TimeDelta::hours(12),
];

/// How long to wait for a copy, an echo or a bounce before a letter in doubt is looked into.
const DOUBT: TimeDelta = TimeDelta::minutes(10);

/// The first and the longest pause while a server cannot be reached (DESIGN 3).
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// How long the queue rests when the account is refused or used up: asking often would lock it.
const LOGIN_PAUSE: Duration = Duration::from_secs(15 * 60);
const QUOTA_PAUSE: Duration = Duration::from_secs(60 * 60);

/// An attempt, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judged {
    /// For the letter.
    pub(super) sent: Sent,
    /// For the mailbox's queue.
    pub(super) queue: Queue,
}

/// What an attempt says about the mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Queue {
    /// Its server answers.
    Flows,
    /// Nothing leaves for a while.
    Rests(Rest),
}

/// Why a queue rests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rest {
    /// The server cannot be reached.
    Unreachable(String),
    /// The server does not let us in: the operator must act.
    Login(String),
    /// The account has sent all it may for now.
    Quota(String),
}

impl Rest {
    /// One word for logs.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Rest::Unreachable(_) => "unreachable",
            Rest::Login(_) => "login",
            Rest::Quota(_) => "quota",
        }
    }
}

/// What an SMTP outcome means.
pub(super) fn judge(outcome: Outcome, letter: &ClaimedOutgoing, queue_age: Duration, now: DateTime<Utc>) -> Judged {
    let flows = |sent| Judged { sent, queue: Queue::Flows };
    // The letter is due again at once: the queue's rest keeps it back, and ends early when settings change.
    let rests = |rest: Rest, error: String| Judged { sent: Sent::Unreached { at: now, error }, queue: Queue::Rests(rest) };
    match outcome {
        Outcome::Accepted => flows(Sent::Accepted),
        Outcome::Uncertain(error) => flows(Sent::Uncertain { check_at: now + DOUBT, error }),
        Outcome::Unreachable(error) if letter_ends(letter, queue_age).is_some_and(|end| now > end) => {
            Judged { sent: Sent::Failed { error: format!("given up: {error}") }, queue: Queue::Rests(Rest::Unreachable(error)) }
        }
        Outcome::Unreachable(error) => rests(Rest::Unreachable(error.clone()), error),
        Outcome::LoginRefused(error) => rests(Rest::Login(error.clone()), error),
        Outcome::Broken(error) => flows(later(error, letter, queue_age, now)),
        Outcome::Refused(refusal) if refusal.is_about_login() => rests(Rest::Login(refusal.to_string()), refusal.to_string()),
        Outcome::Refused(refusal) if refusal.is_about_quota() => rests(Rest::Quota(refusal.to_string()), refusal.to_string()),
        Outcome::Refused(refusal) if refusal.is_permanent() => flows(Sent::Failed { error: refusal.to_string() }),
        Outcome::Refused(refusal) => flows(later(refusal.to_string(), letter, queue_age, now)),
    }
}

/// The next step of the ladder, or the end of it.
pub(super) fn later(error: String, letter: &ClaimedOutgoing, queue_age: Duration, now: DateTime<Utc>) -> Sent {
    let attempts = usize::try_from(letter.attempts).unwrap_or(usize::MAX).saturating_sub(1);
    let wait = STEPS.get(attempts).copied().unwrap_or(TimeDelta::hours(12));
    let at = now + wait;
    let too_old = letter_ends(letter, queue_age).is_some_and(|end| at > end);
    if too_old {
        Sent::Failed { error: format!("given up after {} attempts: {error}", letter.attempts) }
    } else {
        Sent::Later { at, error }
    }
}

/// Until when a letter is tried.
fn letter_ends(letter: &ClaimedOutgoing, queue_age: Duration) -> Option<DateTime<Utc>> {
    letter.queued_at.checked_add_signed(TimeDelta::from_std(queue_age).ok()?)
}

/// How long the queue rests; `failures` counts them since the last success, this one included.
pub(super) fn pause(rest: &Rest, failures: u32) -> Duration {
    match rest {
        Rest::Unreachable(_) => FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE),
        Rest::Login(_) => LOGIN_PAUSE,
        Rest::Quota(_) => QUOTA_PAUSE,
    }
}

#[cfg(test)]
mod tests {
    use super::super::smtp::Refusal;
    use super::*;
    use crate::gateway::test_letters::claimed;

    const QUEUE_AGE: Duration = Duration::from_secs(48 * 3600);

    fn refused(code: u16, enhanced: Option<&str>, text: &str) -> Outcome {
        Outcome::Refused(Refusal { code, enhanced: enhanced.map(str::to_owned), text: text.to_owned() })
    }

    #[test]
    fn email_g10_the_ladder_and_its_end() {
        let mut letter = claimed("one");
        let mut now = letter.queued_at;
        let mut waits = Vec::new();
        let error = loop {
            match judge(refused(451, None, "later"), &letter, QUEUE_AGE, now).sent {
                Sent::Later { at, .. } => {
                    waits.push((at - now).num_minutes());
                    now = at;
                    letter.attempts += 1;
                }
                Sent::Failed { error } => break error,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(waits, [1, 5, 15, 60, 180, 360, 720, 720, 720], "the last one within 48 h");
        assert_eq!(error, "given up after 10 attempts: 451 later");
    }

    #[test]
    fn email_g10_each_reply_and_what_it_means() {
        let letter = claimed("one");
        let now = letter.queued_at;
        let judged = |outcome| judge(outcome, &letter, QUEUE_AGE, now);
        let failed = |outcome| matches!(judged(outcome), Judged { sent: Sent::Failed { .. }, queue: Queue::Flows });
        let rests = |outcome| match judged(outcome) {
            Judged { sent: Sent::Unreached { at, .. }, queue: Queue::Rests(rest) } => (at == now).then_some(rest),
            _ => None,
        };
        assert!(failed(refused(550, Some("5.1.1"), "no such user")));
        assert!(failed(refused(552, Some("5.2.2"), "mailbox full, quota exceeded")), "the recipient's quota is not ours");
        assert!(failed(refused(0, None, "too large")));
        for code in [530, 534, 535] {
            assert!(matches!(rests(refused(code, None, "auth")), Some(Rest::Login(_))));
        }
        assert!(matches!(rests(refused(550, Some("5.4.5"), "Daily user sending limit exceeded")), Some(Rest::Quota(_))));
        assert!(matches!(rests(refused(550, None, "you have reached your sending limit")), Some(Rest::Quota(_))));
        assert!(matches!(judged(refused(450, Some("4.4.5"), "rate limit, slow down")).sent, Sent::Later { .. }));
        assert!(matches!(rests(Outcome::Unreachable("x".into())), Some(Rest::Unreachable(_))));
        assert!(matches!(rests(Outcome::LoginRefused("x".into())), Some(Rest::Login(_))));
        assert!(matches!(judged(Outcome::Broken("cut".into())).sent, Sent::Later { .. }));
        assert_eq!(
            judged(Outcome::Uncertain("cut".into())).sent,
            Sent::Uncertain { check_at: now + TimeDelta::minutes(10), error: "cut".into() }
        );
        assert_eq!(judged(Outcome::Accepted).sent, Sent::Accepted);
    }

    #[test]
    fn email_g10_a_letter_too_old_is_given_up_even_while_nobody_can_be_reached() {
        let letter = claimed("one");
        let judged = |hours| judge(Outcome::Unreachable("x".into()), &letter, QUEUE_AGE, letter.queued_at + TimeDelta::hours(hours));
        assert!(matches!(judged(48).sent, Sent::Unreached { .. }));
        assert!(matches!(judged(49), Judged { sent: Sent::Failed { .. }, queue: Queue::Rests(_) }));
    }

    #[test]
    fn an_unreachable_server_is_asked_less_and_less_often() {
        let rest = Rest::Unreachable(String::new());
        let seconds: Vec<u64> = (1..=10).map(|failures| pause(&rest, failures).as_secs()).collect();
        assert_eq!(seconds, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(pause(&rest, u32::MAX).as_secs(), 300);
    }
}
