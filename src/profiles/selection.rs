//! Selects the profiles that a command works on.

use clap::Args;

use crate::client::DaemonClient;
use infill_api::{MAX_PROFILES, ProfileView, ProfilesView, routes};
use infill_model::{ExecPlan, NodeType, ProfileFilter};
use infill_present::{exit::CommandFailure, filter};

/// The flags that select profiles. A profile must satisfy all that are given.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
pub struct SelectionArgs {
    /// Select only my profiles
    #[arg(long, conflicts_with = "user")]
    me: bool,
    /// Select only profiles of these users
    #[arg(short = 'u', long, value_name = "USER,…", value_delimiter = ',')]
    user: Vec<String>,
    /// Select only profiles of this node type
    #[arg(long, value_name = "TYPE")]
    node_type: Option<String>,
    /// Select only profiles of this execution plan
    #[arg(long, value_name = "PLAN")]
    exec_plan: Option<String>,
}

impl SelectionArgs {
    /// A filter for each user, or one for all users.
    ///
    /// # Errors
    /// When the name of the caller, for `--me`, cannot be found.
    pub fn profile_filters(self, name: Option<String>) -> Result<Vec<ProfileFilter>, CommandFailure> {
        let mut users = if self.me { vec![filter::current_user_name()?] } else { self.user };
        users.sort_unstable();
        users.dedup();
        let filter = ProfileFilter {
            user: None,
            name,
            node_type: self.node_type.map(NodeType::new),
            exec_plan: self.exec_plan.map(ExecPlan),
        };
        if users.is_empty() {
            return Ok(vec![filter]);
        }
        Ok(users.into_iter().map(|user| ProfileFilter { user: Some(user), ..filter.clone() }).collect())
    }
}

/// The profiles that match one of the filters, the last changed first. Warns if the daemon has more.
///
/// # Errors
/// When the daemon does not answer.
pub async fn fetch_profiles(
    client: &DaemonClient,
    filters: &[ProfileFilter],
) -> Result<Vec<ProfileView>, CommandFailure> {
    let mut all = Vec::new();
    for filter in filters {
        let answer: ProfilesView = client.get_with(routes::PROFILES, filter).await?;
        if answer.profiles.len() >= MAX_PROFILES as usize {
            eprintln!(
                "infill: there are more profiles; shown are the {MAX_PROFILES} that changed last (select by name or user)"
            );
        }
        all.extend(answer.profiles);
    }
    all.sort_by_key(|p| std::cmp::Reverse(p.profile.updated_at));
    Ok(all)
}
