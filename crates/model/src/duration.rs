//! Durations as Slurm writes them: `[D-]HH:MM:SS`.

const DAY: u64 = 86_400;

/// Seconds of `[D-]HH:MM:SS`. `None` for any other form.
pub fn parse(text: &str) -> Option<u64> {
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let parts = clock.split(':').map(parse_number).collect::<Option<Vec<u32>>>()?;
    let [hours, minutes, secs] = parts[..] else { return None };
    let clock = u64::from(hours) * 3600 + u64::from(minutes) * 60 + u64::from(secs);
    Some(u64::from(parse_number(days)?) * DAY + clock)
}

/// A number of digits only: `u32` also parses a sign.
fn parse_number(text: &str) -> Option<u32> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Formats seconds as squeue does: `0:07`, `12:30`, `1:02:03`, `2-00:00:00`. Negative values and NaN give
/// `0:00`.
pub fn format_duration(secs: f64) -> String {
    let total = secs.max(0.0) as u64;
    let days = total / DAY;
    let hours = total / 3600 % 24;
    let minutes = total / 60 % 60;
    let secs = total % 60;
    match (days, hours) {
        (0, 0) => format!("{minutes}:{secs:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{secs:02}"),
        _ => format!("{days}-{hours:02}:{minutes:02}:{secs:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_squeue_does() {
        let formatted = [-3.0, f64::NAN, 7.9, 750.0, 3723.0, 172_800.0].map(format_duration);
        assert_eq!(formatted, ["0:00", "0:00", "0:07", "12:30", "1:02:03", "2-00:00:00"]);
    }

    #[test]
    fn durations_are_read_as_slurm_writes_them() {
        let parsed = ["00:02:00", "1-00:00:00", "120:00:01"].map(parse);
        assert_eq!(parsed, [Some(120), Some(86_400), Some(432_001)]);
        for invalid in ["", "x", "5", "02:00", "1-5", "-1", "NONE", "a-00:00:01", "00:+1:00", "1:2:3:4"] {
            assert_eq!(parse(invalid), None, "{invalid}");
        }
    }
}
