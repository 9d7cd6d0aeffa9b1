//! What a user's file says of a command's execution plans, and what the command is told of the one that it
//! runs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::command::EnvVariable;
use infill_model::{
    AllowedSizes, DeclaredPlan, ExecPlan, MOST_PLAN_CHARS, MOST_PLAN_TYPES, MOST_PLANS, MemorySize,
    ModelFacts, ParallelStrategy, PlanNeeds, Precision,
};

/// Largest file of plans, bytes: it goes along on the command line of every wing.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Largest size that a plan which divides the model is given, where nothing else limits it.
const MAX_DIVIDED_SIZE: u32 = 1024;

/// Beginnings of variables that are infill's or Slurm's.
const RESERVED_PREFIXES: [&str; 2] = ["INFILL_", "SLURM_"];

/// A file of plans that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlansError {
    /// It cannot be read.
    #[error("cannot read {path}: {what}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why not.
        what: String,
    },
    /// It is no TOML, or has other fields.
    #[error("{0}")]
    Syntax(String),
    /// What it says makes no sense.
    #[error("line {line}: {what}")]
    Nonsense {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

/// One execution plan, as it stands in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunPlan {
    /// Its name.
    pub name: String,
    /// Sizes at which it can run; none for all that the job may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<AllowedSizes>,
    /// Types of nodes on which it can run; none for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// GPUs (processes) that share each layer.
    #[serde(default = "one")]
    pub tp: u32,
    /// Stages that the layers are divided into.
    #[serde(default = "one")]
    pub pp: u32,
    /// Stage of ZeRO, 0 to 3.
    #[serde(default)]
    pub zero: u32,
    /// Whether the optimizer works on the CPUs.
    #[serde(default)]
    pub offload: bool,
    /// Micro-batches whose gradients are added up before a step.
    #[serde(default = "one")]
    pub accumulate: u32,
    /// Whether activations are computed again for the backward pass.
    #[serde(default)]
    pub checkpointing: bool,
    /// CPUs of a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Host memory of a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemorySize>,
    /// Memory of each GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<MemorySize>,
    /// Arguments that the command gets besides its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables that the command gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

fn one() -> u32 {
    1
}

/// The model that the command trains, as it stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelSection {
    /// Parameters, millions.
    params_mi: f64,
    layers: Option<u32>,
    /// Hidden size.
    hidden: Option<u32>,
    /// Heads of attention.
    heads: Option<u32>,
    /// Tokens of a sample.
    sequence: Option<u32>,
    /// Samples of a step, over all GPUs.
    global_batch: Option<u32>,
    /// In which numbers it trains.
    #[serde(default)]
    precision: Precision,
}

impl From<ModelSection> for ModelFacts {
    fn from(model: ModelSection) -> ModelFacts {
        let ModelSection { params_mi, layers, hidden, heads, sequence, global_batch, precision } = model;
        ModelFacts { params_mi, layers, hidden, heads, sequence, global_batch, precision }
    }
}

impl ModelSection {
    /// What makes no sense in it, if anything.
    fn find_problem(self) -> Option<String> {
        ModelFacts::from(self).check_bounds().err().map(|odd| format!("model: {odd}"))
    }
}

/// The execution plans of a command, at least one, the one to begin with first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecPlans {
    /// The model that it trains. A wing needs no such thing.
    #[serde(default, skip_serializing)]
    model: Option<ModelSection>,
    plan: Vec<RunPlan>,
    /// In which line of its file each begins, from 1; none where they came as JSON.
    #[serde(skip)]
    lines: Vec<usize>,
}

/// The file with the place of each table in it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlansFile {
    model: Option<Spanned<ModelSection>>,
    #[serde(default)]
    plan: Vec<Spanned<RunPlan>>,
}

impl ExecPlans {
    /// What `--plans` names: a file, or the plans themselves as JSON, as wings get them.
    pub fn from_argument(text: &str) -> Result<ExecPlans, PlansError> {
        if text.starts_with('{') {
            return ExecPlans::from_json(text);
        }
        let unreadable = |what: String| PlansError::Unreadable { path: text.to_owned(), what };
        let path = Path::new(text);
        let bytes = std::fs::metadata(path).map_err(|e| unreadable(e.to_string()))?.len();
        if bytes > MAX_FILE_BYTES {
            return Err(unreadable(format!("it has {bytes} bytes, and at most {MAX_FILE_BYTES} are read")));
        }
        ExecPlans::parse(&std::fs::read_to_string(path).map_err(|e| unreadable(e.to_string()))?)
    }

    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<ExecPlans, PlansError> {
        let PlansFile { model, plan } =
            toml::from_str(text).map_err(|e| PlansError::Syntax(e.to_string()))?;
        let line = |span: Range<usize>| text[..span.start.min(text.len())].matches('\n').count() + 1;
        let nonsense = |line: usize, what: String| PlansError::Nonsense { line, what };
        if plan.is_empty() {
            return Err(nonsense(1, "there is no [[plan]]".to_owned()));
        }
        if let Some((at, what)) =
            model.as_ref().and_then(|m| Some((line(m.span()), m.get_ref().find_problem()?)))
        {
            return Err(nonsense(at, what));
        }
        let mut plans: Vec<RunPlan> = Vec::new();
        let mut lines: Vec<usize> = Vec::new();
        for spanned in plan {
            let at = line(spanned.span());
            let plan = spanned.into_inner();
            find_plan_problem(&plan, &plans).map_or(Ok(()), |what| Err(nonsense(at, what)))?;
            plans.push(plan);
            lines.push(at);
        }
        Ok(ExecPlans { model: model.map(Spanned::into_inner), plan: plans, lines })
    }

    fn from_json(text: &str) -> Result<ExecPlans, PlansError> {
        let plans: ExecPlans = serde_json::from_str(text).map_err(|e| PlansError::Syntax(e.to_string()))?;
        let odd_plan =
            plans.plan.iter().enumerate().find_map(|(i, p)| find_plan_problem(p, &plans.plan[..i]));
        match plans.model.and_then(ModelSection::find_problem).or(odd_plan) {
            _ if plans.plan.is_empty() => Err(PlansError::Syntax("there is no plan".to_owned())),
            Some(what) => Err(PlansError::Syntax(what)),
            None => Ok(plans),
        }
    }

    /// What a wing's worker must know of them, as JSON for its command line: how the command is told of its
    /// plan. Model and needs are the daemon's business, and an infill of another version on a wing's node,
    /// which refuses fields that it does not know, reads this as well.
    pub fn to_json(&self) -> String {
        let told = |plan: &RunPlan| RunPlan { cpus: None, memory: None, gpu_memory: None, ..plan.clone() };
        let told = ExecPlans { plan: self.plan.iter().map(told).collect(), model: None, lines: Vec::new() };
        // Numbers and words only: nothing that JSON could not say.
        serde_json::to_string(&told).unwrap_or_default()
    }

    /// The model that the command trains, as far as its owner says.
    pub fn model_facts(&self) -> Option<ModelFacts> {
        self.model.map(ModelFacts::from)
    }

    /// What the daemon is told. `ranks`: processes on each node; `sizes`: those that the user names.
    ///
    /// # Errors
    /// Where a plan can run at none of the sizes, with its line.
    pub fn declared_plans(
        &self,
        ranks: u32,
        sizes: Option<&AllowedSizes>,
    ) -> Result<Vec<DeclaredPlan>, PlansError> {
        let declared = |(at, plan): (usize, &RunPlan)| {
            Ok(DeclaredPlan {
                name: ExecPlan(plan.name.clone()),
                sizes: plan.runnable_sizes(ranks, sizes).map_err(|what: String| {
                    match self.lines.get(at) {
                        Some(line) => PlansError::Nonsense { line: *line, what },
                        None => PlansError::Syntax(what),
                    }
                })?,
                node_types: plan.types.clone(),
                shards: plan.zero > 0 || plan.parallel_strategy().divides_model(),
                strategy: Some(plan.parallel_strategy()),
                needs: plan.worker_needs(),
            })
        };
        self.plan.iter().enumerate().map(declared).collect()
    }

    /// The plan of this name.
    pub fn get(&self, name: &str) -> Option<&RunPlan> {
        self.plan.iter().find(|plan| plan.name == name)
    }

    /// The plan to begin with.
    pub fn first_name(&self) -> &str {
        self.plan.first().map_or("", |plan| &plan.name)
    }

    /// All plans.
    pub fn iter(&self) -> impl Iterator<Item = &RunPlan> {
        self.plan.iter()
    }
}

impl RunPlan {
    /// What it does with model, optimizer and batch.
    pub fn parallel_strategy(&self) -> ParallelStrategy {
        let RunPlan { tp, pp, zero, offload, accumulate, checkpointing, .. } = *self;
        ParallelStrategy { tp, pp, zero, offload, accumulate, checkpointing }
    }

    /// What one of its workers needs.
    pub fn worker_needs(&self) -> PlanNeeds {
        let mib = |size: Option<MemorySize>| size.map(MemorySize::mib);
        PlanNeeds { cpus: self.cpus, memory_mib: mib(self.memory), gpu_memory_mib: mib(self.gpu_memory) }
    }

    /// The sizes at which it can run: those whose processes can be divided as it wants, `ranks` on each node;
    /// or why there is none.
    fn runnable_sizes(
        &self,
        ranks: u32,
        named: Option<&AllowedSizes>,
    ) -> Result<Option<AllowedSizes>, String> {
        let divides = self.parallel_strategy().gpus_per_replica();
        if divides <= 1 || ranks.is_multiple_of(divides) {
            return Ok(self.nodes.clone());
        }
        let all = self.nodes.as_ref().or(named);
        let sizes = all.map_or_else(|| (1..=MAX_DIVIDED_SIZE).collect(), |sizes| sizes.up_to(u32::MAX));
        let sizes: Vec<u32> = sizes
            .into_iter()
            .filter(|nodes: &u32| nodes.saturating_mul(ranks).is_multiple_of(divides))
            .collect();
        if sizes.is_empty() {
            let of = all.map_or_else(|| format!("1-{MAX_DIVIDED_SIZE}"), AllowedSizes::to_string);
            return Err(format!(
                "plan {:?}: tp × pp = {divides} processes share a model, and none of the sizes {of} has a multiple of \
                 that, with {ranks} on each; --nproc-per-node says how many a node has, else one for each GPU that it \
                 was given",
                self.name
            ));
        }
        Ok(Some(AllowedSizes::Set(sizes)))
    }

    /// The variables by which a command of so many processes is told of it.
    pub fn env_variables(&self, world: u32) -> Vec<EnvVariable> {
        let flag = |set: bool| u32::from(set).to_string();
        let dp = (world / self.tp.saturating_mul(self.pp).max(1)).max(1);
        let told = [
            ("INFILL_DP", dp.to_string()),
            ("INFILL_TP", self.tp.to_string()),
            ("INFILL_PP", self.pp.to_string()),
            ("INFILL_ZERO", self.zero.to_string()),
            ("INFILL_OFFLOAD", flag(self.offload)),
            ("INFILL_GA", self.accumulate.to_string()),
            ("INFILL_GC", flag(self.checkpointing)),
        ];
        let theirs = self.env.iter().map(|(name, value)| (Cow::Owned(name.clone()), value.clone()));
        theirs.chain(told.map(|(name, value)| (Cow::Borrowed(name), value))).collect()
    }
}

/// What makes no sense in a plan that comes after these, if anything.
fn find_plan_problem(plan: &RunPlan, before: &[RunPlan]) -> Option<String> {
    let name = &plan.name;
    if let Some(what) = find_word_problem("name", name) {
        return Some(what);
    }
    if before.iter().any(|p| p.name == *name) {
        return Some(format!("there is a plan {name:?} already"));
    }
    if before.len() >= MOST_PLANS {
        return Some(format!("there may be at most {MOST_PLANS} plans"));
    }
    let odd_number =
        plan.parallel_strategy().check_bounds().and_then(|()| plan.worker_needs().check_bounds()).err();
    odd_number
        .map(|odd| odd.to_string())
        .or_else(|| {
            (plan.types.len() > MOST_PLAN_TYPES).then(|| format!("at most {MOST_PLAN_TYPES} types of nodes"))
        })
        .or_else(|| plan.types.iter().find_map(|word| find_word_problem("type of nodes", word)))
        .or_else(|| plan.args.iter().find(|a| a.contains('\0')).map(|_| "args hold a NUL".to_owned()))
        .or_else(|| plan.env.iter().find_map(|(name, value)| find_variable_problem(name, value)))
        .map(|what| format!("plan {name:?}: {what}"))
}

fn find_word_problem(what: &str, word: &str) -> Option<String> {
    let sound = !word.is_empty()
        && word.chars().count() <= MOST_PLAN_CHARS
        && !word.chars().any(|c| c.is_control() || c.is_whitespace());
    let expected = format!("expected up to {MOST_PLAN_CHARS} characters without spaces");
    (!sound).then(|| format!("{what} {word:?}: {expected}"))
}

fn find_variable_problem(name: &str, value: &str) -> Option<String> {
    if name.is_empty()
        || name.starts_with(|c: char| c.is_ascii_digit())
        || !name.chars().all(|c: char| c.is_ascii_alphanumeric() || c == '_')
    {
        return Some(format!("env {name:?} is no name of a variable"));
    }
    if RESERVED_PREFIXES.iter().any(|start| name.starts_with(start)) {
        return Some(format!("env {name}: variables that begin with INFILL_ or SLURM_ are set for you"));
    }
    value.contains('\0').then(|| format!("env {name} holds a NUL"))
}

#[cfg(test)]
mod tests;
