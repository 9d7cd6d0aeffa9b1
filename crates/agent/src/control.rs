//! The control protocol: the conversation with the processes of a command that stays alive over changes. It
//! is JSON lines over a Unix stream socket. `contrib/CONTROL.md` is the contract.

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

/// The newest version of the protocol that we speak. In it, members recognise each other by a secret.
pub(crate) const PROTOCOL_VERSION: u64 = 2;

/// The oldest version of the protocol that we speak.
pub(crate) const OLDEST_PROTOCOL_VERSION: u64 = 1;

/// Longest line that is read. The conversation ends when a process sends a longer one.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Most conversations at a time: those of a node's processes, and some that are about to end.
const MAX_CONVERSATIONS: usize = 256;

/// Most messages that wait for a process that does not read. A process needs a few for each change; messages
/// that do not fit are dropped.
const MAX_UNREAD_MESSAGES: usize = 64;

/// A message of a process.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ProcessMessage {
    /// The first message of a conversation.
    Hello {
        /// The highest version that the process speaks.
        version: u64,
        /// Its number among the node's processes.
        #[serde(default)]
        local_rank: u32,
    },
    /// It is warm, and waits for a place.
    Ready,
    /// It has opened a store.
    Store {
        /// The store's port.
        port: u16,
    },
    /// It has taken its place in an epoch.
    Regrouped {
        /// The epoch, which is the number of a generation.
        epoch: u64,
        /// Seconds that this took, by parts.
        #[serde(default)]
        secs: BTreeMap<String, f64>,
    },
    /// A step takes suspiciously long.
    Stuck {
        /// The epoch of the step.
        epoch: u64,
    },
    /// A step in an epoch has failed, or joining the epoch.
    Failed {
        /// The epoch that failed.
        epoch: u64,
        /// The process's description of the failure.
        #[serde(default)]
        error: String,
    },
    /// It cannot go on without a restart.
    Hopeless {
        /// The process's reason.
        #[serde(default)]
        why: String,
    },
    /// Its checkpoint is complete on disk.
    Saved,
    /// It did not understand a message, or cannot do what that asks for.
    Error {
        /// The process's description.
        #[serde(default)]
        text: String,
    },
    /// It has closed the connection.
    #[serde(skip)]
    Closed,
    /// It is there, or leaves; or a message that we do not know.
    #[serde(other)]
    Other,
}

/// A message to a process.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum AgentMessage<'a> {
    /// The agent accepts the conversation.
    Welcome {
        /// The version that both speak.
        version: u64,
    },
    /// Open a store for this epoch.
    Host {
        /// The epoch, which is the number of a generation.
        epoch: u64,
    },
    /// Take this place.
    Regroup {
        /// The epoch to join.
        epoch: u64,
        /// The process's global rank.
        rank: u32,
        /// The number of processes of all members.
        world: u32,
        /// Address of the store at which they meet.
        store: &'a str,
        /// The secret with which they recognise each other there.
        #[serde(skip_serializing_if = "Option::is_none")]
        secret: Option<&'a Secret>,
        /// Whether a member is lost.
        urgent: bool,
        /// The hosts of all members.
        nodes: &'a [NodeName],
    },
    /// Leave: the process is not part of this epoch.
    Leave {
        /// The epoch of the others.
        epoch: u64,
        /// Whether a member is lost.
        urgent: bool,
    },
    /// Write a checkpoint.
    Save,
    /// Answer that the process is there.
    Roll,
    /// The agent did not understand a message.
    Error {
        /// What it expected.
        text: &'a str,
    },
}

/// Sends messages to one process.
#[derive(Clone, Debug)]
pub(crate) struct ProcessChannel {
    /// Number of the conversation.
    pub number: u64,
    lines: mpsc::Sender<String>,
}

impl ProcessChannel {
    /// Sends a message. It is dropped if too many wait because the process does not read.
    pub fn send_message(&self, message: &AgentMessage<'_>) {
        let line = serde_json::to_string(message).map(|text| text + "\n");
        if line.is_ok_and(|line| self.lines.try_send(line).is_err()) {
            tracing::debug!(?message, "a process of the command does not read its messages");
        }
    }
}

/// A message that a process sent.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    /// The message itself.
    pub message: ProcessMessage,
    /// The channel for the answer.
    pub channel: ProcessChannel,
}

/// Opens the socket at `path`, in place of one that an agent before us left.
pub(crate) fn open_control_socket(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => UnixListener::bind(path),
    }
}

/// Accepts connections of processes, and passes their messages on to `events`.
pub(crate) async fn accept_processes<T: From<ReceivedMessage> + Send + 'static>(
    listener: UnixListener,
    events: mpsc::Sender<T>,
) {
    let mut tasks = JoinSet::new();
    let mut number = 0;
    let permits = Arc::new(Semaphore::new(MAX_CONVERSATIONS));
    loop {
        // Acquiring fails only for a closed semaphore, and this one stays open.
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the control socket failed; from now on each change restarts the command");
                return;
            }
        };
        while tasks.try_join_next().is_some() {}
        number += 1;
        let (channel, read) = open_channel(&mut tasks, number, stream);
        let events = events.clone();
        tasks.spawn(async move {
            read_messages(read, &channel, &events).await;
            // When the worker has ended, it does not receive this any more.
            events.send(ReceivedMessage { message: ProcessMessage::Closed, channel }.into()).await.ok();
            drop(permit);
        });
    }
}

/// Starts the task that writes to a process. Returns the channel to it, and the half of the socket to read.
fn open_channel(tasks: &mut JoinSet<()>, number: u64, stream: UnixStream) -> (ProcessChannel, OwnedReadHalf) {
    let (read, write) = stream.into_split();
    let (lines, receiver) = mpsc::channel(MAX_UNREAD_MESSAGES);
    tasks.spawn(write_lines(write, receiver));
    (ProcessChannel { number, lines }, read)
}

/// Writes lines until all senders are gone, or the process has closed the connection.
async fn write_lines(mut write: OwnedWriteHalf, mut lines: mpsc::Receiver<String>) {
    while let Some(line) = lines.recv().await {
        if write.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read_messages<T: From<ReceivedMessage>>(
    read: OwnedReadHalf,
    channel: &ProcessChannel,
    events: &mpsc::Sender<T>,
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
            channel.send_message(&AgentMessage::Error { text: "expected whole lines of at most 1 MiB" });
            return;
        }
        match serde_json::from_slice::<ProcessMessage>(&line) {
            Ok(message) => {
                let channel = channel.clone();
                if events.send(ReceivedMessage { message, channel }.into()).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                let text = format!("expected a JSON object of a known form: {error}");
                channel.send_message(&AgentMessage::Error { text: &text });
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(%error, "cannot understand a message of one of the command's processes");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<ProcessMessage> {
        serde_json::from_str(text).ok()
    }

    #[test]
    fn messages_of_processes_are_read() {
        let hello = parse(r#"{"type":"hello","version":2,"pid":7,"local_rank":1,"new":{}}"#);
        assert_eq!(hello, Some(ProcessMessage::Hello { version: 2, local_rank: 1 }));
        assert_eq!(parse(r#"{"type":"ready","epoch":0,"step":0}"#), Some(ProcessMessage::Ready));
        let parts = r#"{"type":"regrouped","epoch":3,"step":9,"secs":{"form":0.5,"wrap":1}}"#;
        let secs = BTreeMap::from([("form".to_owned(), 0.5), ("wrap".to_owned(), 1.0)]);
        assert_eq!(parse(parts), Some(ProcessMessage::Regrouped { epoch: 3, secs }));
        assert_eq!(parse(r#"{"type":"here","epoch":3}"#), Some(ProcessMessage::Other));
        assert_eq!(parse(r#"{"type":"sing","song":[]}"#), Some(ProcessMessage::Other));
        for text in ["", "[]", "{}", "7", r#"{"type":7}"#, r#"{"type":"store","port":-1}"#, "\u{1}"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn messages_to_processes_have_their_json_form() {
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
        assert!(!format!("{:?}", regroup(Some(&secret))).contains("ab01"), "an unread message is logged");
        let messages = [
            AgentMessage::Welcome { version: 1 },
            AgentMessage::Host { epoch },
            regroup(None),
            regroup(Some(&secret)),
            AgentMessage::Save,
        ];
        let lines: Vec<String> = messages.iter().map(|m| serde_json::to_string(m).unwrap()).collect();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        {"type":"welcome","version":1}
        {"type":"host","epoch":4}
        {"type":"regroup","epoch":4,"rank":1,"world":2,"store":"n1:5000","urgent":false,"nodes":["n1","n2"]}
        {"type":"regroup","epoch":4,"rank":1,"world":2,"store":"n1:5000","secret":"ab01","urgent":false,"nodes":["n1","n2"]}
        {"type":"save"}
        "#);
    }
}
