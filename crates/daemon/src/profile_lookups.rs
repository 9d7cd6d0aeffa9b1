//! Which stored profiles are in memory: those of the jobs' owners, of their programs, and, where they are
//! shared, of programs of the same name.

use std::collections::BTreeSet;

use infill_model::{ProfileFilter, ProfileKey};

/// Most users and names of which it is remembered that their profiles were read.
const MAX_REMEMBERED: usize = 10_000;

/// The look-ups that were made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileLookups {
    made: BTreeSet<ProfileFilter>,
}

impl ProfileLookups {
    /// Whether all that is stored of this signature is in memory.
    pub fn covers_key(&self, key: &ProfileKey) -> bool {
        self.made.contains(&own_filter(key))
    }

    /// Look-ups that are still to be made for these signatures.
    pub fn missing_filters(
        &self,
        keys: impl Iterator<Item = ProfileKey>,
        shared: bool,
    ) -> Vec<ProfileFilter> {
        let wanted = keys.filter(|key| !key.user.is_empty()).flat_map(|key| {
            let user = ProfileFilter { user: Some(key.user.clone()), ..ProfileFilter::default() };
            let name = ProfileFilter { name: Some(key.name.clone()), ..ProfileFilter::default() };
            let named = !key.name.is_empty();
            [Some(user), named.then(|| own_filter(&key)), (named && shared).then_some(name)]
                .into_iter()
                .flatten()
        });
        let wanted: BTreeSet<ProfileFilter> = wanted.collect();
        wanted.difference(&self.made).cloned().collect()
    }

    /// Remembers that this look-up was made.
    pub fn add_filter(&mut self, filter: ProfileFilter) {
        if self.made.len() >= MAX_REMEMBERED {
            // Those of living jobs are read again.
            self.made.clear();
        }
        self.made.insert(filter);
    }

    /// A profile found no room in memory: it is to be looked up again.
    pub(crate) fn drop_key(&mut self, key: &ProfileKey) {
        self.made.remove(&own_filter(key));
    }
}

/// The profiles of one name and user.
fn own_filter(key: &ProfileKey) -> ProfileFilter {
    ProfileFilter { user: Some(key.user.clone()), name: Some(key.name.clone()), ..ProfileFilter::default() }
}
