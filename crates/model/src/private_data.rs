//! What a site keeps private: Slurm's `PrivateData`.

/// What users may not see of each other. What infill shows of no kind of data is left out.
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
    /// Everything: for as long as nobody knows what the site wants.
    pub const ALL: PrivateData =
        PrivateData { jobs: true, nodes: true, reservations: true, usage: true, users: true, accounts: true };

    /// Reads Slurm's list, such as `jobs,users`; `none` is nothing. Words for what infill does not show are
    /// passed over.
    pub fn parse(list: &str) -> PrivateData {
        let mut private = PrivateData::default();
        for word in list.split(',').map(|w| w.trim().to_ascii_lowercase()) {
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

    /// Whether users may see everything.
    pub fn is_nothing(self) -> bool {
        self == PrivateData::default()
    }

    /// Whether it is private what other users' jobs, and those of accounts, have had.
    pub fn hides_spending(self) -> bool {
        self.usage || self.users || self.accounts
    }

    /// Whether other users' profiles are private: they name users, tell of their jobs, and how these ran.
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
