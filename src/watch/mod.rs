//! `infill status --watch`: polls the daemon and draws what it says.

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

use super::client::Client;
use super::summary::summary;
use history::History;
use infill_api::{Status, routes};
use infill_model::clock;
use infill_present::{
    exit::{CommandResult, Exit, Failure},
    output::{self, When},
};
use render::{Scene, View, draw};

/// How often the keyboard thread looks whether anybody still listens.
const KEY_PATIENCE: Duration = Duration::from_millis(200);
/// Key presses that may wait to be handled.
const KEY_QUEUE: usize = 16;
/// Zoom limits, seconds a column.
const ZOOM: std::ops::RangeInclusive<u32> = 1..=3600;

/// Watches until the user quits, or, where stdout is no terminal, until it is killed.
pub async fn run(client: &Client, interval_secs: u32, column_secs: u32) -> CommandResult {
    let interval = Duration::from_secs(u64::from(interval_secs));
    if !std::io::stdout().is_terminal() {
        return plainly(client, interval).await;
    }
    let first: Status = client.get(routes::STATUS).await?;
    let colour = output::colours(&std::io::stdout());
    let watch = Watch {
        history: History::default(),
        status: first,
        lost: None,
        view: View { column_secs, scroll: 0, colour },
    };
    let mut terminal = ratatui::try_init()?;
    let outcome = watch.run(client, interval, &mut terminal).await;
    restore();
    outcome.map(|()| Exit::Ok.code())
}

/// The summary again and again, for a pipe or a log.
async fn plainly(client: &Client, interval: Duration) -> CommandResult {
    loop {
        let status: Status = client.get(routes::STATUS).await?;
        output::print(&format!("{}\n", summary(&status, &client.url(), When::now())?))?;
        tokio::time::sleep(interval).await;
    }
}

/// The picture once, as plain text.
pub fn once(status: &Status, width: u16, column_secs: u32, when: When) -> Result<String, Failure> {
    let mut history = History::default();
    history.record(status, when.now);
    let rows = status.nodes.len() + status.jobs.len() + 5;
    let area = Rect::new(0, 0, width, u16::try_from(rows).unwrap_or(u16::MAX));
    let mut buf = Buffer::empty(area);
    let view = View { column_secs, scroll: 0, colour: false };
    draw(Scene { history: &history, status, lost: None, when }, view, area, &mut buf);
    let line = |y| (0..width).map(|x| buf[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    // The last row explains keys, of which there are none here.
    Ok((0..area.height.saturating_sub(1)).map(|y| line(y) + "\n").collect())
}

struct Watch {
    history: History,
    status: Status,
    lost: Option<String>,
    view: View,
}

impl Watch {
    async fn run(
        mut self,
        client: &Client,
        interval: Duration,
        terminal: &mut DefaultTerminal,
    ) -> Result<(), Failure> {
        let mut keys = keyboard();
        let mut stop = signal(SignalKind::terminate())?;
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.look(client).await,
                event = keys.recv() => match event {
                    Some(Event::Key(key)) if self.press(key) => return Ok(()),
                    Some(_) => {}
                    None => return Ok(()),
                },
                _ = stop.recv() => return Ok(()),
            }
            let scene = Scene {
                history: &self.history,
                status: &self.status,
                lost: self.lost.as_deref(),
                when: When::now(),
            };
            terminal.draw(|frame| draw(scene, self.view, frame.area(), frame.buffer_mut()))?;
        }
    }

    /// A daemon that restarts must not end the picture: it says so and goes on.
    async fn look(&mut self, client: &Client) {
        match client.get::<Status>(routes::STATUS).await {
            Ok(status) => {
                self.history.record(&status, clock::now());
                (self.status, self.lost) = (status, None);
            }
            Err(error) => {
                self.history.lost(clock::now());
                self.lost = Some(error.to_string());
            }
        }
    }

    /// Handles a key; `true` ends the picture.
    fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let last = self.status.nodes.len().saturating_sub(1);
        let view = &mut self.view;
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('+') => view.column_secs = (view.column_secs / 2).max(*ZOOM.start()),
            KeyCode::Char('-') => view.column_secs = (view.column_secs * 2).min(*ZOOM.end()),
            KeyCode::Char('j') | KeyCode::Down => view.scroll = (view.scroll + 1).min(last),
            KeyCode::Char('k') | KeyCode::Up => view.scroll = view.scroll.saturating_sub(1),
            KeyCode::PageDown => view.scroll = (view.scroll + 10).min(last),
            KeyCode::PageUp => view.scroll = view.scroll.saturating_sub(10),
            _ => {}
        }
        false
    }
}

/// Keys and resizes, read on a thread of their own because crossterm blocks. It ends when nobody listens any
/// more.
fn keyboard() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(KEY_QUEUE);
    tokio::task::spawn_blocking(move || {
        while !sender.is_closed() {
            let event = match event::poll(KEY_PATIENCE) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            // A terminal that is gone ends the picture: the channel closes with this thread.
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

    fn watch() -> Watch {
        let view = View { column_secs: 2, scroll: 0, colour: false };
        Watch { history: History::default(), status: samples::status(), lost: None, view }
    }

    #[test]
    fn keys_quit_zoom_and_scroll() {
        let mut watch = watch();
        let mut press = |code| {
            let ends = watch.press(KeyEvent::new(code, KeyModifiers::NONE));
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
        assert!(watch().press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!watch().press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE)));
    }

    #[test]
    fn once_is_plain_text() {
        let text = once(&samples::status(), 60, 60, samples::when()).unwrap();
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
