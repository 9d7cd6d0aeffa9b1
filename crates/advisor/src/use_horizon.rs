//! How long the result of a probe of a program will be of use.
//!
//! An early measurement of a size is worth something until the program ends, or until changes in the main
//! queue bring a job of it to that size anyway. The user's earlier programs show how long both take.

use infill_model::Profile;

/// What a user's programs have shown, all jobs of a program together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct UseHorizon {
    /// Measured seconds of all programs.
    secs: f64,
    /// Programs without jobs that still run or wait, each counted once.
    ended: u32,
    /// Sizes, beyond the first of each program, at which they ran without a probe.
    sizes: u32,
}

impl UseHorizon {
    /// Takes in a profile of a program, if it has measurements. `goes_on`: the program still has jobs, or its
    /// end was counted with another of its profiles.
    pub fn add_profile(&mut self, profile: &Profile, goes_on: bool) {
        if profile.points.is_empty() {
            return;
        }
        self.secs += profile.points.iter().map(|p| p.secs).sum::<f64>();
        self.ended += u32::from(!goes_on);
        let sizes = u32::try_from(profile.points.len()).unwrap_or(u32::MAX);
        self.sizes = self.sizes.saturating_add(sizes.saturating_sub(profile.probes.saturating_add(1)));
    }

    /// Seconds for which a measurement of a size now will be of use, at most `most`. It is the shorter of a
    /// program's mean life and the mean time until another size comes by itself. Both are means of a
    /// memoryless time, some of whose observations have not ended yet: all seconds over all ends.
    pub(crate) fn use_secs(&self, most: f64) -> f64 {
        let life = if self.ended > 0 { self.secs / f64::from(self.ended) } else { most };
        // One size is assumed to come within `most` seconds, so that few observations say little.
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
        let points = (1..).zip(secs).map(|(nodes, secs)| SizePoint {
            nodes,
            rate: 10.0,
            error: 0.01,
            secs: *secs,
            step_samples: None,
            hosts: None,
            spread: infill_model::Spread::Near,
            over_hosts: infill_model::Spread::Near,
            at: UnixTime(0),
        });
        Profile { points: points.collect(), probes, ..Profile::new(key) }
    }

    fn horizon(programs: &[(&[f64], u32, bool)]) -> UseHorizon {
        let mut horizon = UseHorizon::default();
        for (secs, probes, has_jobs) in programs {
            horizon.add_profile(&profile(secs, *probes), *has_jobs);
        }
        horizon
    }

    #[test]
    fn without_observations_it_is_the_configured_horizon() {
        assert_eq!(UseHorizon::default().use_secs(DAY), DAY);
        // A program that runs at its first size, or at probed sizes, says nothing yet.
        assert_eq!(horizon(&[(&[600.0], 0, true)]).use_secs(DAY), DAY);
        assert_eq!(horizon(&[(&[600.0, 15.0, 15.0], 2, true)]).use_secs(DAY), DAY);
    }

    #[test]
    fn short_programs_have_a_shorter_horizon_than_long_ones() {
        // Two have ended. The third has not, so that they live longer on average than those two did.
        let short: &[f64] = &[300.0];
        assert_eq!(horizon(&[(short, 0, false), (short, 0, false), (short, 0, true)]).use_secs(DAY), 450.0);
        let long: &[f64] = &[3600.0, 3600.0, 3600.0];
        assert!(horizon(&[(long, 2, false), (long, 2, true)]).use_secs(DAY) == 21_600.0);
    }

    #[test]
    fn where_sizes_come_by_themselves_the_horizon_is_short() {
        let secs = [100.0; 10];
        let jumpy = horizon(&[(&secs, 1, true), (&secs, 0, true)]);
        assert_eq!(jumpy.use_secs(DAY), (DAY + 2000.0) / 18.0);
    }
}
