//! One round of the advisor: which jobs shall try which sizes.

use std::collections::{BTreeMap, BTreeSet};

use super::super::believed_scaling::UntriedPlan;
use super::super::job_input::JobInput;
use super::super::node_capacity::NodeCapacity;
use super::super::probe_tracker::{ProbeAim, USUAL_PROBE_SECS};
use super::super::probe_value::{CurrentConfiguration, ProbeCandidate, ProbeContext, best_probe};
use super::super::rate_estimator::WayToRun;
use super::super::scaling::ScalingModel as _;
use super::super::use_horizon::UseHorizon;
use super::JobAdvisor;
use infill_model::{JobId, NodeCount, NodeType, Profile, ProfileKey, RescaleCosts, UnixTime};

impl JobAdvisor {
    /// Runs one round: notes the supply of nodes, gives up probes that are late, and begins new ones.
    pub fn run_round(&mut self, inputs: &[JobInput], capacity: NodeCapacity, may_probe: bool, now: UnixTime) {
        self.supplies.record_round(&capacity);
        let jobs: BTreeSet<JobId> = inputs.iter().map(|input| input.job).collect();
        self.probes.retain(|job| jobs.contains(&job));
        for ended in self.probes.give_up_late(now) {
            self.profiles.count_probe(&ended.key, ended.secs);
        }
        self.use_secs = self.use_horizons(inputs);
        let types: Vec<NodeType> =
            capacity.usable_by_type().map(|(node_type, _)| node_type.clone()).collect();
        let estimates =
            self.layer_estimates.update_estimates(inputs, &types, &self.collectives, self.collective_changes);
        for (program, rates) in estimates {
            self.speeds.estimates.replace_program(program, rates);
        }
        self.speeds.update_curves(inputs, &self.profiles, &types, self.settings.share_profiles, now);
        self.programs.update_models(inputs, &self.profiles, &self.speeds, &types, now);
        let mut capacity = capacity;
        for input in inputs {
            let present = input.running_nodes.unwrap_or(0);
            let explanation = self.consider_probe(input, &capacity, may_probe, now);
            // Nodes that one probe needs are not free for another.
            if let Some(ProbeAim { key, nodes }) = self.aim_of(input.job) {
                let held = if key.node_type == input.key.node_type { present } else { 0 };
                capacity.take_nodes(&key.node_type, nodes.saturating_sub(held));
            }
            self.explanations.insert(input.job, explanation);
        }
    }

    /// Begins a probe of a job if one is worth its cost. Returns the reason for or against it.
    fn consider_probe(
        &mut self,
        input: &JobInput,
        capacity: &NodeCapacity,
        may_probe: bool,
        now: UnixTime,
    ) -> String {
        if let Some(progress) = self.probes.describe_probe(input.job, now) {
            return progress;
        }
        let Some(present) = input.running_nodes else {
            return self.rate_estimator().knowledge_summary(input);
        };
        if !self.is_measured(&input.key, present) {
            return if self.meters.has_reports(input.job) {
                format!("measures its rate on {}", NodeCount(present))
            } else {
                "reports no progress, so nothing can be learned".to_owned()
            };
        }
        if let Some(obstacle) = self.probe_obstacle(input, may_probe) {
            return format!("{}; no probe: {obstacle}", self.rate_estimator().knowledge_summary(input));
        }
        let Some((key, candidate)) = self.best_candidate(input, present, capacity) else {
            let knowledge = self.rate_estimator().knowledge_summary(input);
            return format!("{knowledge}; no probe: none is worth its cost");
        };
        let ProbeCandidate { nodes, gain, cost } = candidate;
        let aim = ProbeAim { key, nodes };
        let explanation = format!("tries {aim}: worth {gain:.0} samples for {cost:.0}");
        self.probes.begin_probe(input, aim, now);
        explanation
    }

    /// Why no probe of a job may begin; `None` when one may.
    fn probe_obstacle(&self, input: &JobInput, may_probe: bool) -> Option<&'static str> {
        if !may_probe {
            return Some("nothing may grow now");
        }
        // Where there are several plans, each has its own bounds.
        let profile = self.profile(&input.key).filter(|_| input.plans.is_empty())?;
        self.probes.why_forbidden(profile, &self.settings)
    }

    /// The size that is most worth trying among those that the job can reach, with the profile key that the
    /// job has at it.
    fn best_candidate(
        &self,
        input: &JobInput,
        present: u32,
        capacity: &NodeCapacity,
    ) -> Option<(ProfileKey, ProbeCandidate)> {
        let width = input.key.node_type.single_place().1;
        let types: Vec<NodeType> = capacity
            .usable_by_type()
            .map(|(node_type, _)| node_type.clone().with_place_count(width))
            .collect();
        let estimator = self.rate_estimator();
        let ways = estimator.ways_to_run(input, &types);
        let current = ways.iter().find(|way| way.key == input.key)?;
        let rate = current.believed.estimate_at(present).rate;
        let mut candidates: Vec<(ProfileKey, ProbeCandidate)> = Vec::new();
        for (i, way) in ways.iter().enumerate() {
            let mut context = self.probe_context(input, way, present, rate, capacity);
            for (_, other) in ways.iter().enumerate().filter(|(j, _)| *j != i) {
                context.rivals.extend(other.sizes.iter().map(|n| (*n, other.believed.estimate_at(*n).rate)));
            }
            let candidate = if estimator.is_untried_plan(way) {
                best_probe(&UntriedPlan(&way.believed), &context)
            } else {
                best_probe(&way.believed, &context)
            };
            candidates.extend(candidate.map(|candidate| (way.key.clone(), candidate)));
        }
        candidates.into_iter().max_by(|(_, a), (_, b)| a.net_gain().total_cmp(&b.net_gain()))
    }

    /// What a probe of one way to run could gain and cost a job that makes `rate` samples a second on its
    /// `present` nodes. The rivals are left empty.
    fn probe_context(
        &self,
        input: &JobInput,
        way: &WayToRun,
        present: u32,
        rate: f64,
        capacity: &NodeCapacity,
    ) -> ProbeContext {
        let key = &way.key;
        let use_secs = self.use_secs.get(&key.user).copied().unwrap_or(self.settings.horizon_secs);
        let mut context =
            self.supplies.probe_context(input, &key.node_type, way.sizes.clone(), present, use_secs);
        let stays = key.node_type == input.key.node_type;
        let reachable = capacity.free_nodes(&key.node_type) + if stays { present } else { 0 };
        let is_current = *key == input.key;
        let is_only_way = input.plans.is_empty() && is_current;
        if is_only_way || self.is_within_budget(key, input.plans.len()) {
            let sizes = context.sizes.iter().copied().filter(|nodes| *nodes <= reachable);
            context.probe_sizes = sizes
                .filter(|nodes| !self.is_measured(key, *nodes) && !self.probes.is_declined(key, *nodes))
                .collect();
        }
        if !is_current {
            let RescaleCosts { up_secs, start_secs, .. } = input.costs;
            let change_secs = if stays { input.swap_secs.unwrap_or(up_secs) } else { start_secs };
            context.elsewhere = Some(CurrentConfiguration { rate, change_secs });
        }
        context
    }

    /// Whether a probe of a job with this number of plans keeps both the bounds of its profile and those of
    /// all the program's profiles together. Each further plan allows one more probe.
    fn is_within_budget(&self, key: &ProfileKey, plans: usize) -> bool {
        let own = self.profiles.of_user(&key.user).filter(|p| p.key.name == key.name);
        let tried_secs: f64 = own.map(|p| p.probe_secs).sum();
        let most_secs = self.settings.max_probe_secs + plans.saturating_sub(1) as f64 * USUAL_PROBE_SECS;
        if tried_secs + USUAL_PROBE_SECS > most_secs {
            return false;
        }
        match self.profile(key) {
            Some(profile) => self.probes.why_forbidden(profile, &self.settings).is_none(),
            None => self.probes.why_forbidden(&Profile::new(key.clone()), &self.settings).is_none(),
        }
    }

    /// For each user of these jobs, the seconds for which what is learned now of a program will be of use.
    fn use_horizons(&self, inputs: &[JobInput]) -> BTreeMap<String, f64> {
        // A program has a profile for each of its plans on each type of nodes, and lives as long as any of
        // them.
        let alive: BTreeSet<(&String, &String)> =
            inputs.iter().map(|input| (&input.key.user, &input.key.name)).collect();
        let users: BTreeSet<&String> = alive.iter().map(|(user, _)| *user).collect();
        let mut use_secs = BTreeMap::new();
        for user in users {
            let mut horizon = UseHorizon::default();
            let mut ended = BTreeSet::new();
            for profile in self.profiles.of_user(user) {
                let name = &profile.key.name;
                let has_ended =
                    !profile.points.is_empty() && !alive.contains(&(user, name)) && ended.insert(name);
                horizon.add_profile(profile, !has_ended);
            }
            use_secs.insert(user.clone(), horizon.use_secs(self.settings.horizon_secs));
        }
        use_secs
    }
}
