//! The conversation with the processes of a command that stays alive over changes: JSON lines over a Unix
//! stream socket. `contrib/CONTROL.md` is the contract.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use infill_model::{NodeName, Secret};

/// The newest version of the conversation that we speak: members know each other by a secret.
pub(crate) const PROTOCOL_VERSION: u64 = 2;

/// The oldest one.
pub(crate) const OLDEST_PROTOCOL_VERSION: u64 = 1;

/// Longest line that is read; whoever sends a longer one is not listened to any more.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Conversations at a time: a node's processes, and some that are about to end.
const MAX_CONVERSATIONS: usize = 256;

/// Messages that wait for a process that does not read. It needs a few a change; what finds no room is not
/// said.
const MAX_UNREAD_MESSAGES: usize = 64;

/// What a process says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ProcessMessage {
    /// First of all.
    Hello {
        /// The highest version that it speaks.
        version: u64,
        /// Which of the node's processes it is.
        #[serde(default)]
        local_rank: u32,
    },
    /// It is warm, and waits for a place.
    Ready,
    /// Its store is at this port.
    Store {
        /// The port.
        port: u16,
    },
    /// It has its place in this epoch.
    Regrouped {
        /// The epoch.
        epoch: u64,
        /// What that took, by parts.
        #[serde(default)]
        secs: BTreeMap<String, f64>,
    },
    /// A step lasts suspiciously long.
    Stuck {
        /// The epoch.
        epoch: u64,
    },
    /// A step in this epoch has failed, or meeting for it.
    Failed {
        /// The epoch.
        epoch: u64,
        /// How.
        #[serde(default)]
        error: String,
    },
    /// It cannot go on without a restart.
    Hopeless {
        /// Why.
        #[serde(default)]
        why: String,
    },
    /// Its checkpoint is whole on disk.
    Saved,
    /// What it did not understand, or cannot do.
    Error {
        /// In its words.
        #[serde(default)]
        text: String,
    },
    /// It has hung up.
    #[serde(skip)]
    Closed,
    /// That it is there, or leaves; and what we do not know.
    #[serde(other)]
    Other,
}

/// What is said to a process.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum AgentMessage<'a> {
    /// The conversation is on.
    Welcome {
        /// The version that both speak.
        version: u64,
    },
    /// Open a store for this epoch.
    Host {
        /// The epoch.
        epoch: u64,
    },
    /// Take this place.
    Regroup {
        /// The epoch.
        epoch: u64,
        /// Its number.
        rank: u32,
        /// Of so many.
        world: u32,
        /// Where they meet.
        store: &'a str,
        /// By which they know each other there.
        #[serde(skip_serializing_if = "Option::is_none")]
        secret: Option<&'a Secret>,
        /// Whether a member is lost.
        urgent: bool,
        /// The job's nodes.
        nodes: &'a [NodeName],
    },
    /// This epoch is without you.
    Leave {
        /// The epoch.
        epoch: u64,
        /// Whether a member is lost.
        urgent: bool,
    },
    /// Write a checkpoint.
    Save,
    /// Say that you are there.
    Roll,
    /// What made no sense.
    Error {
        /// What was expected.
        text: &'a str,
    },
}

/// One process's ear.
#[derive(Clone, Debug)]
pub(crate) struct ProcessChannel {
    /// Number of the conversation.
    pub conversation: u64,
    lines: mpsc::Sender<String>,
}

impl ProcessChannel {
    /// Says something, unless the process does not read.
    pub fn send_message(&self, what: &AgentMessage<'_>) {
        let line = serde_json::to_string(what).map(|text| text + "\n");
        if line.is_ok_and(|line| self.lines.try_send(line).is_err()) {
            tracing::debug!(?what, "a process of the command does not listen");
        }
    }
}

/// Something that a process said.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    /// What.
    pub said: ProcessMessage,
    /// To answer it.
    pub voice: ProcessChannel,
}

/// Opens the socket at `path`, in place of one that an agent before us left.
pub(crate) fn open_control_socket(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => UnixListener::bind(path),
    }
}

/// Listens to everybody who connects.
pub(crate) async fn accept_processes<T: From<ReceivedMessage> + Send + 'static>(
    listener: UnixListener,
    tell: mpsc::Sender<T>,
) {
    let mut tasks = JoinSet::new();
    let mut number = 0;
    let room = Arc::new(Semaphore::new(MAX_CONVERSATIONS));
    loop {
        // Nobody closes it.
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the control socket failed; changes are restarts from now on");
                return;
            }
        };
        while tasks.try_join_next().is_some() {}
        number += 1;
        let (voice, pen) = open_channel(number, stream);
        let (read, write, lines) = pen;
        tasks.spawn(write_lines(write, lines));
        let tell = tell.clone();
        tasks.spawn(async move {
            read_messages(read, &voice, &tell).await;
            // A worker that has ended wants to know nothing more.
            tell.send(ReceivedMessage { said: ProcessMessage::Closed, voice }.into()).await.ok();
            drop(place);
        });
    }
}

type SocketHalves = (OwnedReadHalf, OwnedWriteHalf, mpsc::Receiver<String>);

fn open_channel(conversation: u64, stream: UnixStream) -> (ProcessChannel, SocketHalves) {
    let (read, write) = stream.into_split();
    let (lines, receiver) = mpsc::channel(MAX_UNREAD_MESSAGES);
    (ProcessChannel { conversation, lines }, (read, write, receiver))
}

/// Writes until nobody has anything to say any more, or the process hears nothing.
async fn write_lines(mut write: OwnedWriteHalf, mut lines: mpsc::Receiver<String>) {
    while let Some(line) = lines.recv().await {
        if write.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read_messages<T: From<ReceivedMessage>>(
    read: OwnedReadHalf,
    voice: &ProcessChannel,
    tell: &mpsc::Sender<T>,
) {
    let mut reader = BufReader::new(read);
    let mut line = Vec::new();
    let mut warned = false;
    loop {
        line.clear();
        let read = (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(count) if count > 0) {
            return;
        }
        if line.last() != Some(&b'\n') {
            voice.send_message(&AgentMessage::Error { text: "expected whole lines of at most 1 MiB" });
            return;
        }
        match serde_json::from_slice::<ProcessMessage>(&line) {
            Ok(said) => {
                if tell.send(ReceivedMessage { said, voice: voice.clone() }.into()).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                let text = format!("expected a JSON object of a known form: {error}");
                voice.send_message(&AgentMessage::Error { text: &text });
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(%error, "a process of the command says what makes no sense");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Option<ProcessMessage> {
        serde_json::from_str(text).ok()
    }

    #[test]
    fn what_processes_say() {
        let hello = said(r#"{"type":"hello","version":2,"pid":7,"local_rank":1,"new":{}}"#);
        assert_eq!(hello, Some(ProcessMessage::Hello { version: 2, local_rank: 1 }));
        assert_eq!(said(r#"{"type":"ready","epoch":0,"step":0}"#), Some(ProcessMessage::Ready));
        let parts = r#"{"type":"regrouped","epoch":3,"step":9,"secs":{"form":0.5,"wrap":1}}"#;
        let secs = BTreeMap::from([("form".to_owned(), 0.5), ("wrap".to_owned(), 1.0)]);
        assert_eq!(said(parts), Some(ProcessMessage::Regrouped { epoch: 3, secs }));
        assert_eq!(said(r#"{"type":"here","epoch":3}"#), Some(ProcessMessage::Other));
        assert_eq!(said(r#"{"type":"sing","song":[]}"#), Some(ProcessMessage::Other));
        for text in ["", "[]", "{}", "7", r#"{"type":7}"#, r#"{"type":"store","port":-1}"#, "\u{1}"] {
            assert_eq!(said(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_said_to_them() {
        let epoch = 4;
        let nodes = [NodeName::new("n1"), NodeName::new("n2")];
        let regroup = |secret| AgentMessage::Regroup {
            epoch,
            rank: 1,
            world: 2,
            store: "n1:5000",
            secret,
            urgent: false,
            nodes: &nodes,
        };
        let secret = Secret("ab01".to_owned());
        assert!(!format!("{:?}", regroup(Some(&secret))).contains("ab01"), "what is not heard is logged");
        let told = [
            AgentMessage::Welcome { version: 1 },
            AgentMessage::Host { epoch },
            regroup(None),
            regroup(Some(&secret)),
            AgentMessage::Save,
        ];
        let told: Vec<String> = told.iter().map(|t| serde_json::to_string(t).unwrap()).collect();
        insta::assert_snapshot!(told.join("\n"), @r#"
        {"type":"welcome","version":1}
        {"type":"host","epoch":4}
        {"type":"regroup","epoch":4,"rank":1,"world":2,"store":"n1:5000","urgent":false,"nodes":["n1","n2"]}
        {"type":"regroup","epoch":4,"rank":1,"world":2,"store":"n1:5000","secret":"ab01","urgent":false,"nodes":["n1","n2"]}
        {"type":"save"}
        "#);
    }
}
