//! The secrets with which the processes of a command recognise each other. The agent on the store's host
//! makes one, and the other agents open it.

use infill_api::AgentRole;
use infill_model::{AgentEvent, GenerationRendezvous, JobId, Secret};

use super::super::sealing::{self, SealedSecret};
use super::super::worker_input::WorkerInput;
use super::Worker;

/// The secrets that this agent knows. They are reset for each command.
#[derive(Default)]
pub(super) struct PeerSecrets {
    /// The secret that this agent has made, for all stores of the command.
    made: Option<SealedSecret>,
    /// Whether that secret is being made.
    making: bool,
    /// The store that waits for the secret: its generation and port.
    waiting: Option<(u64, u16)>,
    /// The secret of another agent, opened.
    opened: Option<SealedSecret>,
    /// The sealed secret that is being opened, and the newest generation that waits for it.
    opening: Option<(Secret, u64)>,
}

impl Worker {
    fn lead_job(&self) -> JobId {
        match self.config.role {
            AgentRole::Lead => self.config.job,
            AgentRole::Wing { lead } => lead,
        }
    }

    /// Reports where members meet, with the secret with which they recognise each other, once that is made.
    pub(super) fn report_store(&mut self, generation: u64, port: u16) {
        if let Some(SealedSecret { sealed, .. }) = &self.live.secrets.made {
            self.outbox.push(AgentEvent::Store { generation, port, secret: Some(sealed.clone()) });
            return;
        }
        self.live.secrets.waiting = Some((generation, port));
        if !std::mem::replace(&mut self.live.secrets.making, true) {
            let programs = self.config.programs.clone();
            let lead = self.lead_job();
            let events = self.events.0.clone();
            self.tasks.spawn(async move {
                let made = sealing::make_secret(&programs, lead).await;
                events.send(WorkerInput::Sealed(made)).await.ok();
            });
        }
    }

    /// Takes in the result of making a secret.
    pub(super) fn handle_sealed(&mut self, made: Result<SealedSecret, String>) {
        self.live.secrets.making = false;
        let Some((generation, port)) = self.live.secrets.waiting.take() else { return };
        match made {
            Ok(made) => {
                self.live.secrets.made = Some(made);
                self.report_store(generation, port);
            }
            Err(why) => {
                tracing::warn!(why, "cannot make a secret for the command's processes: hosting no store");
                self.outbox.push(AgentEvent::Failed { generation });
            }
        }
    }

    /// The secret with which members recognise each other: `Some(None)` if they have none, `None` while it is
    /// being opened.
    pub(super) fn secret_for(
        &mut self,
        meeting: &GenerationRendezvous,
        epoch: u64,
    ) -> Option<Option<Secret>> {
        let Some(sealed) = &meeting.secret else { return Some(None) };
        let mut known_secrets = self.live.secrets.made.iter().chain(&self.live.secrets.opened);
        if let Some(found) = known_secrets.find(|known| known.sealed == *sealed) {
            return Some(Some(found.secret.clone()));
        }
        let is_new = self.live.secrets.opening.as_ref().is_none_or(|(other, _)| other != sealed);
        self.live.secrets.opening = Some((sealed.clone(), epoch));
        if is_new {
            let programs = self.config.programs.clone();
            let lead = self.lead_job();
            let events = self.events.0.clone();
            let sealed = sealed.clone();
            self.tasks.spawn(async move {
                let opened = sealing::open_secret(&programs, lead, &sealed).await;
                events.send(WorkerInput::Opened(sealed, opened)).await.ok();
            });
        }
        None
    }

    /// Takes in the result of opening another agent's secret.
    pub(super) fn handle_opened(&mut self, sealed: Secret, secret: Result<Secret, String>) {
        let Some((_, generation)) = self.live.secrets.opening.take_if(|(other, _)| *other == sealed) else {
            return;
        };
        match secret {
            Ok(secret) => {
                self.live.secrets.opened = Some(SealedSecret { secret, sealed });
                self.apply_directive(false);
            }
            Err(why) => {
                tracing::warn!(
                    why,
                    "cannot open the secret with which the command's processes recognise each other"
                );
                self.outbox.push(AgentEvent::Failed { generation });
            }
        }
    }
}
