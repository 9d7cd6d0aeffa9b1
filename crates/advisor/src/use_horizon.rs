//! For how long what a probe would teach of a program will be of use.
//!
//! To know a size sooner is worth something until the program ends, or until the main queue's coming and
//! going brings a job of it to that size anyway. Both are known from the user's programs so far.

use infill_model::Profile;

/// What the programs of one user have shown, all jobs of a program together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct UseHorizon {
    /// Seconds for which they were measured.
    secs: f64,
    /// Programs of which no job is left, each once.
    ended: u32,
    /// Sizes, beyond the first of each program, at which they ran without being tried.
    sizes: u32,
}

impl UseHorizon {
    /// Takes a profile of a program in, if anything was measured of how fast that runs. `goes_on`: jobs of
    /// the program are left, or its end was told with another profile of it.
    pub fn add_profile(&mut self, profile: &Profile, goes_on: bool) {
        if profile.points.is_empty() {
            return;
        }
        self.secs += profile.points.iter().map(|p| p.secs).sum::<f64>();
        self.ended += u32::from(!goes_on);
        let sizes = u32::try_from(profile.points.len()).unwrap_or(u32::MAX);
        self.sizes = self.sizes.saturating_add(sizes.saturating_sub(profile.probes.saturating_add(1)));
    }

    /// Seconds for which knowing a size now will be of use, `most` at most: the shorter of a program's mean
    /// life and the mean time until another size comes by itself. Both are means of a memoryless time, of
    /// which what still lasts has not shown the end: all seconds over all ends.
    pub(crate) fn use_secs(&self, most: f64) -> f64 {
        let life = if self.ended > 0 { self.secs / f64::from(self.ended) } else { most };
        // Of one size it is taken to come in `most` seconds, so that little says little.
        let until_known = (most + self.secs) / (1.0 + f64::from(self.sizes));
        life.min(until_known).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{BatchMode, ExecPlan, NodeType, ProfileKey, SizePoint, UnixTime};

    const DAY: f64 = 86_400.0;

    fn profile(secs: &[f64], probes: u32) -> Profile {
        let key = ProfileKey {
            user: "ada".into(),
            name: "train.py".into(),
            node_type: NodeType::new("v100"),
            exec_plan: ExecPlan::default(),
            batch: BatchMode::Auto,
        };
        let point = |(nodes, secs): (u32, &f64)| SizePoint {
            nodes,
            rate: 10.0,
            error: 0.01,
            secs: *secs,
            step_samples: None,
            hosts: None,
            spread: infill_model::Spread::Near,
            over_hosts: infill_model::Spread::Near,
            at: UnixTime(0),
        };
        Profile { points: (1..).zip(secs).map(point).collect(), probes, ..Profile::new(key) }
    }

    fn prospect(programs: &[(&[f64], u32, bool)]) -> UseHorizon {
        let mut prospect = UseHorizon::default();
        programs
            .iter()
            .for_each(|(secs, probes, has_jobs)| prospect.add_profile(&profile(secs, *probes), *has_jobs));
        prospect
    }

    #[test]
    fn of_a_user_of_whom_nothing_is_known_it_is_what_is_configured() {
        assert_eq!(UseHorizon::default().use_secs(DAY), DAY);
        // One that runs at its first size, or at sizes that were tried, says nothing yet.
        assert_eq!(prospect(&[(&[600.0], 0, true)]).use_secs(DAY), DAY);
        assert_eq!(prospect(&[(&[600.0, 15.0, 15.0], 2, true)]).use_secs(DAY), DAY);
    }

    #[test]
    fn short_programs_are_not_worth_what_long_ones_are() {
        // Two have ended; the third has not, so that they live longer than those two did.
        let short: &[f64] = &[300.0];
        assert_eq!(prospect(&[(short, 0, false), (short, 0, false), (short, 0, true)]).use_secs(DAY), 450.0);
        let long: &[f64] = &[3600.0, 3600.0, 3600.0];
        assert!(prospect(&[(long, 2, false), (long, 2, true)]).use_secs(DAY) == 21_600.0);
    }

    #[test]
    fn where_sizes_come_by_themselves_they_need_not_be_tried() {
        let secs = [100.0; 10];
        let jumpy = prospect(&[(&secs, 1, true), (&secs, 0, true)]);
        assert_eq!(jumpy.use_secs(DAY), (DAY + 2000.0) / 18.0);
    }
}
