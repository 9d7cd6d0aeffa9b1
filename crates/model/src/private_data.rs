//! The data that a site keeps private: Slurm's `PrivateData`.

/// The data that users may not see of each other. Kinds of data that infill never shows are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PrivateData {
    /// Other users' jobs.
    pub jobs: bool,
    /// The state of nodes.
    pub nodes: bool,
    /// Reservations.
    pub reservations: bool,
    /// Other users' usage.
    pub usage: bool,
    /// Other users.
    pub users: bool,
    /// Accounts.
    pub accounts: bool,
}

impl PrivateData {
    /// Everything is private. Used while the site's setting is unknown.
    pub const ALL: PrivateData =
        PrivateData { jobs: true, nodes: true, reservations: true, usage: true, users: true, accounts: true };

    /// Parses Slurm's list, such as `jobs,users`; `none` means nothing. Words for data that infill never
    /// shows are ignored.
    pub fn parse(list: &str) -> PrivateData {
        let mut private = PrivateData::default();
        for word in list.split(',').map(|word| word.trim().to_ascii_lowercase()) {
            match word.as_str() {
                "all" => private = PrivateData::ALL,
                "jobs" => private.jobs = true,
                "nodes" => private.nodes = true,
                "reservations" => private.reservations = true,
                "usage" => private.usage = true,
                "users" => private.users = true,
                "accounts" => private.accounts = true,
                _ => {}
            }
        }
        private
    }

    /// Whether no data is private.
    pub fn is_nothing(self) -> bool {
        self == PrivateData::default()
    }

    /// Whether the usage of other users' jobs and of accounts is private.
    pub fn hides_spending(self) -> bool {
        self.usage || self.users || self.accounts
    }

    /// Whether other users' profiles are private: they name users and show how their jobs ran.
    pub fn hides_profiles(self) -> bool {
        self.jobs || self.usage || self.users
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurms_list_is_read() {
        assert!(PrivateData::parse("none").is_nothing() && PrivateData::parse("").is_nothing());
        let some = PrivateData::parse("cloud,Jobs, users,events");
        assert_eq!(some, PrivateData { jobs: true, users: true, ..PrivateData::default() });
        let accounts = PrivateData::parse("accounts");
        assert!(accounts.hides_spending() && !accounts.hides_profiles() && !accounts.is_nothing());
        assert!(some.hides_profiles() && !PrivateData::parse("nodes,reservations").hides_profiles());
        assert_eq!(PrivateData::parse("jobs,nodes,reservations,usage,users,accounts"), PrivateData::ALL);
        assert_eq!(PrivateData::parse("all"), PrivateData::ALL);
    }
}
