//! `infill pause | resume | drain`: an administrator's orders, with proof of who gives them.

use super::session::Session;
use infill_api::{BodyProof, ControlRequest, routes};
use infill_model::ControlState;
use infill_present::{
    exit::{CommandResult, Exit},
    output,
};

/// What is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `infill pause`
    Pause,
    /// `infill resume`
    Resume,
    /// `infill drain`
    Drain,
}

impl Order {
    fn control(self) -> ControlState {
        match self {
            Order::Pause => ControlState::Paused,
            Order::Resume => ControlState::Normal,
            Order::Drain => ControlState::Draining,
        }
    }

    fn done(self) -> &'static str {
        match self {
            Order::Pause => "paused: nothing starts or grows; what runs, runs on and still leaves in time",
            Order::Resume => "resumed: infill works as its configuration says",
            Order::Drain => "draining: all malleable jobs save and are parked; `infill resume` ends it",
        }
    }
}

/// Gives the order.
pub async fn run(order: Order, session: &Session) -> CommandResult {
    let client = session.client()?;
    let request = ControlRequest { proof: BodyProof::default(), control: order.control() };
    client.order("control", routes::CONTROL, &request).await?;
    output::print(order.done())?;
    Ok(Exit::Ok.code())
}
