//! Progress of the command: datagrams to a Unix socket, or lines of its output that an expression matches.
//!
//! A datagram is text of words `key=value`:
//!
//! - `samples=N`: samples processed since the sender's last datagram; the counts of all ranks are added up
//! - `step=K` and `loss=X`
//! - `total=N`: how many steps there will be in all, or samples if the command reports no steps
//! - `weight=W`: how much the job counts among its owner's jobs; 1 at first
//! - `saved=SECS`: a checkpoint was saved because of the rescale signal
//! - `package=V`: the version of infill's Python package in the sender
//!
//! A line of output may have the running total of samples instead (`seen`), as most programs print it.
//!
//! Words with other keys are ignored.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use infill_model::OWNER_WEIGHTS;
use regex::bytes::Regex;
use tokio::net::UnixDatagram;

use super::{out_of_memory, package_version};

/// The group of an expression that has the running total of samples.
pub(crate) const RUNNING_TOTAL: &str = "seen";

/// Longest datagram that is read; a longer one is cut, and its last word may be lost.
const MAX_DATAGRAM_BYTES: usize = 4096;

/// Most samples that one message may claim, so that a typo does not spoil a profile for good.
const MAX_SAMPLES: f64 = 1e15;

/// Shortest time that a report covers, seconds.
const MIN_REPORT_SECS: f64 = 1e-6;

/// Number of bad messages at the first warning. Further warnings follow each time the number has doubled.
const FIRST_WARNING: u64 = 1;

/// One message of progress.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ProgressMessage {
    /// Samples since the last message.
    pub samples: f64,
    /// Present step, if reported.
    pub step: Option<u64>,
    /// Present loss, if reported and finite.
    pub loss: Option<f64>,
    /// How many steps there will be in all, or samples.
    pub total: Option<f64>,
    /// How much the job counts among its owner's jobs.
    pub weight: Option<f64>,
    /// Whether it reports that the checkpoint was saved.
    pub saved: bool,
}

impl ProgressMessage {
    fn is_progress(&self) -> bool {
        self.samples > 0.0 || self.step.is_some() || self.loss.is_some() || self.total.is_some()
    }

    /// Reads a datagram; `None` when it has no key that we know, or a value that makes no sense.
    pub fn parse(bytes: &[u8]) -> Option<ProgressMessage> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut message = ProgressMessage::default();
        let mut has_field = false;
        for (key, value) in text.split_whitespace().filter_map(|word| word.split_once('=')) {
            has_field |= message.set_field(key, value)?;
        }
        has_field.then_some(message)
    }

    /// Sets the field of a key. Returns whether the key is ours; `None` when the value makes no sense.
    fn set_field(&mut self, key: &str, value: &str) -> Option<bool> {
        match key {
            "samples" => {
                self.samples = value.parse().ok().filter(|n| (0.0..=MAX_SAMPLES).contains(n))?;
            }
            "step" => self.step = Some(value.parse().ok()?),
            // A loss that diverged needs no alarm here: it is just not shown.
            "loss" => self.loss = Some(value.parse().ok()?).filter(|x: &f64| x.is_finite()),
            // Some programs send -1 or infinity when they do not know the total.
            "total" => self.total = value.parse().ok().filter(|n| *n > 0.0 && *n <= MAX_SAMPLES),
            // A weight out of bounds must not take the progress beside it along.
            "weight" => self.weight = value.parse().ok().filter(|w| OWNER_WEIGHTS.contains(w)),
            "saved" => self.saved = value.parse::<f64>().is_ok(),
            _ => return Some(false),
        }
        Some(true)
    }
}

impl std::fmt::Display for ProgressMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "samples={}", self.samples)?;
        self.step.iter().try_for_each(|step| write!(f, " step={step}"))?;
        self.loss.iter().try_for_each(|loss| write!(f, " loss={loss}"))?;
        self.total.iter().try_for_each(|total| write!(f, " total={total}"))?;
        self.weight.iter().try_for_each(|weight| write!(f, " weight={weight}"))
    }
}

/// The steps that were reported since the command's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepSpan {
    /// The lowest step.
    pub first: u64,
    /// The highest step.
    pub last: u64,
    /// The largest distance of a report from the highest before it. Programs may report only some steps.
    pub stride: u64,
    /// How many reports were higher than all before them.
    pub increases: u64,
}

impl StepSpan {
    fn starting_at(step: u64) -> StepSpan {
        StepSpan { first: step, last: step, stride: 1, increases: 0 }
    }

    fn extend_to(&mut self, step: u64) {
        self.first = self.first.min(step);
        if step > self.last {
            self.stride = self.stride.max(step - self.last);
            self.increases += 1;
            self.last = step;
        }
    }
}

/// The progress that came in since the last report. It is cheap to clone, and shared with the readers.
#[derive(Clone)]
pub(crate) struct ProgressTally(Arc<Mutex<TallyCounts>>);

struct TallyCounts {
    sum: ProgressMessage,
    /// The steps since the command's start; `None` before the first.
    steps: Option<StepSpan>,
    /// When the last message since the last report came.
    last: Option<Instant>,
    /// When the last message of the last report came; before the first report, the start.
    anchor: Instant,
    /// When the command last reported that it has saved its checkpoint.
    saved: Option<Instant>,
    /// When the command's output, or the kernel, last showed that memory ran out.
    out_of_memory_at: Option<Instant>,
    /// The last running total of samples that a line of output had; `None` before the first.
    seen: Option<f64>,
    /// Number of bad messages.
    bad_messages: u64,
    next_warning: u64,
    /// Whether there was a warning about the Python package's version.
    warned_of_package: bool,
}

impl ProgressTally {
    /// An empty tally; time counts from now.
    pub fn new() -> ProgressTally {
        ProgressTally(Arc::new(Mutex::new(TallyCounts {
            sum: ProgressMessage::default(),
            steps: None,
            last: None,
            anchor: Instant::now(),
            saved: None,
            out_of_memory_at: None,
            seen: None,
            bad_messages: 0,
            next_warning: FIRST_WARNING,
            warned_of_package: false,
        })))
    }

    fn counts(&self) -> MutexGuard<'_, TallyCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets the tally for another generation.
    pub fn restart(&self) {
        let mut counts = self.counts();
        counts.sum = ProgressMessage::default();
        counts.steps = None;
        counts.last = None;
        counts.saved = None;
        counts.out_of_memory_at = None;
        counts.seen = None;
        counts.anchor = Instant::now();
    }

    /// When the command last reported that it has saved its checkpoint.
    pub fn saved_at(&self) -> Option<Instant> {
        self.counts().saved
    }

    /// The steps since the command's start; `None` before the first.
    pub(crate) fn steps(&self) -> Option<StepSpan> {
        self.counts().steps
    }

    /// Notes that memory ran out.
    pub(crate) fn note_out_of_memory(&self) {
        self.counts().out_of_memory_at = Some(Instant::now());
    }

    /// Whether memory ran out within [`out_of_memory::RECENT_PERIOD`].
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        self.counts().out_of_memory_at.is_some_and(|at| at.elapsed() < out_of_memory::RECENT_PERIOD)
    }

    /// Adds a datagram, or counts it as a bad message.
    pub(crate) fn add_datagram(&self, bytes: &[u8]) {
        match ProgressMessage::parse(bytes) {
            Some(message) => {
                self.add_message(message);
                self.compare_package(bytes);
            }
            None => self.count_bad_message(bytes.len()),
        }
    }

    /// Adds what a line of output shows: that memory ran out, or progress if `regex` matches.
    pub(crate) fn add_line(&self, regex: Option<&Regex>, line: &[u8]) {
        if out_of_memory::is_out_of_memory(line) {
            self.note_out_of_memory();
        }
        let Some(found) = regex.and_then(|regex| regex.captures(line)) else { return };
        let text_of = |key| found.name(key).and_then(|group| std::str::from_utf8(group.as_bytes()).ok());
        let mut message = ProgressMessage::default();
        for key in ["samples", "step", "loss", "total"] {
            if text_of(key).is_some_and(|value| message.set_field(key, value).is_none()) {
                self.count_bad_message(line.len());
                return;
            }
        }
        if let Some(value) = text_of(RUNNING_TOTAL) {
            match value.parse().ok().filter(|total| (0.0..=MAX_SAMPLES).contains(total)) {
                Some(total) => message.samples = self.samples_until(total),
                None => return self.count_bad_message(line.len()),
            }
        }
        self.add_message(message);
    }

    /// The samples between the last running total and this one. The first total counts for nothing, because
    /// the command may have begun at a checkpoint. Ranks that print the same total count once. A total that
    /// falls starts another count.
    fn samples_until(&self, total: f64) -> f64 {
        let mut counts = self.counts();
        let before = counts.seen.replace(total);
        before.map_or(0.0, |before| (total - before).max(0.0))
    }

    fn add_message(&self, message: ProgressMessage) {
        let mut counts = self.counts();
        let now = Instant::now();
        if message.saved {
            counts.saved = Some(now);
        }
        counts.sum.weight = message.weight.or(counts.sum.weight);
        if !message.is_progress() {
            return;
        }
        counts.last = Some(now);
        if let Some(step) = message.step {
            counts.steps.get_or_insert_with(|| StepSpan::starting_at(step)).extend_to(step);
        }
        counts.sum.samples += message.samples;
        counts.sum.step = message.step.or(counts.sum.step);
        counts.sum.loss = message.loss.or(counts.sum.loss);
        counts.sum.total = message.total.or(counts.sum.total);
    }

    /// Warns once if the sender's Python package is of another version than this infill.
    fn compare_package(&self, datagram: &[u8]) {
        if let Some(version) = package_version::other_version(datagram)
            && !std::mem::replace(&mut self.counts().warned_of_package, true)
        {
            package_version::warn_of_other_version(version);
        }
    }

    fn count_bad_message(&self, bytes: usize) {
        let mut counts = self.counts();
        counts.bad_messages += 1;
        if counts.bad_messages == counts.next_warning {
            counts.next_warning *= 2;
            tracing::warn!(
                total = counts.bad_messages,
                bytes,
                "ignored progress that is not samples=N step=K loss=X"
            );
        }
    }

    /// Takes the progress since the last call that returned any, with the seconds from the last message of
    /// that call to the last of this; `None` if nothing came.
    pub fn take(&self) -> Option<(ProgressMessage, f64)> {
        let mut counts = self.counts();
        let last = counts.last.take()?;
        let secs = last.saturating_duration_since(std::mem::replace(&mut counts.anchor, last)).as_secs_f64();
        // Messages that arrive together may have the same time.
        Some((std::mem::take(&mut counts.sum), secs.max(MIN_REPORT_SECS)))
    }
}

/// Opens the socket at `path`, in place of one that an agent before us left.
pub(crate) fn open_progress_socket(path: &Path) -> io::Result<UnixDatagram> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => UnixDatagram::bind(path),
    }
}

/// Adds everything that comes to `socket` to `tally`, until the socket fails.
pub(crate) async fn receive_datagrams(socket: UnixDatagram, tally: ProgressTally) {
    let mut buffer = [0; MAX_DATAGRAM_BYTES];
    loop {
        match socket.recv(&mut buffer).await {
            Ok(count) => tally.add_datagram(&buffer[..count]),
            Err(error) => {
                tracing::warn!(%error, "the progress socket failed; no progress from now on");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn datagrams_are_read_or_refused() {
        let check = |text: &str, want: Option<(f64, Option<u64>, Option<f64>)>| {
            let got = ProgressMessage::parse(text.as_bytes()).map(|m| (m.samples, m.step, m.loss));
            assert_eq!(got, want, "{text}");
        };
        check("samples=32 step=7 loss=0.5", Some((32.0, Some(7), Some(0.5))));
        check("samples=1e3\n", Some((1000.0, None, None)));
        check("step=7 colour=red", Some((0.0, Some(7), None)));
        check("samples=3 loss=nan", Some((3.0, None, None)));
        check("samples=-1", None);
        check("samples=3 total=-1", Some((3.0, None, None)));
        assert_eq!(ProgressMessage::parse(b"step=7 total=100").and_then(|m| m.total), Some(100.0));
        assert_eq!(ProgressMessage::parse(b"weight=2.5").and_then(|m| m.weight), Some(2.5));
        for bad in ["weight=0", "weight=-1", "weight=NaN", "weight=1000"] {
            let text = format!("samples=3 {bad}");
            let message = ProgressMessage::parse(text.as_bytes()).map(|m| (m.samples, m.weight));
            assert_eq!(message, Some((3.0, None)), "{bad}");
        }
        check("samples=inf", None);
        check("samples=1e300", None);
        check("step=1.5", None);
        check("hello", None);
        check("", None);
        assert_eq!(ProgressMessage::parse(b"samples=\xff"), None);
    }

    #[test]
    fn ranks_are_added_up_and_garbage_is_counted() {
        let tally = ProgressTally::new();
        assert_eq!(tally.take(), None);
        tally.add_datagram(b"samples=8 step=1 loss=2");
        tally.add_datagram(b"samples=8 step=1");
        tally.add_datagram(b"garbage");
        let (sum, secs) = tally.take().unwrap();
        assert_eq!(
            sum,
            ProgressMessage { samples: 16.0, step: Some(1), loss: Some(2.0), ..ProgressMessage::default() }
        );
        assert!(secs >= 0.0);
        assert_eq!(tally.counts().bad_messages, 1);
        assert_eq!(tally.take(), None);
    }

    #[test]
    fn another_version_of_the_package_is_noticed_once() {
        let tally = ProgressTally::new();
        let own = concat!("samples=8 package=", env!("CARGO_PKG_VERSION"));
        tally.add_datagram(own.as_bytes());
        assert!(!tally.counts().warned_of_package);
        tally.add_datagram(b"samples=8 package=0.0.7");
        tally.restart();
        assert!(tally.counts().warned_of_package);
        assert_eq!(tally.counts().bad_messages, 0);
    }

    #[test]
    fn the_span_of_steps_covers_all_ranks_and_reports() {
        let tally = ProgressTally::new();
        tally.add_datagram(b"samples=8");
        assert_eq!(tally.steps(), None);
        for step in [30, 40, 40, 30, 50, 70] {
            tally.add_datagram(format!("step={step}").as_bytes());
        }
        tally.take().unwrap();
        assert_eq!(tally.steps(), Some(StepSpan { first: 30, last: 70, stride: 20, increases: 3 }));
        tally.restart();
        assert_eq!(tally.steps(), None);
    }

    #[test]
    fn time_counts_from_message_to_message() {
        let tally = ProgressTally::new();
        let early = tally.counts().anchor;
        let late = Duration::from_secs(7);
        tally.add_datagram(b"samples=1");
        tally.counts().last = Some(early + late);
        assert_eq!(tally.take().unwrap().1, 7.0);
        tally.add_datagram(b"samples=1");
        tally.counts().last = Some(early + late * 2);
        assert_eq!(tally.take().unwrap().1, 7.0);
    }

    #[test]
    fn a_saved_checkpoint_does_not_count_as_progress() {
        let tally = ProgressTally::new();
        tally.add_datagram(b"saved=0.3");
        assert!(tally.saved_at().is_some() && tally.take().is_none());
    }

    #[test]
    fn progress_is_found_in_lines_of_output() {
        let regex = Regex::new(r"step (?<step>\d+): (?<samples>\S+) samples").unwrap();
        let tally = ProgressTally::new();
        tally.add_line(Some(&regex), b"step 3: 64 samples in 1 s\n");
        tally.add_line(Some(&regex), b"step 4: many samples\n");
        tally.add_line(Some(&regex), b"nothing\n");
        assert_eq!(
            tally.take().unwrap().0,
            ProgressMessage { samples: 64.0, step: Some(3), ..ProgressMessage::default() }
        );
        assert_eq!(tally.counts().bad_messages, 1);
    }

    #[test]
    fn a_running_total_counts_by_its_differences() {
        let regex = Regex::new(r"consumed samples: *(?<seen>\S+)").unwrap();
        let tally = ProgressTally::new();
        let samples_after = |totals: &[&str]| {
            for total in totals {
                tally.add_line(Some(&regex), format!("consumed samples: {total} | loss\n").as_bytes());
            }
            tally.take().map(|(sum, _)| sum.samples)
        };
        // It went on from a checkpoint, which the first line does not tell.
        assert_eq!(samples_after(&["6400"]), None);
        assert_eq!(samples_after(&["6464", "6528"]), Some(128.0));
        assert_eq!(samples_after(&["6528"]), None, "another rank prints the same");
        assert_eq!(samples_after(&["64", "128"]), Some(64.0), "another count");
        assert_eq!(samples_after(&["many", "-1", "1e300"]), None);
        assert_eq!(tally.counts().bad_messages, 3);
        tally.restart();
        assert_eq!(samples_after(&["9000", "9064"]), Some(64.0), "another generation");
    }

    #[tokio::test]
    async fn the_socket_replaces_an_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress");
        drop(open_progress_socket(&path).unwrap());
        let tally = ProgressTally::new();
        let task = tokio::spawn(receive_datagrams(open_progress_socket(&path).unwrap(), tally.clone()));
        let sender = UnixDatagram::unbound().unwrap();
        sender.send_to(b"samples=5", &path).await.unwrap();
        while tally.counts().last.is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(tally.take().unwrap().0.samples, 5.0);
        task.abort();
    }
}
