//! Reads the user's file of execution plans, and passes the plan in use on to the command.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::command::EnvVariable;
use infill_model::{
    AllowedSizes, DeclaredPlan, ExecPlan, MOST_PLAN_CHARS, MOST_PLAN_TYPES, MOST_PLANS, MemorySize,
    ModelFacts, ParallelStrategy, PlanNeeds, Precision,
};

/// Largest file of plans, bytes. Its contents are on the command line of every wing.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Largest size of a plan that divides the model, if nothing else limits it.
const MAX_DIVIDED_SIZE: u32 = 1024;

/// Prefixes of variables that belong to infill or Slurm.
const RESERVED_PREFIXES: [&str; 2] = ["INFILL_", "SLURM_"];

/// Why a file of plans cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlansError {
    /// The file cannot be read.
    #[error("cannot read {path}: {what}")]
    Unreadable {
        /// Path of the file.
        path: String,
        /// The error of the system, or the limit that the file exceeds.
        what: String,
    },
    /// It is not TOML, or has unknown fields.
    #[error("{0}")]
    Syntax(String),
    /// A value makes no sense.
    #[error("line {line}: {what}")]
    InvalidValue {
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what was expected.
        what: String,
    },
}

/// One execution plan, as it stands in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunPlan {
    /// Name of the plan, which is unique in the file.
    pub name: String,
    /// Sizes at which it can run; `None` for all that the job may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<AllowedSizes>,
    /// Types of nodes on which it can run; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// GPUs (processes) that share each layer.
    #[serde(default = "one")]
    pub tp: u32,
    /// Pipeline stages into which the layers are divided.
    #[serde(default = "one")]
    pub pp: u32,
    /// Stage of ZeRO, 0 to 3.
    #[serde(default)]
    pub zero: u32,
    /// Whether the optimizer works on the CPUs.
    #[serde(default)]
    pub offload: bool,
    /// Number of micro-batches whose gradients are added up before a step.
    #[serde(default = "one")]
    pub accumulate: u32,
    /// Whether activations are computed again for the backward pass.
    #[serde(default)]
    pub checkpointing: bool,
    /// CPUs that a worker needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Host memory that a worker needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemorySize>,
    /// Memory that it needs of each GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<MemorySize>,
    /// Arguments that the command gets besides its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables that the command gets besides its own.
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
    /// Number of parameters, millions.
    params_mi: f64,
    layers: Option<u32>,
    /// Hidden size.
    hidden: Option<u32>,
    /// Number of attention heads.
    heads: Option<u32>,
    /// Tokens in a sample.
    sequence: Option<u32>,
    /// Samples in a step, over all GPUs.
    global_batch: Option<u32>,
    /// Precision of the numbers in training.
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
    /// The first value that makes no sense, as an error; `None` if all do.
    fn find_problem(self) -> Option<String> {
        ModelFacts::from(self).check_bounds().err().map(|error| format!("model: {error}"))
    }
}

/// The execution plans of a command, at least one, the one to begin with first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecPlans {
    /// The model that the command trains. It is not sent to wings.
    #[serde(default, skip_serializing)]
    model: Option<ModelSection>,
    plan: Vec<RunPlan>,
    /// The line of the file in which each plan begins, from 1; empty if the plans came as JSON.
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
    /// Reads the argument of `--plans`: a file's path, or the plans themselves as JSON, which wings get.
    ///
    /// # Errors
    /// When the file cannot be read, or a plan makes no sense.
    pub fn from_argument(text: &str) -> Result<ExecPlans, PlansError> {
        if text.starts_with('{') {
            return ExecPlans::from_json(text);
        }
        let file =
            read_plans_file(text).map_err(|what| PlansError::Unreadable { path: text.to_owned(), what })?;
        ExecPlans::parse(&file)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// When it is not TOML with these fields, or a plan makes no sense.
    pub fn parse(text: &str) -> Result<ExecPlans, PlansError> {
        let PlansFile { model, plan } =
            toml::from_str(text).map_err(|e| PlansError::Syntax(e.to_string()))?;
        if plan.is_empty() {
            return Err(PlansError::InvalidValue {
                line: 1,
                what: "expected at least one [[plan]]".to_owned(),
            });
        }
        if let Some(model) = &model
            && let Some(what) = model.get_ref().find_problem()
        {
            return Err(PlansError::InvalidValue { line: line_number(text, &model.span()), what });
        }
        let mut plans: Vec<RunPlan> = Vec::new();
        let mut lines: Vec<usize> = Vec::new();
        for spanned in plan {
            let line = line_number(text, &spanned.span());
            let plan = spanned.into_inner();
            if let Some(what) = find_plan_problem(&plan, &plans) {
                return Err(PlansError::InvalidValue { line, what });
            }
            plans.push(plan);
            lines.push(line);
        }
        Ok(ExecPlans { model: model.map(Spanned::into_inner), plan: plans, lines })
    }

    fn from_json(text: &str) -> Result<ExecPlans, PlansError> {
        let plans: ExecPlans = serde_json::from_str(text).map_err(|e| PlansError::Syntax(e.to_string()))?;
        if plans.plan.is_empty() {
            return Err(PlansError::Syntax("expected at least one plan".to_owned()));
        }
        let plan_problem =
            plans.plan.iter().enumerate().find_map(|(i, p)| find_plan_problem(p, &plans.plan[..i]));
        match plans.model.and_then(ModelSection::find_problem).or(plan_problem) {
            Some(what) => Err(PlansError::Syntax(what)),
            None => Ok(plans),
        }
    }

    /// The plans as JSON for the command line of a wing's worker, with what the command needs. The model and
    /// the plans' needs concern only the daemon. Without them, an infill of another version on a wing's node
    /// can read this too, although it refuses fields that it does not know.
    pub fn to_json(&self) -> String {
        let mut plan = self.plan.clone();
        for plan in &mut plan {
            plan.cpus = None;
            plan.memory = None;
            plan.gpu_memory = None;
        }
        let for_worker = ExecPlans { plan, model: None, lines: Vec::new() };
        // This cannot fail: there are only numbers and text.
        serde_json::to_string(&for_worker).unwrap_or_default()
    }

    /// The model that the command trains, if its owner declares one.
    pub fn model_facts(&self) -> Option<ModelFacts> {
        self.model.map(ModelFacts::from)
    }

    /// The plans as they are declared to the daemon. `ranks`: processes on each node. `sizes`: the numbers of
    /// nodes that the user names.
    ///
    /// # Errors
    /// When a plan cannot run at any of the sizes, with its line.
    pub fn declared_plans(
        &self,
        ranks: u32,
        sizes: Option<&AllowedSizes>,
    ) -> Result<Vec<DeclaredPlan>, PlansError> {
        let mut declared = Vec::new();
        for (index, plan) in self.plan.iter().enumerate() {
            let plan_sizes =
                plan.runnable_sizes(ranks, sizes).map_err(|what| match self.lines.get(index) {
                    Some(line) => PlansError::InvalidValue { line: *line, what },
                    None => PlansError::Syntax(what),
                })?;
            declared.push(DeclaredPlan {
                name: ExecPlan(plan.name.clone()),
                sizes: plan_sizes,
                node_types: plan.types.clone(),
                shards: plan.zero > 0 || plan.parallel_strategy().divides_model(),
                strategy: Some(plan.parallel_strategy()),
                needs: plan.worker_needs(),
            });
        }
        Ok(declared)
    }

    /// The plan with this name.
    pub fn plan_named(&self, name: &str) -> Option<&RunPlan> {
        self.plan.iter().find(|plan| plan.name == name)
    }

    /// The name of the plan to begin with.
    pub fn first_name(&self) -> &str {
        self.plan.first().map_or("", |plan| &plan.name)
    }

    /// All plans, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &RunPlan> {
        self.plan.iter()
    }
}

impl RunPlan {
    /// How the plan divides model, optimizer and batch.
    pub fn parallel_strategy(&self) -> ParallelStrategy {
        let RunPlan { tp, pp, zero, offload, accumulate, checkpointing, .. } = *self;
        ParallelStrategy { tp, pp, zero, offload, accumulate, checkpointing }
    }

    /// The CPUs and memory that each worker needs.
    pub fn worker_needs(&self) -> PlanNeeds {
        PlanNeeds {
            cpus: self.cpus,
            memory_mib: self.memory.map(MemorySize::mib),
            gpu_memory_mib: self.gpu_memory.map(MemorySize::mib),
        }
    }

    /// The sizes at which the plan can run: with `ranks` processes on each node, it can divide the processes
    /// as it wants. `None` for all sizes that the job may have. `named`: the sizes that the user names.
    ///
    /// # Errors
    /// Why there is no such size.
    fn runnable_sizes(
        &self,
        ranks: u32,
        named: Option<&AllowedSizes>,
    ) -> Result<Option<AllowedSizes>, String> {
        let per_replica = self.parallel_strategy().gpus_per_replica();
        if per_replica <= 1 || ranks.is_multiple_of(per_replica) {
            return Ok(self.nodes.clone());
        }
        let allowed = self.nodes.as_ref().or(named);
        let sizes = allowed.map_or_else(|| (1..=MAX_DIVIDED_SIZE).collect(), |sizes| sizes.up_to(u32::MAX));
        let sizes: Vec<u32> = sizes
            .into_iter()
            .filter(|nodes| nodes.saturating_mul(ranks).is_multiple_of(per_replica))
            .collect();
        if sizes.is_empty() {
            let allowed = allowed.map_or_else(|| format!("1-{MAX_DIVIDED_SIZE}"), AllowedSizes::to_string);
            return Err(format!(
                "plan {:?}: tp × pp = {per_replica} processes share a model. With {ranks} on each node, none of the \
                 sizes {allowed} has a multiple of that. --workers-per-node sets the processes of a node; the default \
                 is one for each of its GPUs",
                self.name
            ));
        }
        Ok(Some(AllowedSizes::Set(sizes)))
    }

    /// The variables that describe the plan to a command of `world` processes, after the plan's own.
    pub fn env_variables(&self, world: u32) -> Vec<EnvVariable> {
        let dp = (world / self.tp.saturating_mul(self.pp).max(1)).max(1);
        let described = [
            ("INFILL_DP", dp.to_string()),
            ("INFILL_TP", self.tp.to_string()),
            ("INFILL_PP", self.pp.to_string()),
            ("INFILL_ZERO", self.zero.to_string()),
            ("INFILL_OFFLOAD", u32::from(self.offload).to_string()),
            ("INFILL_GA", self.accumulate.to_string()),
            ("INFILL_GC", u32::from(self.checkpointing).to_string()),
        ];
        let own = self.env.iter().map(|(name, value)| (Cow::Owned(name.clone()), value.clone()));
        own.chain(described.map(|(name, value)| (Cow::Borrowed(name), value))).collect()
    }
}

/// Reads a file of at most [`MAX_FILE_BYTES`]. The error says what is wrong.
fn read_plans_file(path: &str) -> Result<String, String> {
    let bytes = std::fs::metadata(path).map_err(|e| e.to_string())?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(format!("it has {bytes} bytes, and at most {MAX_FILE_BYTES} are read"));
    }
    std::fs::read_to_string(path).map_err(|e| e.to_string())
}

/// The line, from 1, in which a part of a text begins.
fn line_number(text: &str, span: &Range<usize>) -> usize {
    text[..span.start.min(text.len())].matches('\n').count() + 1
}

/// The first problem of a plan that comes after the plans in `before`; `None` if it has none.
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
    let number_error =
        plan.parallel_strategy().check_bounds().and_then(|()| plan.worker_needs().check_bounds()).err();
    number_error
        .map(|error| error.to_string())
        .or_else(|| {
            (plan.types.len() > MOST_PLAN_TYPES).then(|| format!("at most {MOST_PLAN_TYPES} types of nodes"))
        })
        .or_else(|| plan.types.iter().find_map(|word| find_word_problem("type of nodes", word)))
        .or_else(|| plan.args.iter().find(|a| a.contains('\0')).map(|_| "args contain a NUL".to_owned()))
        .or_else(|| plan.env.iter().find_map(|(name, value)| find_variable_problem(name, value)))
        .map(|what| format!("plan {name:?}: {what}"))
}

fn find_word_problem(what: &str, word: &str) -> Option<String> {
    let is_valid = !word.is_empty()
        && word.chars().count() <= MOST_PLAN_CHARS
        && !word.chars().any(|c| c.is_control() || c.is_whitespace());
    if is_valid {
        return None;
    }
    Some(format!("{what} {word:?}: expected up to {MOST_PLAN_CHARS} characters without spaces"))
}

fn find_variable_problem(name: &str, value: &str) -> Option<String> {
    if name.is_empty()
        || name.starts_with(|c: char| c.is_ascii_digit())
        || !name.chars().all(|c: char| c.is_ascii_alphanumeric() || c == '_')
    {
        return Some(format!("env {name:?} is not a variable name: expected letters, digits and _"));
    }
    if RESERVED_PREFIXES.iter().any(|start| name.starts_with(start)) {
        return Some(format!("env {name}: variables that begin with INFILL_ or SLURM_ are set for you"));
    }
    value.contains('\0').then(|| format!("env {name} contains a NUL"))
}

#[cfg(test)]
mod tests;
