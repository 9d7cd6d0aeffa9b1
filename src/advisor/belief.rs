//! What is believed of a job's scaling: what was measured of its program, what its user declares, and what is
//! known of programs like it.

use std::collections::BTreeSet;

use super::profiles::Profiles;
use super::scaling::{Fitted, sizes_of_interest};
use super::subject::Subject;
use crate::model::malleable::RateCurve;
use crate::model::{BatchMode, Curve, ExecPlan, NodeType, Profile, ProfileKey, SizePoint, Sizes, UnixTime};

/// Relative error of a curve that a user declares, where nothing was measured.
const DECLARED_ERROR: f64 = 0.03;

/// Relative error of what is known of the same program on another node type.
const OTHER_TYPE_ERROR: f64 = 0.2;

/// Relative error of what is known of another user's program of the same name.
const OTHER_USER_ERROR: f64 = 0.3;

/// The profiles, and which of them may speak for a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Belief<'a> {
    /// All profiles.
    pub(super) profiles: &'a Profiles,
    /// Whether what is known of other users' programs of the same name may help.
    pub(super) share_profiles: bool,
}

impl Belief<'_> {
    /// What is believed of a job's scaling on a node type; `None` when nothing is known.
    pub(super) fn fitted(&self, subject: &Subject, node_type: &NodeType) -> Option<Fitted> {
        let key = ProfileKey { node_type: node_type.clone(), ..subject.key.clone() };
        let mode = self.profiles.batch_mode(&key);
        Fitted::new(&self.evidence(subject, &key), mode, subject.sizes.max())
    }

    /// The job's rates for the planner, one curve a node type of which something is known; the first also
    /// serves for all others. Empty when nothing is known at all.
    pub(super) fn rates(&self, subject: &Subject) -> Vec<RateCurve> {
        let own = self.profiles.of_user(&subject.key.user).filter(|p| p.key.name == subject.key.name);
        let mut types: BTreeSet<&NodeType> = own.map(|p| &p.key.node_type).collect();
        types.remove(&subject.key.node_type);
        let mut rates = Vec::new();
        for (i, node_type) in std::iter::once(&subject.key.node_type).chain(types).enumerate() {
            let Some(curve) = self.fitted(subject, node_type).and_then(|f| curve(&f, &subject.sizes)) else {
                continue;
            };
            // One plan a program so far. Where a program has several, each has a profile of its own, and this
            // loop goes over the pairs of node type and plan.
            let on = |node_type: Option<NodeType>| {
                let (exec_plan, curve) = (ExecPlan::default(), curve.clone());
                RateCurve { exec_plan, node_type, curve, sizes: None }
            };
            rates.push(on(Some(node_type.clone())));
            rates.extend((i == 0).then(|| on(None)));
        }
        rates
    }

    /// In how far a job is known, for people.
    pub(super) fn summary(&self, subject: &Subject) -> String {
        let measured = self.profiles.points(&subject.key).len();
        match (measured, &subject.declared, self.alike(&subject.key)) {
            (0, Some(_), _) => "counts on the declared curve".to_owned(),
            (0, None, Some(_)) => "counts on what is known of similar programs".to_owned(),
            (0, None, None) => "knows nothing yet".to_owned(),
            (1, ..) => "knows 1 size".to_owned(),
            (n, ..) => format!("knows {n} sizes"),
        }
    }

    /// Everything that is known of a job's scaling under a key: measured, declared, and of programs alike.
    fn evidence(&self, subject: &Subject, key: &ProfileKey) -> Vec<SizePoint> {
        let mut points = self.profiles.points(key).to_vec();
        let declared = subject.declared.as_ref().map(|curve| declared_points(curve, &subject.sizes));
        for more in declared.into_iter().chain(self.alike(key)) {
            let (factor, misfit) = scale(&points, &more, subject.sizes.max());
            let missing: Vec<SizePoint> = more
                .into_iter()
                .filter(|m| points.iter().all(|p| p.nodes != m.nodes))
                .map(|m| SizePoint { rate: m.rate * factor, error: m.error.hypot(misfit), ..m })
                .collect();
            points.extend(missing);
        }
        points
    }

    /// Points of a profile that is alike: on another node type first, then another user's, each with what it
    /// is doubted by.
    fn alike(&self, key: &ProfileKey) -> Option<Vec<SizePoint>> {
        let alike = |p: &&Profile| {
            p.key.name == key.name
                && p.key.exec_plan == key.exec_plan
                && p.key != *key
                && !p.points.is_empty()
        };
        let updated = |p: &&Profile| p.updated_at;
        let doubted = |p: &Profile, error: f64| {
            p.points.iter().map(|p| SizePoint { error: p.error.hypot(error), ..*p }).collect()
        };
        if let Some(own) = self.profiles.of_user(&key.user).filter(alike).max_by_key(updated) {
            return Some(doubted(own, OTHER_TYPE_ERROR));
        }
        let others = self.profiles.all().filter(|p| self.share_profiles && p.key.user != key.user);
        others.filter(alike).max_by_key(updated).map(|p| doubted(p, OTHER_USER_ERROR))
    }
}

/// The curve over all sizes of interest.
fn curve(fitted: &Fitted, sizes: &Sizes) -> Option<Curve> {
    fitted.curve(&sizes_of_interest(sizes, fitted.points()))
}

/// What a declared curve says of the sizes that it names, within the allowed ones.
fn declared_points(curve: &Curve, sizes: &Sizes) -> Vec<SizePoint> {
    let named = curve.points().iter().map(|p| p.nodes).filter(|n| !curve.is_default() && *n <= sizes.max());
    let point = |nodes| SizePoint {
        nodes,
        rate: curve.rate(nodes),
        error: DECLARED_ERROR,
        secs: 0.0,
        step_samples: None,
        hosts: None,
        at: UnixTime::default(),
    };
    named.map(point).collect()
}

/// The factor that brings `other` to the level of what was measured, for it may count in another unit; and by
/// how much, relatively, it then still misses it.
fn scale(measured: &[SizePoint], other: &[SizePoint], largest: u32) -> (f64, f64) {
    let fitted = Fitted::new(other, BatchMode::Auto, largest);
    let Some(fitted) = fitted.filter(|_| !measured.is_empty()) else { return (1.0, 0.0) };
    let n = measured.len() as f64;
    let logs: Vec<f64> = measured.iter().map(|p| (p.rate / fitted.at(p.nodes).rate).ln()).collect();
    let mean = logs.iter().sum::<f64>() / n;
    let misfit = (logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / n).sqrt();
    (mean.exp(), misfit)
}
