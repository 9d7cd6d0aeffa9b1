//! `infill history forget`: deletes everything that names a user from the daemon's store.

use clap::Args;

use crate::session::CliSession;
use infill_api::{BodyProof, FORGET_USER_PURPOSE, ForgetUserRequest, ForgottenUser, routes};
use infill_present::{
    exit::{CommandResult, ProgramExit},
    output::{self, counted_noun},
};

/// Flags of `infill history forget`.
#[derive(Clone, Debug, Args)]
pub struct ForgetUserArgs {
    /// Login name of the user; the account may be gone
    #[arg(long, value_name = "NAME")]
    user: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `infill history forget`.
pub async fn run(args: ForgetUserArgs, session: &CliSession) -> CommandResult {
    let request = ForgetUserRequest { proof: BodyProof::default(), user: args.user.clone() };
    let client = session.daemon_client()?;
    let forgotten: ForgottenUser =
        client.send_order_for_answer(FORGET_USER_PURPOSE, routes::FORGET_USER, &request).await?;
    if args.json {
        output::print_json(&forgotten)?;
    } else {
        output::print_text(&forgotten_text(&args.user, &forgotten))?;
    }
    Ok(ProgramExit::Ok.code())
}

fn forgotten_text(user: &str, forgotten: &ForgottenUser) -> String {
    let ForgottenUser { profiles, ended_jobs, node_time, leads, kept_node_time, has_account, .. } =
        *forgotten;
    let mut text = format!(
        "{user}: deleted {}, {} and {}; removed the name from {}",
        counted_noun(profiles, "profile"),
        counted_noun(ended_jobs, "ended job"),
        counted_noun(leads, "job record"),
        counted_noun(node_time, "hour row"),
    );
    if kept_node_time > 0 {
        text += "\nThe present hour still has the name: repeat this in an hour.";
    }
    if !has_account {
        text += "\nNo such account: records that name the user by number stay for daemon.keep_days.";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_what_is_left() {
        let all = ForgottenUser {
            schema: 1,
            profiles: 1,
            ended_jobs: 20,
            node_time: 3,
            leads: 2,
            kept_node_time: 0,
            has_account: true,
        };
        let text = forgotten_text("ann", &all);
        assert_eq!(
            text,
            "ann: deleted 1 profile, 20 ended jobs and 2 job records; removed the name from 3 hour rows"
        );
        let rest = forgotten_text("ann", &ForgottenUser { kept_node_time: 1, has_account: false, ..all });
        assert!(rest.contains("repeat this in an hour") && rest.contains("daemon.keep_days"), "{rest}");
    }
}
