//! Durations as Slurm writes them: `[D-]HH:MM:SS`.

const DAY: u64 = 86_400;

/// Seconds of `[D-]HH:MM:SS`; `None` for anything else.
pub fn parse(text: &str) -> Option<u64> {
    let number = |t: &str| t.parse::<u32>().ok().filter(|_| t.bytes().all(|b| b.is_ascii_digit()));
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let parts = clock.split(':').map(number).collect::<Option<Vec<u32>>>()?;
    let [hours, minutes, secs] = parts[..] else { return None };
    let clock = u64::from(hours) * 3600 + u64::from(minutes) * 60 + u64::from(secs);
    Some(u64::from(number(days)?) * DAY + clock)
}

/// As squeue writes it: `0:07`, `12:30`, `1:02:03`, `2-00:00:00`. What is negative or NaN is `0:00`.
pub fn format_duration(secs: f64) -> String {
    let s = secs.max(0.0) as u64;
    let days = s / DAY;
    let h = s / 3600 % 24;
    let m = s / 60 % 60;
    let s = s % 60;
    match (days, h) {
        (0, 0) => format!("{m}:{s:02}"),
        (0, _) => format!("{h}:{m:02}:{s:02}"),
        _ => format!("{days}-{h:02}:{m:02}:{s:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_squeue_does() {
        let all = [-3.0, f64::NAN, 7.9, 750.0, 3723.0, 172_800.0].map(format_duration);
        assert_eq!(all, ["0:00", "0:00", "0:07", "12:30", "1:02:03", "2-00:00:00"]);
    }

    #[test]
    fn durations_are_read_as_slurm_writes_them() {
        let all = ["00:02:00", "1-00:00:00", "120:00:01"].map(parse);
        assert_eq!(all, [Some(120), Some(86_400), Some(432_001)]);
        for none in ["", "x", "5", "02:00", "1-5", "-1", "NONE", "a-00:00:01", "00:+1:00", "1:2:3:4"] {
            assert_eq!(parse(none), None, "{none}");
        }
    }
}
