//! `[limits]`: their defaults, and how they are listed (DESIGN 2.7).

use std::time::Duration;

use super::Limits;
use super::read::{Section, duration_text};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            concurrent_runs: 16,
            run_time: Duration::from_secs(600),
            tool_calls_per_round: 16,
            tool_calls_per_run: 64,
            parallel_tools: 8,
            tool_result_bytes: 102_400,
            letter_bytes: 25 << 20,
            replies_per_thread_per_hour: 10,
            replies_per_thread_per_day: 30,
            replies_per_sender_per_hour: 20,
            replies_per_domain_per_hour: 100,
            replies_per_day: 2000,
            operator_mails_per_hour: 60,
            question_expires: Duration::from_secs(14 * DAY),
            question_reminder: Duration::from_secs(48 * HOUR),
            approval_expires: Duration::from_secs(24 * HOUR),
            queue_age: Duration::from_secs(48 * HOUR),
            shutdown_grace: Duration::from_secs(30),
            alarm_after: Duration::from_secs(900),
        }
    }
}

impl Limits {
    /// Each limit by its name, with its value as a file would say it.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        vec![
            ("concurrent_runs", self.concurrent_runs.to_string()),
            ("run_time", duration_text(self.run_time)),
            ("tool_calls_per_round", self.tool_calls_per_round.to_string()),
            ("tool_calls_per_run", self.tool_calls_per_run.to_string()),
            ("parallel_tools", self.parallel_tools.to_string()),
            ("tool_result_bytes", self.tool_result_bytes.to_string()),
            ("letter_bytes", self.letter_bytes.to_string()),
            ("replies_per_thread_per_hour", self.replies_per_thread_per_hour.to_string()),
            ("replies_per_thread_per_day", self.replies_per_thread_per_day.to_string()),
            ("replies_per_sender_per_hour", self.replies_per_sender_per_hour.to_string()),
            ("replies_per_domain_per_hour", self.replies_per_domain_per_hour.to_string()),
            ("replies_per_day", self.replies_per_day.to_string()),
            ("operator_mails_per_hour", self.operator_mails_per_hour.to_string()),
            ("question_expires", duration_text(self.question_expires)),
            ("question_reminder", duration_text(self.question_reminder)),
            ("approval_expires", duration_text(self.approval_expires)),
            ("queue_age", duration_text(self.queue_age)),
            ("shutdown_grace", duration_text(self.shutdown_grace)),
            ("alarm_after", duration_text(self.alarm_after)),
        ]
    }

    /// Reads `[limits]`; what it leaves out keeps its default.
    pub(super) fn read(section: &Section<'_>) -> Limits {
        let default = Limits::default();
        let count = |key, most, default| section.integer(key, 1..=most).unwrap_or(default);
        let time = |key, default| {
            let Some(entry) = section.get(key) else { return default };
            let found = entry.duration();
            if found.is_some_and(|found| found.is_zero()) {
                entry.wrong("is zero", "write a duration such as \"30s\"");
            }
            found.unwrap_or(default)
        };
        Limits {
            concurrent_runs: count("concurrent_runs", 1024, default.concurrent_runs),
            run_time: time("run_time", default.run_time),
            tool_calls_per_round: count("tool_calls_per_round", 1024, default.tool_calls_per_round),
            tool_calls_per_run: count("tool_calls_per_run", 65_536, default.tool_calls_per_run),
            parallel_tools: count("parallel_tools", 1024, default.parallel_tools),
            tool_result_bytes: bytes(section, "tool_result_bytes", 1024, 64 << 20)
                .and_then(|size| u32::try_from(size).ok())
                .unwrap_or(default.tool_result_bytes),
            letter_bytes: bytes(section, "letter_bytes", 4096, 1 << 30).unwrap_or(default.letter_bytes),
            replies_per_thread_per_hour: count("replies_per_thread_per_hour", 1_000_000, default.replies_per_thread_per_hour),
            replies_per_thread_per_day: count("replies_per_thread_per_day", 1_000_000, default.replies_per_thread_per_day),
            replies_per_sender_per_hour: count("replies_per_sender_per_hour", 1_000_000, default.replies_per_sender_per_hour),
            replies_per_domain_per_hour: count("replies_per_domain_per_hour", 1_000_000, default.replies_per_domain_per_hour),
            replies_per_day: count("replies_per_day", 100_000_000, default.replies_per_day),
            operator_mails_per_hour: count("operator_mails_per_hour", 1_000_000, default.operator_mails_per_hour),
            question_expires: time("question_expires", default.question_expires),
            question_reminder: time("question_reminder", default.question_reminder),
            approval_expires: time("approval_expires", default.approval_expires),
            queue_age: time("queue_age", default.queue_age),
            shutdown_grace: time("shutdown_grace", default.shutdown_grace),
            alarm_after: time("alarm_after", default.alarm_after),
        }
    }
}

fn bytes(section: &Section<'_>, key: &'static str, least: u64, most: u64) -> Option<u64> {
    let entry = section.get(key)?;
    let size = entry.size()?;
    if !(least..=most).contains(&size) {
        entry.wrong(format_args!("is {size} bytes"), format_args!("write a size from {least} to {most} bytes"));
        return None;
    }
    Some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_of_the_design_is_listed_with_its_default() {
        let listed: Vec<String> = Limits::default().rows().into_iter().map(|(name, value)| format!("{name} {value}")).collect();
        expect_test::expect![[r#"
            concurrent_runs 16
            run_time 10m
            tool_calls_per_round 16
            tool_calls_per_run 64
            parallel_tools 8
            tool_result_bytes 102400
            letter_bytes 26214400
            replies_per_thread_per_hour 10
            replies_per_thread_per_day 30
            replies_per_sender_per_hour 20
            replies_per_domain_per_hour 100
            replies_per_day 2000
            operator_mails_per_hour 60
            question_expires 14d
            question_reminder 2d
            approval_expires 1d
            queue_age 2d
            shutdown_grace 30s
            alarm_after 15m"#]]
        .assert_eq(&listed.join("\n"));
    }
}
