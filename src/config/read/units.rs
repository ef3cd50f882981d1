//! Durations, sizes and amounts as operators write them.

use std::time::Duration;

/// A month, long enough that nothing is ended or erased early.
const MONTH: u64 = 31 * DAY;
const DAY: u64 = 24 * 3600;
/// No duration of a configuration is meant to be longer.
const LONGEST: u64 = 100 * 366 * DAY;

/// `500ms`, `30s`, `10m`, `2h`, `14d`, `24mo`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "ms" => return Some(Duration::from_millis(number)).filter(|found| found.as_secs() <= LONGEST),
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => DAY,
        "mo" => MONTH,
        _ => return None,
    };
    number.checked_mul(seconds).filter(|&seconds| seconds <= LONGEST).map(Duration::from_secs)
}

/// `100KB`, `25MB`, `1GB`, in powers of 1024.
pub(crate) fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let bytes = match unit {
        "B" => 1,
        "KB" => 1 << 10,
        "MB" => 1 << 20,
        "GB" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(bytes)
}

/// `0.60` in millionths: no float ever touches money.
pub(crate) fn money(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 6 {
        return None;
    }
    let millionths: u64 = format!("{fraction:0<6}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(millionths)
}

/// A duration in its largest whole unit, as a file would say it.
pub(crate) fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        _ if duration.subsec_millis() != 0 => format!("{}ms", duration.as_millis()),
        0 => "0s".into(),
        _ if seconds.is_multiple_of(DAY) => format!("{}d", seconds / DAY),
        _ if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

fn split(text: &str) -> Option<(u64, &str)> {
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(at)?;
    Some((number.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_a_bound() {
        let good = [("500ms", 500), ("30s", 30_000), ("10m", 600_000), ("2h", 7_200_000), ("14d", 1_209_600_000), ("0s", 0)];
        for (text, millis) in good {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(duration("24mo"), Some(Duration::from_secs(24 * 31 * 86400)));
        for text in ["", "10", "s", "-1s", "1.5h", "10 m", "1y", "99999999999d", "18446744073709551615h", "10mé"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_count_in_1024() {
        assert_eq!(size("100KB"), Some(102_400));
        assert_eq!(size("25MB"), Some(26_214_400));
        for text in ["25", "25mb", "1TB", "99999999999999GB", ""] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn money_is_exact() {
        for (text, millionths) in [("0.60", 600_000), ("5", 5_000_000), ("0.000001", 1), ("2.50", 2_500_000), ("0", 0)] {
            assert_eq!(money(text), Some(millionths), "{text}");
        }
        for text in ["", ".5", "5.", "-1", "1e3", "0.0000001", "1,5", "18446744073709.551616", "€5"] {
            assert_eq!(money(text), None, "{text}");
        }
    }

    #[test]
    fn a_duration_reads_back() {
        for text in ["250ms", "90s", "10m", "36h", "14d", "0s"] {
            assert_eq!(duration_text(duration(text).unwrap()), text);
        }
    }
}
