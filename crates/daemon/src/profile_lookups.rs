//! Which stored profiles are in memory: those of the jobs' owners and of their programs. Where profiles are
//! shared, those of other users' programs with the same name too.

use std::collections::BTreeSet;

use infill_model::{ProfileFilter, ProfileKey};

/// Most look-ups that are remembered. A look-up is for a user, a name, or both.
const MAX_REMEMBERED: usize = 10_000;

/// The look-ups that were made already.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileLookups {
    made: BTreeSet<ProfileFilter>,
}

impl ProfileLookups {
    /// Whether all stored profiles of this key's user and name are in memory.
    pub fn covers_key(&self, key: &ProfileKey) -> bool {
        self.made.contains(&own_filter(key))
    }

    /// Look-ups that are still needed for these keys. `shared`: whether users share their profiles.
    pub fn missing_filters(
        &self,
        keys: impl Iterator<Item = ProfileKey>,
        shared: bool,
    ) -> Vec<ProfileFilter> {
        let mut wanted = BTreeSet::new();
        for key in keys.filter(|key| !key.user.is_empty()) {
            wanted.insert(ProfileFilter { user: Some(key.user.clone()), ..ProfileFilter::default() });
            if key.name.is_empty() {
                continue;
            }
            wanted.insert(own_filter(&key));
            if shared {
                wanted.insert(ProfileFilter { name: Some(key.name), ..ProfileFilter::default() });
            }
        }
        wanted.difference(&self.made).cloned().collect()
    }

    /// Remembers that this look-up was made.
    pub fn add_filter(&mut self, filter: ProfileFilter) {
        if self.made.len() >= MAX_REMEMBERED {
            // The profiles of present jobs are read again.
            self.made.clear();
        }
        self.made.insert(filter);
    }

    /// Forgets a look-up, because its profile did not fit into memory. It is made again later.
    pub(crate) fn drop_key(&mut self, key: &ProfileKey) {
        self.made.remove(&own_filter(key));
    }
}

/// Selects the profiles of this key's name and user.
fn own_filter(key: &ProfileKey) -> ProfileFilter {
    ProfileFilter { user: Some(key.user.clone()), name: Some(key.name.clone()), ..ProfileFilter::default() }
}
