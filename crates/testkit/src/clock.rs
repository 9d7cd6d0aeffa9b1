//! Time that passes only when a test lets it.

use std::sync::mpsc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, advance, pause, resume};

/// Time passes in steps of this length.
const STEP: Duration = Duration::from_millis(20);

/// Processes and sockets get this much real time in each step.
const REAL_TIME_STEP: Duration = Duration::from_millis(1);

/// While it lives, tokio's clock stands still: no timer fires. Processes and sockets go on. It needs a
/// runtime of one thread.
pub struct StoppedClock {
    _held: mpsc::Sender<()>,
}

impl StoppedClock {
    /// Stops the clock.
    ///
    /// A paused clock jumps to the next timer as soon as no task can go on, though a process may be at work.
    /// It does not while a blocking task runs, so one runs until the end.
    pub fn stop() -> StoppedClock {
        pause();
        let (_held, end) = mpsc::channel();
        drop(spawn_blocking(move || end.recv().ok()));
        StoppedClock { _held }
    }

    /// Lets this much time pass, quicker than it does.
    pub async fn advance_by(&self, time: Duration) {
        let end = Instant::now() + time;
        // Tasks that have just begun set their timers first.
        wait_real_time().await;
        while Instant::now() < end {
            advance(STEP.min(end - Instant::now())).await;
            wait_real_time().await;
        }
    }
}

impl Drop for StoppedClock {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            resume();
        }
    }
}

/// Waits for a moment of real time, also while the clock stands still.
pub async fn wait_real_time() {
    spawn_blocking(|| std::thread::sleep(REAL_TIME_STEP)).await.unwrap();
}

#[tokio::test]
async fn a_stopped_clock_fires_no_timer_until_time_passes() {
    let clock = StoppedClock::stop();
    let began = Instant::now();
    let timer = tokio::spawn(tokio::time::sleep(Duration::from_secs(1)));
    for _ in 0..20 {
        wait_real_time().await;
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "it jumps to the next timer");
    clock.advance_by(Duration::from_millis(980)).await;
    assert!(!timer.is_finished());
    clock.advance_by(Duration::from_millis(30)).await;
    assert!(timer.is_finished());
    assert_eq!(began.elapsed(), Duration::from_millis(1010));
    drop(clock);
    // It goes on by itself.
    tokio::time::sleep(Duration::from_millis(1)).await;
}
