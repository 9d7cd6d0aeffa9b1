//! The decisions that a human makes, with their defaults and their pages.

use clap::ValueEnum;
use serde::Serialize;

use infill_model::NodeName;
use infill_model::hostlist::{compress_nodes, expand_hostlist};

/// The account of the daemon's own user.
const DAEMON_ACCOUNT: &str = "infill";

/// Which jobs preempt malleable ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PreemptChoice {
    /// By QOS: each QOS names those that it preempts.
    Qos,
    /// By partition: the one with the higher PriorityTier preempts.
    Partition,
}

impl PreemptChoice {
    /// Its word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            PreemptChoice::Qos => "qos",
            PreemptChoice::Partition => "partition",
        }
    }
}

/// What malleable jobs get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ShareChoice {
    /// Whole idle nodes.
    Exclusive,
    /// Single GPUs, beside other people's jobs.
    Gpus,
}

impl ShareChoice {
    /// Its word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            ShareChoice::Exclusive => "exclusive",
            ShareChoice::Gpus => "gpus",
        }
    }
}

/// The decisions of `infill doctor --plan`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ChoiceArgs {
    /// How main jobs preempt malleable ones [default: as Slurm does it here, else qos]
    /// (docs/deploy/preemption.md)
    #[arg(long, requires = "plan", value_name = "HOW")]
    preempt: Option<PreemptChoice>,
    /// What malleable jobs get: whole nodes, or single GPUs (docs/deploy/sharing.md)
    #[arg(long, default_value = "exclusive", value_name = "WHAT")]
    pub share: ShareChoice,
    /// A separate account for malleable jobs (docs/deploy/own-account.md)
    #[arg(long, default_value = "none", value_name = "NAME", value_parser = parse_account)]
    own_account: String,
    /// The first nodes that infill uses [default: the first two that work] (docs/deploy/pilot.md)
    #[arg(long, requires = "plan", value_name = "NODES", value_parser = parse_nodes)]
    canary: Option<String>,
}

impl ChoiceArgs {
    /// The separate account, if there shall be one.
    pub fn own_account(&self) -> Option<&str> {
        Some(self.own_account.as_str()).filter(|name| *name != "none")
    }

    /// The decisions. What is not decided follows `by_partition`, whether partitions decide about preemption
    /// here, and `canary`, the usual first nodes.
    pub fn settle(&self, by_partition: bool, canary: String) -> DeployChoices {
        let usual = if by_partition { PreemptChoice::Partition } else { PreemptChoice::Qos };
        DeployChoices {
            preempt: self.preempt.unwrap_or(usual),
            share: self.share,
            own_account: self.own_account().map(str::to_owned),
            canary: self.canary.clone().unwrap_or(canary),
        }
    }
}

/// The decisions, all made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeployChoices {
    /// How main jobs preempt.
    pub preempt: PreemptChoice,
    /// What malleable jobs get.
    pub share: ShareChoice,
    /// Their own account.
    pub own_account: Option<String>,
    /// The first nodes, as a host list.
    pub canary: String,
}

fn parse_account(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.-".contains(c);
    if text.is_empty() || !text.chars().all(is_good) {
        return Err("expected the name of an account: lower-case letters, digits, _ . -".to_owned());
    }
    if text == DAEMON_ACCOUNT {
        return Err("the account infill belongs to the daemon: choose another name".to_owned());
    }
    Ok(text.to_owned())
}

fn parse_nodes(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "_-.,[]".contains(c);
    if !text.chars().all(is_good) {
        return Err("expected nodes, such as n[1-2]".to_owned());
    }
    let nodes: Vec<NodeName> = expand_hostlist(text).map_err(|e| e.to_string())?;
    if nodes.is_empty() {
        return Err("expected nodes, such as n[1-2]".to_owned());
    }
    Ok(compress_nodes(&nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_account_is_no_choice() {
        assert_eq!(parse_account("harvest").as_deref(), Ok("harvest"));
        assert!(parse_account("infill").is_err_and(|why| why.contains("belongs to the daemon")));
    }
}
