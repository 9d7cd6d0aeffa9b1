//! `infill pause | resume | drain`: an administrator's orders, with proof of who gives them.

use super::session::CliSession;
use infill_api::{BodyProof, ControlRequest, routes};
use infill_model::ControlState;
use infill_present::{
    exit::{CommandResult, ProgramExit},
    output,
};

/// What is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlOrder {
    /// `infill pause`
    Pause,
    /// `infill resume`
    Resume,
    /// `infill drain`
    Drain,
}

impl ControlOrder {
    fn control_state(self) -> ControlState {
        match self {
            ControlOrder::Pause => ControlState::Paused,
            ControlOrder::Resume => ControlState::Normal,
            ControlOrder::Drain => ControlState::Draining,
        }
    }

    fn done_message(self) -> &'static str {
        match self {
            ControlOrder::Pause => {
                "paused: nothing starts or grows; what runs, runs on and still leaves in time"
            }
            ControlOrder::Resume => "resumed: infill works as its configuration says",
            ControlOrder::Drain => {
                "draining: all malleable jobs save and are parked; `infill resume` ends it"
            }
        }
    }
}

/// Gives the order.
pub async fn run(order: ControlOrder, session: &CliSession) -> CommandResult {
    let client = session.daemon_client()?;
    let request = ControlRequest { proof: BodyProof::default(), control: order.control_state() };
    client.send_order("control", routes::CONTROL, &request).await?;
    output::print_text(order.done_message())?;
    Ok(ProgramExit::Ok.code())
}
