//! `infill status --watch`: polls the daemon and draws the cluster over time.

mod history;
mod render;

use std::io::IsTerminal;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, restore};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::client::DaemonClient;
use super::summary::status_summary;
use history::WatchHistory;
use infill_api::{DaemonStatus, routes};
use infill_model::clock;
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    output::{self, DisplayClock},
};
use render::{ScreenContent, ViewOptions, draw_screen};

/// How often the keyboard thread checks whether the receiver still exists.
const KEY_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The most key presses that wait to be handled.
const KEY_QUEUE: usize = 16;
/// The limits of the zoom, in seconds per column.
const ZOOM_RANGE: std::ops::RangeInclusive<u32> = 1..=3600;

/// Watches until the user quits. Where stdout is not a terminal, prints summaries until the process is
/// killed.
pub async fn run(client: &DaemonClient, interval_secs: u32, column_secs: u32) -> CommandResult {
    let interval = Duration::from_secs(u64::from(interval_secs));
    if !std::io::stdout().is_terminal() {
        return print_repeatedly(client, interval).await;
    }
    let first: DaemonStatus = client.get(routes::STATUS).await?;
    let colour = output::wants_colours(&std::io::stdout());
    let watch = WatchScreen {
        history: WatchHistory::default(),
        status: first,
        lost: None,
        view: ViewOptions { column_secs, scroll: 0, colour },
    };
    let mut terminal = ratatui::try_init()?;
    let outcome = watch.run_loop(client, interval, &mut terminal).await;
    restore();
    outcome.map(|()| ProgramExit::Ok.code())
}

/// Prints a summary at each interval, for a pipe or a log.
async fn print_repeatedly(client: &DaemonClient, interval: Duration) -> CommandResult {
    loop {
        let status: DaemonStatus = client.get(routes::STATUS).await?;
        output::print_text(&format!(
            "{}\n",
            status_summary(&status, &client.joined_urls(), DisplayClock::now())?
        ))?;
        tokio::time::sleep(interval).await;
    }
}

/// The drawing of one moment as plain text.
pub fn render_once(
    status: &DaemonStatus,
    width: u16,
    column_secs: u32,
    when: DisplayClock,
) -> Result<String, CommandFailure> {
    let mut history = WatchHistory::default();
    history.record_status(status, when.now);
    let rows = status.nodes.len() + status.jobs.len() + 5;
    let area = Rect::new(0, 0, width, u16::try_from(rows).unwrap_or(u16::MAX));
    let mut buf = Buffer::empty(area);
    let view = ViewOptions { column_secs, scroll: 0, colour: false };
    draw_screen(ScreenContent { history: &history, status, lost: None, when }, view, area, &mut buf);
    let mut text = String::new();
    // The last row explains the keys, which do not work here.
    for y in 0..area.height.saturating_sub(1) {
        let line: String = (0..width).map(|x| buf[(x, y)].symbol()).collect();
        text += line.trim_end();
        text.push('\n');
    }
    Ok(text)
}

struct WatchScreen {
    history: WatchHistory,
    /// The last answer of the daemon.
    status: DaemonStatus,
    /// Why there is no newer answer. `None` after a success.
    lost: Option<String>,
    view: ViewOptions,
}

impl WatchScreen {
    async fn run_loop(
        mut self,
        client: &DaemonClient,
        interval: Duration,
        terminal: &mut DefaultTerminal,
    ) -> Result<(), CommandFailure> {
        let mut keys = read_keyboard();
        let mut stop = signal(SignalKind::terminate())?;
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.poll_status(client).await,
                event = keys.recv() => match event {
                    Some(Event::Key(key)) if self.handle_key(key) => return Ok(()),
                    Some(_) => {}
                    None => return Ok(()),
                },
                _ = stop.recv() => return Ok(()),
            }
            let content = ScreenContent {
                history: &self.history,
                status: &self.status,
                lost: self.lost.as_deref(),
                when: DisplayClock::now(),
            };
            terminal.draw(|frame| draw_screen(content, self.view, frame.area(), frame.buffer_mut()))?;
        }
    }

    /// Asks the daemon. A failure does not end the watch, since the daemon may restart; the screen shows it.
    async fn poll_status(&mut self, client: &DaemonClient) {
        match client.get::<DaemonStatus>(routes::STATUS).await {
            Ok(status) => {
                self.history.record_status(&status, clock::now());
                self.status = status;
                self.lost = None;
            }
            Err(error) => {
                self.history.record_loss(clock::now());
                self.lost = Some(error.to_string());
            }
        }
    }

    /// Handles a key. Returns whether the watch ends.
    fn handle_key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let last = self.status.nodes.len().saturating_sub(1);
        let view = &mut self.view;
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('+') => view.column_secs = (view.column_secs / 2).max(*ZOOM_RANGE.start()),
            KeyCode::Char('-') => view.column_secs = (view.column_secs * 2).min(*ZOOM_RANGE.end()),
            KeyCode::Char('j') | KeyCode::Down => view.scroll = (view.scroll + 1).min(last),
            KeyCode::Char('k') | KeyCode::Up => view.scroll = view.scroll.saturating_sub(1),
            KeyCode::PageDown => view.scroll = (view.scroll + 10).min(last),
            KeyCode::PageUp => view.scroll = view.scroll.saturating_sub(10),
            _ => {}
        }
        false
    }
}

/// Key presses and resizes. They are read on a thread of their own because crossterm blocks. The thread ends
/// when the receiver is dropped.
fn read_keyboard() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(KEY_QUEUE);
    tokio::task::spawn_blocking(move || {
        while !sender.is_closed() {
            let event = match event::poll(KEY_POLL_INTERVAL) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            // If the terminal is gone, the channel closes with this thread, which ends the watch.
            let Ok(event) = event else { return };
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn watch() -> WatchScreen {
        let view = ViewOptions { column_secs: 2, scroll: 0, colour: false };
        WatchScreen { history: WatchHistory::default(), status: samples::sample_status(), lost: None, view }
    }

    #[test]
    fn keys_quit_zoom_and_scroll() {
        let mut watch = watch();
        let mut press = |code| {
            let ends = watch.handle_key(KeyEvent::new(code, KeyModifiers::NONE));
            (ends, watch.view.column_secs, watch.view.scroll)
        };
        assert_eq!(press(KeyCode::Char('+')), (false, 1, 0));
        assert_eq!(press(KeyCode::Char('+')), (false, 1, 0));
        assert_eq!(press(KeyCode::Char('-')), (false, 2, 0));
        assert_eq!(press(KeyCode::PageDown), (false, 2, 4));
        assert_eq!(press(KeyCode::Char('k')), (false, 2, 3));
        assert!(press(KeyCode::Char('q')).0);
    }

    #[test]
    fn ctrl_c_quits_in_raw_mode_too() {
        assert!(watch().handle_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!watch().handle_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE)));
    }

    #[test]
    fn once_is_plain_text() {
        let text = render_once(&samples::sample_status(), 60, 60, samples::sample_moment()).unwrap();
        insta::assert_snapshot!(text, @r"
        infill act/normal  nodes 5: 2 held, 1 gap, 1 busy, 1 refused
        problem: node n5 drained after infill left it
           -28:00                  22:10:17                   +28:00
        n1                            A│░░░░░░░░░░░░░░░░░░░░░░░░░░░░
        n2                            A│░░░░░░░░░░░░░░░░░░░░░░░░░░░░
        n3                            ·│····
        n4                            █│
        n5                            x│
          JOBID     USER       STATE      NODES     STEP    RATE  NA
        A 101       alice      running        2     4200     812  tr
        B 102       bob        queued         0        -       -  tr
        ");
    }
}
