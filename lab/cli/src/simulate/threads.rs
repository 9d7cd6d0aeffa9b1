//! Runs simulations in parallel, one per processor at a time.

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use infill_present::progress::{ProgressLine, ProgressLines};

/// Simulates each policy. Returns the outcomes in the order of `names`, each with the seconds that it took.
pub(crate) fn simulate_each<N: Copy + Display + Send, T: Send>(
    names: &[N],
    progress: &ProgressLines,
    work: impl Fn(N, &mut ProgressLine) -> T + Sync,
) -> Vec<(T, f64)> {
    let queue: Mutex<VecDeque<(usize, N)>> = Mutex::new(names.iter().copied().enumerate().collect());
    let done: Mutex<Vec<(usize, T, f64)>> = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(names.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some((place, name)) = next else { break };
                    let clock = Instant::now();
                    let mut line = progress.add_line(name);
                    let outcome = work(name, &mut line);
                    let secs = clock.elapsed().as_secs_f64();
                    tracing::debug!(policy = %name, secs, "simulated");
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((place, outcome, secs));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, ..)| *place);
    done.into_iter().map(|(_, outcome, secs)| (outcome, secs)).collect()
}
