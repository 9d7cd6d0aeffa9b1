//! By what the processes of a command know each other: made by the agent of a store's host, opened by the
//! others.

use infill_api::AgentRole;
use infill_model::{AgentEvent, GenerationRendezvous, JobId, Secret};

use super::super::sealing::{self, SealedSecret};
use super::super::worker_event::WorkerEvent;
use super::Worker;

/// The secrets that this agent knows. Begins anew with each command.
#[derive(Default)]
pub(super) struct PeerSecrets {
    /// What it has made itself: one for all stores of the command.
    made: Option<SealedSecret>,
    /// Whether it is being made, and the store that waits for it: its generation and port.
    making: bool,
    waiting: Option<(u64, u16)>,
    /// What another agent has made, opened.
    opened: Option<SealedSecret>,
    /// What is being opened, and the newest generation that waits for it.
    opening: Option<(Secret, u64)>,
}

impl Worker {
    fn lead_job(&self) -> JobId {
        match self.config.role {
            AgentRole::Lead => self.config.job,
            AgentRole::Wing { lead } => lead,
        }
    }

    /// Says where members meet, with what they know each other by, once that is made.
    pub(super) fn report_store(&mut self, generation: u64, port: u16) {
        if let Some(SealedSecret { sealed, .. }) = &self.alive.secrets.made {
            self.outbox.push(AgentEvent::Store { generation, port, secret: Some(sealed.clone()) });
            return;
        }
        self.alive.secrets.waiting = Some((generation, port));
        if !std::mem::replace(&mut self.alive.secrets.making, true) {
            let programs = self.config.programs.clone();
            let lead = self.lead_job();
            let news = self.news.0.clone();
            self.tasks.spawn(async move {
                news.send(WorkerEvent::Sealed(sealing::make_secret(&programs, lead).await)).await.ok();
            });
        }
    }

    /// What came of making a secret.
    pub(super) fn handle_sealed(&mut self, made: Result<SealedSecret, String>) {
        self.alive.secrets.making = false;
        let Some((generation, port)) = self.alive.secrets.waiting.take() else { return };
        match made {
            Ok(made) => {
                self.alive.secrets.made = Some(made);
                self.report_store(generation, port);
            }
            Err(why) => {
                tracing::warn!(why, "cannot make a secret for the command's processes: hosting no store");
                self.outbox.push(AgentEvent::Failed { generation });
            }
        }
    }

    /// What members are told to know each other by: perhaps nothing. `None` while that is being found out.
    pub(super) fn secret_for(
        &mut self,
        meeting: &GenerationRendezvous,
        epoch: u64,
    ) -> Option<Option<Secret>> {
        let Some(sealed) = &meeting.secret else { return Some(None) };
        let known = self.alive.secrets.made.iter().chain(&self.alive.secrets.opened);
        if let Some(SealedSecret { secret, .. }) = known.into_iter().find(|known| known.sealed == *sealed) {
            return Some(Some(secret.clone()));
        }
        let is_new = self.alive.secrets.opening.as_ref().is_none_or(|(other, _)| other != sealed);
        self.alive.secrets.opening = Some((sealed.clone(), epoch));
        if is_new {
            let programs = self.config.programs.clone();
            let lead = self.lead_job();
            let news = self.news.0.clone();
            let sealed = sealed.clone();
            self.tasks.spawn(async move {
                let opened = sealing::open_secret(&programs, lead, &sealed).await;
                news.send(WorkerEvent::Opened(sealed, opened)).await.ok();
            });
        }
        None
    }

    /// What came of opening another agent's secret.
    pub(super) fn handle_opened(&mut self, sealed: Secret, secret: Result<Secret, String>) {
        let Some((_, generation)) = self.alive.secrets.opening.take_if(|(other, _)| *other == sealed) else {
            return;
        };
        match secret {
            Ok(secret) => {
                self.alive.secrets.opened = Some(SealedSecret { secret, sealed });
                self.apply_directive(false);
            }
            Err(why) => {
                tracing::warn!(why, "cannot read what the command's processes know each other by");
                self.outbox.push(AgentEvent::Failed { generation });
            }
        }
    }
}
