//! Time limits of leads and wings, as their leases move.

use crate::effect::Effect;
use crate::observed_job::ObservedJob;
use infill_model::{Job, JobId};

use super::rig::{LEAD, Rig, job, n, running};

/// A job on n1 with a wing on n2, 600 s after both started, without recent effects.
fn after_ten_minutes() -> (Rig, JobId) {
    let mut r = running("1-8", &[1, 2]);
    let wing = r.m.held_nodes(r.now)[&n(2)];
    r.pass(600);
    r.effects.clear();
    (r, wing)
}

/// The limits that a snapshot of these jobs sets, minutes.
fn renewed(r: &mut Rig, lead: &Job, wings: Vec<&Job>) -> Vec<(JobId, u32)> {
    r.effects.clear();
    let observed = ObservedJob { lead: Some(lead), wings, read_at: r.now, ..ObservedJob::default() };
    r.with(|m, now, out| m.renew_limits(&observed, now, out));
    r.effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::SetLimit { job, limit_mins } => Some((*job, *limit_mins)),
            _ => None,
        })
        .collect()
}

fn with_limit(id: JobId, node: u32, limit_mins: u64) -> Job {
    let mut job = job(id, &[n(node)], 1);
    job.time_limit_mins = Some(limit_mins);
    job
}

#[test]
fn a_leads_limit_is_renewed_once_less_than_a_quarter_of_an_hour_is_left_after_its_lease() {
    // Its limit of 30 minutes ends 1200 s from now.
    for (margin, limit) in [(901, None), (900, None), (899, Some(46))] {
        let (mut r, _) = after_ten_minutes();
        r.target_for(&[(1, 1200 - margin), (2, 600)]);
        let limits = renewed(&mut r, &with_limit(LEAD, 1, 30), vec![]);
        // 901 s from its start to the end of the lease, and half an hour.
        assert_eq!(limits, limit.map(|mins| (LEAD, mins)).into_iter().collect::<Vec<_>>(), "{margin} s");
    }
}

#[test]
fn a_lead_that_is_requeued_or_does_not_run_gets_no_limit() {
    let (mut r, _) = after_ten_minutes();
    let mut lead = with_limit(LEAD, 1, 1);
    r.target(&[1, 2]);
    lead.state.flags.insert("COMPLETING".to_owned());
    assert_eq!(renewed(&mut r, &lead, vec![]), [], "Slurm cleans up after it");
    lead.state.flags.clear();
    assert_eq!(renewed(&mut r, &lead, vec![]), [(LEAD, 50)]);
    let (mut leaving, _) = after_ten_minutes();
    // Its node is to be a wing's, and the lead still runs there.
    leaving.target(&[2, 1]);
    leaving.run();
    assert!(leaving.m.phase.is_requeueing());
    assert_eq!(renewed(&mut leaving, &lead, vec![]), []);
}

#[test]
fn a_wings_limit_is_cut_at_once_and_renewed_when_half_of_it_is_used_up() {
    // Its limit of 20 minutes ends 600 s from now.
    for (lease_secs, limit) in [
        (540, Some(19)),
        (600, None),
        // The rest of the limit is half of the rest of the lease, and then less.
        (1200, None),
        (1260, Some(31)),
    ] {
        let (mut r, wing) = after_ten_minutes();
        r.target_for(&[(1, 600), (2, lease_secs)]);
        let lead = job(LEAD, &[n(1)], 0);
        let limits = renewed(&mut r, &lead, vec![&with_limit(wing, 2, 20)]);
        let expected: Vec<_> = limit.map(|mins| (wing, mins)).into_iter().collect();
        assert_eq!(limits, expected, "a lease of {lease_secs} s");
    }
}

#[test]
fn a_wing_that_runs_past_its_lease_keeps_its_limit() {
    let (mut r, wing) = after_ten_minutes();
    r.target_for(&[(1, 6000), (2, 600)]);
    r.pass(620);
    let lead = job(LEAD, &[n(1)], 0);
    assert_eq!(renewed(&mut r, &lead, vec![&with_limit(wing, 2, 20)]), []);
}
