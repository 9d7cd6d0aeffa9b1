//! How much faster programs run on one type of nodes than on another, by all that the site has measured. A
//! ratio names nobody, so that everybody profits from what others measured.
//!
//! The logarithm of a program's ratio is taken as normal around that of the two types, as far apart as
//! programs on Arena's public table are (25 programs, four types; EuroSys 2026); of two types of which
//! nothing is known, as normal around 0.

use std::collections::BTreeMap;

use super::profiles::Profiles;
use super::spread;
use infill_model::{NodeType, Profile, ProfileKey, SizePoint};

/// How far the ratios of programs are apart, standard deviation of the logarithm.
const OF_PROGRAMS: f64 = 0.25;

/// How far types are apart of which nothing was measured.
const OF_TYPES: f64 = 0.5;

/// Most types that are compared; of a site with more, the others are strangers to each other.
const MOST_TYPES: usize = 64;

/// What programs measured on two types say.
#[derive(Clone, Copy, Debug, Default)]
struct Compared {
    /// Sum of the logarithms of their ratios, one a program.
    sum: f64,
    programs: u32,
}

/// How a program's rates on two types compare: the logarithm of their ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LogRatio {
    /// Its mean.
    pub(super) mean: f64,
    /// Its standard deviation, for a program of which nothing is known on one of them.
    pub(super) sd: f64,
    /// Programs that tell it.
    pub(super) programs: u32,
}

/// All that were measured.
#[derive(Clone, Debug, Default)]
pub(super) struct TypeRatios {
    /// By (from, to), the lesser name first.
    compared: BTreeMap<(NodeType, NodeType), Compared>,
}

impl TypeRatios {
    /// Of all these profiles.
    pub(super) fn of(profiles: &Profiles) -> TypeRatios {
        let mut types = profiles.all().map(|p| &p.key.node_type);
        let first = types.next();
        if types.all(|other| Some(other) == first) {
            return TypeRatios::default();
        }
        let mut programs: BTreeMap<(&str, &str, &str), Vec<&Profile>> = BTreeMap::new();
        for profile in profiles.all().filter(|p| !p.points.is_empty()) {
            let ProfileKey { user, name, exec_plan, .. } = &profile.key;
            programs.entry((user, name, &exec_plan.0)).or_default().push(profile);
        }
        let mut ratios = TypeRatios::default();
        for of_program in programs.values().filter(|p| (2..=MOST_TYPES).contains(&p.len())) {
            for (i, a) in of_program.iter().enumerate() {
                for b in &of_program[i + 1..] {
                    ratios.compare(a, b);
                }
            }
        }
        ratios
    }

    fn compare(&mut self, a: &Profile, b: &Profile) {
        if a.key.node_type > b.key.node_type {
            return self.compare(b, a);
        }
        let like = |p: &SizePoint| b.points.iter().find(|q| q.nodes == p.nodes && !spread::is_other(q, p));
        let logs: Vec<f64> = a.points.iter().filter_map(|p| Some((like(p)?.rate / p.rate).ln())).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        if a.key.node_type != b.key.node_type && mean.is_finite() {
            let compared =
                self.compared.entry((a.key.node_type.clone(), b.key.node_type.clone())).or_default();
            compared.sum += mean;
            compared.programs += 1;
        }
    }

    /// How rates on `to` compare with those on `from`.
    pub(super) fn log_ratio(&self, from: &NodeType, to: &NodeType) -> LogRatio {
        if from == to {
            return LogRatio { mean: 0.0, sd: 0.0, programs: 0 };
        }
        let (pair, sign) =
            if from < to { ((from.clone(), to.clone()), 1.0) } else { ((to.clone(), from.clone()), -1.0) };
        let Compared { sum, programs } = self.compared.get(&pair).copied().unwrap_or_default();
        let known = f64::from(programs) / OF_PROGRAMS.powi(2);
        let precision = known + OF_TYPES.powi(-2);
        let mean = sign * sum / OF_PROGRAMS.powi(2) / precision;
        LogRatio { mean, sd: OF_PROGRAMS.hypot(precision.powf(-0.5)), programs }
    }
}
