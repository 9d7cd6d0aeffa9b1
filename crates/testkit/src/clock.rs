//! A clock that advances only when a test says so.

use std::sync::mpsc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, advance, pause, resume};

/// [`StoppedClock::advance_by`] advances the clock in steps of this length.
const STEP: Duration = Duration::from_millis(20);

/// Processes and sockets get this much real time in each step.
const REAL_TIME_STEP: Duration = Duration::from_millis(1);

/// Stops tokio's clock while it lives: no timer fires. Processes and sockets go on. It needs a runtime of one
/// thread.
pub struct StoppedClock {
    /// Dropping it ends the blocking task.
    _blocking_task: mpsc::Sender<()>,
}

impl StoppedClock {
    /// Stops the clock.
    ///
    /// A paused clock jumps to the next timer as soon as no task can go on, even if a process is at work.
    /// It does not jump while a blocking task runs, so one runs until this value is dropped.
    pub fn stop() -> StoppedClock {
        pause();
        let (_blocking_task, end) = mpsc::channel();
        drop(spawn_blocking(move || end.recv().ok()));
        StoppedClock { _blocking_task }
    }

    /// Advances the clock by this much, faster than real time.
    pub async fn advance_by(&self, time: Duration) {
        let end = Instant::now() + time;
        // Give tasks that have just begun the time to set their timers.
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

/// Waits for a moment of real time, also while the clock is stopped.
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
    assert_eq!(began.elapsed(), Duration::ZERO, "the clock jumped to the next timer");
    clock.advance_by(Duration::from_millis(980)).await;
    assert!(!timer.is_finished());
    clock.advance_by(Duration::from_millis(30)).await;
    assert!(timer.is_finished());
    assert_eq!(began.elapsed(), Duration::from_millis(1010));
    drop(clock);
    // The clock runs by itself again.
    tokio::time::sleep(Duration::from_millis(1)).await;
}
