//! What a user's file says of a command's execution plans, and what the command is told of the one that it
//! runs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::command::Variable;
use infill_model::{DeclaredPlan, ExecPlan, MOST_PLAN_CHARS, MOST_PLAN_TYPES, MOST_PLANS, Sizes};

/// Largest file of plans, bytes: it goes along on the command line of every wing.
const MOST_BYTES: u64 = 64 * 1024;

/// Most ways in which one dimension of parallelism may divide a model.
const MOST_WAYS: u32 = 4096;

/// Largest size that a plan which divides the model is given, where nothing else limits it.
const MOST_DIVIDED: u32 = 1024;

/// Beginnings of variables that are infill's or Slurm's.
const NOT_THEIRS: [&str; 2] = ["INFILL_", "SLURM_"];

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
    pub nodes: Option<Sizes>,
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

/// The execution plans of a command, at least one, the one to begin with first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plans {
    plan: Vec<RunPlan>,
    /// In which line of its file each begins, from 1; none where they came as JSON.
    #[serde(skip)]
    lines: Vec<usize>,
}

/// The file with the place of each plan in it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    plan: Vec<Spanned<RunPlan>>,
}

impl Plans {
    /// What `--plans` names: a file, or the plans themselves as JSON, as wings get them.
    pub fn named(text: &str) -> Result<Plans, PlansError> {
        if text.starts_with('{') {
            return Plans::of_json(text);
        }
        let unreadable = |what: String| PlansError::Unreadable { path: text.to_owned(), what };
        let path = Path::new(text);
        let bytes = std::fs::metadata(path).map_err(|e| unreadable(e.to_string()))?.len();
        if bytes > MOST_BYTES {
            return Err(unreadable(format!("it has {bytes} bytes, and at most {MOST_BYTES} are read")));
        }
        Plans::parse(&std::fs::read_to_string(path).map_err(|e| unreadable(e.to_string()))?)
    }

    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Plans, PlansError> {
        let File { plan } = toml::from_str(text).map_err(|e| PlansError::Syntax(e.to_string()))?;
        let line = |span: Range<usize>| text[..span.start.min(text.len())].matches('\n').count() + 1;
        let nonsense = |line: usize, what: String| PlansError::Nonsense { line, what };
        if plan.is_empty() {
            return Err(nonsense(1, "there is no [[plan]]".to_owned()));
        }
        let (mut plans, mut lines): (Vec<RunPlan>, Vec<usize>) = (Vec::new(), Vec::new());
        for spanned in plan {
            let at = line(spanned.span());
            let plan = spanned.into_inner();
            wrong(&plan, &plans).map_or(Ok(()), |what| Err(nonsense(at, what)))?;
            plans.push(plan);
            lines.push(at);
        }
        Ok(Plans { plan: plans, lines })
    }

    fn of_json(text: &str) -> Result<Plans, PlansError> {
        let Plans { plan, lines } =
            serde_json::from_str(text).map_err(|e| PlansError::Syntax(e.to_string()))?;
        let odd = plan.iter().enumerate().find_map(|(i, p)| wrong(p, &plan[..i]));
        match odd {
            _ if plan.is_empty() => Err(PlansError::Syntax("there is no plan".to_owned())),
            Some(what) => Err(PlansError::Syntax(what)),
            None => Ok(Plans { plan, lines }),
        }
    }

    /// The same as JSON, for a wing's command line.
    pub fn to_json(&self) -> String {
        // Numbers and words only: nothing that JSON could not say.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What the daemon is told. `ranks`: processes on each node; `sizes`: those that the user names.
    ///
    /// # Errors
    /// Where a plan can run at none of the sizes, with its line.
    pub fn declared(&self, ranks: u32, sizes: Option<&Sizes>) -> Result<Vec<DeclaredPlan>, PlansError> {
        let declared = |(at, plan): (usize, &RunPlan)| {
            let nowhere = |what: String| match self.lines.get(at) {
                Some(line) => PlansError::Nonsense { line: *line, what },
                None => PlansError::Syntax(what),
            };
            Ok(DeclaredPlan {
                name: ExecPlan(plan.name.clone()),
                sizes: plan.sizes(ranks, sizes).map_err(nowhere)?,
                node_types: plan.types.clone(),
                shards: plan.zero > 0 || plan.tp > 1 || plan.pp > 1,
            })
        };
        self.plan.iter().enumerate().map(declared).collect()
    }

    /// The plan of this name.
    pub fn get(&self, name: &str) -> Option<&RunPlan> {
        self.plan.iter().find(|plan| plan.name == name)
    }

    /// The plan to begin with.
    pub fn first(&self) -> &str {
        self.plan.first().map_or("", |plan| &plan.name)
    }

    /// All plans.
    pub fn iter(&self) -> impl Iterator<Item = &RunPlan> {
        self.plan.iter()
    }
}

impl RunPlan {
    /// The sizes at which it can run: those whose processes can be divided as it wants, `ranks` on each node;
    /// or why there is none.
    fn sizes(&self, ranks: u32, named: Option<&Sizes>) -> Result<Option<Sizes>, String> {
        let divides = self.tp.saturating_mul(self.pp);
        let fits = |nodes: &u32| nodes.saturating_mul(ranks).is_multiple_of(divides);
        if divides <= 1 || ranks.is_multiple_of(divides) {
            return Ok(self.nodes.clone());
        }
        let all = self.nodes.as_ref().or(named);
        let sizes = all.map_or_else(|| (1..=MOST_DIVIDED).collect(), |sizes| sizes.up_to(u32::MAX));
        let sizes: Vec<u32> = sizes.into_iter().filter(fits).collect();
        if sizes.is_empty() {
            let of = all.map_or_else(|| format!("1-{MOST_DIVIDED}"), Sizes::to_string);
            return Err(format!(
                "plan {:?}: tp × pp = {divides} processes share a model, and none of the sizes {of} has a multiple of \
                 that, with {ranks} on each; --nproc-per-node says how many a node has, else one for each GPU that it \
                 was given",
                self.name
            ));
        }
        Ok(Some(Sizes::Set(sizes)))
    }

    /// The variables by which a command of so many processes is told of it.
    pub fn variables(&self, world: u32) -> Vec<Variable> {
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
fn wrong(plan: &RunPlan, before: &[RunPlan]) -> Option<String> {
    let name = &plan.name;
    if let Some(what) = word_wrong("name", name) {
        return Some(what);
    }
    if before.iter().any(|p| p.name == *name) {
        return Some(format!("there is a plan {name:?} already"));
    }
    if before.len() >= MOST_PLANS {
        return Some(format!("there may be at most {MOST_PLANS} plans"));
    }
    let ways = [("tp", plan.tp), ("pp", plan.pp), ("accumulate", plan.accumulate)];
    let odd_ways = ways.into_iter().find(|(_, ways)| !(1..=MOST_WAYS).contains(ways));
    odd_ways
        .map(|(what, ways)| format!("{what} = {ways}: expected 1 to {MOST_WAYS}"))
        .or_else(|| (plan.zero > 3).then(|| format!("zero = {}: there are stages 0 to 3", plan.zero)))
        .or_else(|| {
            (plan.types.len() > MOST_PLAN_TYPES).then(|| format!("at most {MOST_PLAN_TYPES} types of nodes"))
        })
        .or_else(|| plan.types.iter().find_map(|word| word_wrong("type of nodes", word)))
        .or_else(|| plan.args.iter().find(|a| a.contains('\0')).map(|_| "args hold a NUL".to_owned()))
        .or_else(|| plan.env.iter().find_map(|(name, value)| variable_wrong(name, value)))
        .map(|what| format!("plan {name:?}: {what}"))
}

fn word_wrong(what: &str, word: &str) -> Option<String> {
    let sound = !word.is_empty()
        && word.chars().count() <= MOST_PLAN_CHARS
        && !word.chars().any(|c| c.is_control() || c.is_whitespace());
    let expected = format!("expected up to {MOST_PLAN_CHARS} characters without spaces");
    (!sound).then(|| format!("{what} {word:?}: {expected}"))
}

fn variable_wrong(name: &str, value: &str) -> Option<String> {
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(of_name) {
        return Some(format!("env {name:?} is no name of a variable"));
    }
    if NOT_THEIRS.iter().any(|start| name.starts_with(start)) {
        return Some(format!("env {name}: variables that begin with INFILL_ or SLURM_ are set for you"));
    }
    value.contains('\0').then(|| format!("env {name} holds a NUL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
[[plan]]
name = "ddp"
args = ["--fp16"]

[[plan]]
name = "tp2"
nodes = "2-8"
types = ["a100"]
tp = 2
zero = 1
accumulate = 4
checkpointing = true
env = { NCCL_ALGO = "Ring" }
"#;

    #[test]
    fn a_file_says_what_the_daemon_and_the_command_are_told() {
        let plans = Plans::parse(FILE).unwrap();
        assert_eq!(plans.first(), "ddp");
        let sizes = |local_ranks| -> Vec<Option<String>> {
            let declared = plans.declared(local_ranks, None).unwrap();
            declared.iter().map(|p| p.sizes.as_ref().map(ToString::to_string)).collect()
        };
        assert_eq!(sizes(1), [None, Some("2,4,6,8".to_owned())]);
        assert_eq!(sizes(4), [None, Some("2-8".to_owned())]);
        let told: Vec<String> =
            plans.get("tp2").unwrap().variables(8).iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(
            told.join(" "),
            "NCCL_ALGO=Ring INFILL_DP=4 INFILL_TP=2 INFILL_PP=1 INFILL_ZERO=1 INFILL_OFFLOAD=0 INFILL_GA=4 INFILL_GC=1"
        );
        assert_eq!(Plans::named(&plans.to_json()).unwrap().plan, plans.plan, "a wing gets the same");
    }

    #[test]
    fn what_divides_a_model_has_sizes_that_it_divides() {
        let plan = |text: &str| Plans::parse(&format!("[[plan]]\nname='x'\n{text}")).unwrap();
        let sizes = |plans: &Plans, ranks, named: Option<&str>| {
            let named = named.map(|text| Sizes::parse(text).unwrap());
            plans.declared(ranks, named.as_ref()).unwrap()[0].sizes.as_ref().map(ToString::to_string)
        };
        let four = plan("tp=2\npp=2");
        assert_eq!(sizes(&four, 1, Some("1-9")).as_deref(), Some("4,8"));
        assert_eq!(sizes(&four, 2, Some("1-5")).as_deref(), Some("2,4"));
        assert_eq!(sizes(&four, 4, Some("1-5")), None, "all");
        let unnamed = four.declared(1, None).unwrap()[0].sizes.clone().unwrap();
        assert_eq!((unnamed.min(), unnamed.max()), (4, MOST_DIVIDED));
    }

    #[test]
    fn a_plan_that_can_run_at_no_size_is_refused_with_its_line() {
        let plans = Plans::parse("[[plan]]\nname='ddp'\n\n[[plan]]\nname='tp8'\ntp=8").unwrap();
        let sizes = Sizes::parse("1-4").unwrap();
        let expected = "plan \"tp8\": tp × pp = 8 processes share a model, and none of the sizes 1-4 has a multiple of \
                        that, with 1 on each; --nproc-per-node says how many a node has, else one for each GPU that it \
                        was given";
        let refused = plans.declared(1, Some(&sizes)).unwrap_err().to_string();
        assert_eq!(refused, format!("line 4: {expected}"));
        let of_json = Plans::named(&plans.to_json()).unwrap();
        assert_eq!(of_json.declared(1, Some(&sizes)).unwrap_err().to_string(), expected);
        // With torchrun as the command and eight GPUs on each node.
        assert!(plans.declared(8, Some(&sizes)).is_ok());
        assert!(plans.declared(1, None).is_ok());
    }

    #[test]
    fn nonsense_is_told_with_its_line() {
        let said = |text: &str| Plans::parse(text).unwrap_err().to_string();
        assert_eq!(said(""), "line 1: there is no [[plan]]");
        assert_eq!(
            said("[[plan]]\nname = 'a'\n\n[[plan]]\nname = 'a'"),
            "line 4: there is a plan \"a\" already"
        );
        for (text, want) in [
            ("tp = 0", "line 1: plan \"a\": tp = 0: expected 1 to 4096"),
            ("zero = 4", "stages 0 to 3"),
            ("types = ['']", "type of nodes \"\""),
            ("env = { '1X' = 'a' }", "no name of a variable"),
            ("env = { SLURM_JOB_ID = '1' }", "are set for you"),
            ("args = [\"a\\u0000\"]", "args hold a NUL"),
            ("nodes = '8-2'", "the minimum exceeds the maximum"),
            ("tensor = 2", "unknown field `tensor`"),
            ("tp = 'two'", "line 3"),
        ] {
            let said = said(&format!("[[plan]]\nname = \"a\"\n{text}"));
            assert!(said.contains(want), "{text}: {said}");
        }
        let many: String = (0..17).map(|i| format!("[[plan]]\nname = 'p{i}'\n")).collect();
        assert_eq!(said(&many), "line 33: there may be at most 16 plans");
        assert!(Plans::named("{\"plan\":[]}").is_err() && Plans::named("{").is_err());
        assert!(
            Plans::named("/no/such/file").unwrap_err().to_string().starts_with("cannot read /no/such/file")
        );
    }
}
