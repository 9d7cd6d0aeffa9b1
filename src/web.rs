//! `infill web`: prints a link to the page, or ends browsers' sessions.

use anyhow::Context as _;
use clap::Args;
use reqwest::Url;

use super::client::DaemonClient;
use super::session::CliSession;
use infill_api::{
    BodyProof, LINK_PURPOSE, LinkRequest, REVOKE_PURPOSE, RevokeRequest, RevokedSessions, WebLink,
    addresses::this_host, routes,
};
use infill_present::{
    exit::{CommandResult, ProgramExit},
    output,
};

/// Flags of `infill web`.
#[derive(Args, Clone, Debug)]
pub struct WebArgs {
    /// End all your browsers' sessions, or those of USER (for root, `daemon.admins` and users with an
    /// AdminLevel in Slurm)
    #[arg(long, value_name = "USER", num_args = 0..=1)]
    revoke: Option<Option<String>>,
}

/// Prints a link, and how to open it on another machine; or ends sessions.
pub async fn run(args: WebArgs, session: &CliSession) -> CommandResult {
    let client = session.daemon_client()?;
    if let Some(user) = args.revoke {
        return revoke_sessions(&client, user).await;
    }
    let request = LinkRequest { proof: BodyProof::default() };
    let link: WebLink = client.send_order_for_answer(LINK_PURPOSE, routes::WEB_LINKS, &request).await?;
    // Only the daemon that answered, the leader, knows the link.
    let url = Url::parse(client.answering_url()).context("the daemon's URL is not valid")?;
    output::print_text(&link_text(&url, &link, this_host().as_deref().unwrap_or("LOGIN-NODE")))?;
    Ok(ProgramExit::Ok.code())
}

async fn revoke_sessions(client: &DaemonClient, user: Option<String>) -> CommandResult {
    let request = RevokeRequest { proof: BodyProof::default(), user };
    let revoked: RevokedSessions =
        client.send_order_for_answer(REVOKE_PURPOSE, routes::WEB_REVOKE, &request).await?;
    let what = match revoked.sessions {
        0 => "no session was open; links that were not opened yet are no longer valid".to_owned(),
        1 => "one session has ended".to_owned(),
        count => format!("{count} sessions have ended"),
    };
    output::print_text(&what)?;
    Ok(ProgramExit::Ok.code())
}

/// The link, and how to open it on another machine.
fn link_text(url: &Url, link: &WebLink, this_host: &str) -> String {
    let host = url.host_str().unwrap_or("localhost");
    let port = url.port_or_known_default().unwrap_or(80);
    let mut local_url = url.clone();
    let is_local = local_url.set_host(Some("localhost")).is_ok() && local_url.set_port(Some(port)).is_ok();
    let tunnel_url = if is_local { &local_url } else { url };
    // If the daemon runs on this machine, the tunnel ends here.
    let tunnel_end = if matches!(host, "localhost" | "127.0.0.1" | "[::1]") { "localhost" } else { host };
    format!(
        "{}\n\nThe link can be opened once, within {} s. The page then shows what you may read, for eight hours. \
         From a machine that cannot reach {host}:\n\n    \
         ssh -L {port}:{tunnel_end}:{port} {this_host}\n\nand there:\n\n    {}",
        page_link(url, link),
        link.lasts_secs,
        page_link(tunnel_url, link)
    )
}

/// The URL of the page with the ticket in its fragment, which browsers do not send and logs do not contain.
fn page_link(url: &Url, link: &WebLink) -> String {
    format!("{}#ticket={}", url.as_str(), link.ticket.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::Secret;

    #[test]
    fn a_link_and_how_to_reach_it_from_elsewhere() {
        let link = WebLink { ticket: Secret("abc".to_owned()), lasts_secs: 60 };
        let text = link_text(&Url::parse("http://ctl:6810").unwrap(), &link, "login1");
        insta::assert_snapshot!(text, @r"
        http://ctl:6810/#ticket=abc

        The link can be opened once, within 60 s. The page then shows what you may read, for eight hours. From a machine that cannot reach ctl:

            ssh -L 6810:ctl:6810 login1

        and there:

            http://localhost:6810/#ticket=abc
        ");
        let own = link_text(&Url::parse("http://127.0.0.1:6810").unwrap(), &link, "login1");
        assert!(own.contains("ssh -L 6810:localhost:6810 login1"), "{own}");
    }
}
