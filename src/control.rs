//! `infill pause | resume | drain`: an administrator's orders. Each carries a proof of who gives it.

use super::session::CliSession;
use infill_api::{BodyProof, ControlRequest, routes};
use infill_model::ControlState;
use infill_present::{
    exit::{CommandResult, ProgramExit},
    output,
};

/// An order of an administrator.
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
                "paused: no job starts or grows; running jobs continue and still leave their nodes in time"
            }
            ControlOrder::Resume => "resumed: infill works as configured",
            ControlOrder::Drain => {
                "draining: all malleable jobs save and are parked; `infill resume` ends the drain"
            }
        }
    }
}

/// Sends the order to the daemon.
pub async fn run(order: ControlOrder, session: &CliSession) -> CommandResult {
    let client = session.daemon_client()?;
    let request = ControlRequest { proof: BodyProof::default(), control: order.control_state() };
    client.send_order("control", routes::CONTROL, &request).await?;
    output::print_text(order.done_message())?;
    Ok(ProgramExit::Ok.code())
}
