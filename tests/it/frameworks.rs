//! The programs of `examples/frameworks`. Each changes its size four times, loses no step, and ends with the
//! loss of an undisturbed run. `tests/run.sh --frameworks` runs them all, and writes the table in
//! `docs/frameworks.md` from what it saw; `tests/run.sh --all` runs three.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::harness::Site;
use crate::harness::cluster::repository;
use infill_testkit::skips::skip_test;

/// Steps of a training: more than it makes before the last change, on a busy machine, too.
const STEPS: u64 = 800;

/// Seconds of a step on one node.
const PACE: f64 = 0.8;

/// Steps at one size before the next change.
const STEPS_BETWEEN: usize = 4;

/// Numbers of nodes, one after another.
const SIZES: [u32; 5] = [4, 2, 4, 1, 4];

/// Most that the losses of both runs may differ by. Ranks sum 64-bit numbers in another order.
const TOLERANCE: f64 = 1e-6;

/// Time for a change, seconds. Four interpreters that import a framework share two cores.
const CHANGE_SECS: f64 = 150.0;

/// Time for the undisturbed training, seconds.
const ALONE_SECS: f64 = 240.0;

/// The lines of `docs/frameworks.md` between which the table is.
const BEGIN: &str = "<!-- written by tests/run.sh --frameworks -->";
const END: &str = "<!-- end -->";

/// A program of `examples/frameworks`.
struct Recipe {
    /// Its file, without the ending, and the name of its test.
    name: &'static str,
    /// Whether it needs more than the root's PyTorch.
    needs_frameworks: bool,
}

impl Recipe {
    const fn new(name: &'static str) -> Recipe {
        Recipe { name, needs_frameworks: true }
    }

    fn program(&self) -> String {
        format!("/opt/infill/examples/frameworks/{}.py", self.name)
    }
}

/// What a test saw: a row of the table.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    framework: String,
    version: String,
    test: String,
    changes: usize,
    /// The median over the changes, seconds.
    pause_secs: f64,
    losses_apart: f64,
}

impl Seen {
    fn row(&self) -> String {
        let Seen { framework, version, test, changes, pause_secs, losses_apart } = self;
        let apart = if *losses_apart == 0.0 { "0".to_owned() } else { format!("{losses_apart:.0e}") };
        format!("| {framework} | {version} | restart | {changes} | {pause_secs:.1} s | {apart} | `{test}` |")
    }
}

/// The lines of rank 0, before which the agent puts its number.
fn rank_0(output: &str) -> impl DoubleEndedIterator<Item = &str> {
    output.lines().map(|line| line.strip_prefix("[0] ").unwrap_or(line))
}

/// A line `step=7 world=2 time=12.5`.
#[derive(Clone, Copy, Debug)]
struct Step {
    step: u64,
    world: u32,
    time: f64,
}

/// A line `JAX 0.10 loss=0.25`.
#[derive(Debug, PartialEq)]
struct Ending {
    framework: String,
    version: String,
    loss: f64,
}

fn steps(output: &str) -> Vec<Step> {
    let read = |line: &str| {
        let words: BTreeMap<&str, &str> = line.split(' ').filter_map(|word| word.split_once('=')).collect();
        let number = |name| words.get(name)?.parse::<f64>().ok();
        Some(Step { step: number("step")? as u64, world: number("world")? as u32, time: number("time")? })
    };
    rank_0(output).filter(|line| line.starts_with("step=")).filter_map(read).collect()
}

fn ending(output: &str) -> Option<Ending> {
    rank_0(output).rev().find_map(|line| {
        let mut words = line.rsplitn(3, ' ');
        let loss = words.next()?.strip_prefix("loss=")?.parse().ok()?;
        let version = words.next()?.to_owned();
        Some(Ending { framework: words.next()?.to_owned(), version, loss })
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Seconds without a step at each change of size, less a usual step.
fn pauses(steps: &[Step]) -> Vec<f64> {
    let between = |is_change: bool| {
        let two = steps.windows(2).filter(move |two| (two[0].world != two[1].world) == is_change);
        two.map(|two| two[1].time - two[0].time)
    };
    let usual = median(between(false).collect());
    between(true).map(|secs| secs - usual).collect()
}

/// The folder with the frameworks, which is fetched the first time; `None` without a network.
fn frameworks() -> Option<PathBuf> {
    let script = repository().join("tests/python.sh");
    let output = Command::new(script).arg("--frameworks").stderr(Stdio::inherit()).output().ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    (output.status.success() && path.is_dir()).then_some(path)
}

/// Shows the frameworks to the cluster's users, who cannot write there.
fn show(frameworks: &Path, site: &Site) {
    let to = site.scratch().join("frameworks");
    let copied = |how| {
        let done = Command::new("cp").arg(how).arg(frameworks).arg(&to).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    // Links take no space, but need the same file system.
    assert!(copied("-al") || copied("-a"), "cannot copy {}", frameworks.display());
}

/// The first lines of a script that runs the recipe in a folder of its own.
fn preparation(folder: &str) -> String {
    format!(
        "mkdir -p /scratch/{folder} && cd /scratch/{folder} || exit 1\n\
         export PYTHONPATH=/opt/infill/contrib/python/src:/opt/infill/examples/frameworks:/scratch/frameworks\n\
         export STEPS={STEPS} USE_LIBUV=0 KERAS_BACKEND=jax OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1\n"
    )
}

/// Trains undisturbed on one node, as a job of the main queue.
fn undisturbed(site: &Site, recipe: &Recipe) -> Ending {
    let script = format!(
        "{}export RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT={}\n\
         exec python3 {}",
        preparation("alone"),
        site.port() + 1,
        recipe.program()
    );
    let options = ["-p", "main", "-J", "alone", "--nodes=1", "--chdir=/tmp"];
    let job = site.sbatch("alice", &options, &script);
    let end = site.end_of(job, ALONE_SECS);
    let output = output_of(site, job);
    assert_eq!((end.as_str(), steps(&output).len() as u64), ("COMPLETED 0:0", STEPS), "{output}");
    ending(&output).unwrap_or_else(|| panic!("the undisturbed training says no loss: {output}"))
}

fn output_of(site: &Site, job: u32) -> String {
    std::fs::read_to_string(site.scratch().join(format!("{job}.out"))).unwrap_or_default()
}

struct Training<'a> {
    site: &'a Site,
    job: u32,
}

impl<'a> Training<'a> {
    fn submit(site: &'a Site, recipe: &Recipe) -> Training<'a> {
        let script = format!(
            "{}export PACE={PACE}\ninfill run --grace 60 --curve 1:10,2:19,4:36 -- python3 {}",
            preparation("job"),
            recipe.program()
        );
        let options =
            ["-p", "infill", "-J", recipe.name, "--chdir=/tmp", "--nodes=1", "--comment=infill:nodes=1,2,4"];
        Training { site, job: site.sbatch("alice", &options, &script) }
    }

    fn output(&self) -> String {
        output_of(self.site, self.job)
    }

    /// Waits until it has made some steps on this many nodes.
    fn until_world(&self, world: u32) {
        self.site.until(&format!("the training to be on {world} nodes"), CHANGE_SECS, || {
            let steps = steps(&self.output());
            steps.iter().rev().take_while(|step| step.world == world).count() >= STEPS_BETWEEN
        });
    }

    /// Takes it through the sizes by main jobs on the other nodes.
    fn change_sizes(&self) {
        let mut main = None;
        for world in SIZES {
            if let Some(main) = main.take() {
                self.site.must("root", &["scancel", &u32::to_string(&main)]);
            }
            if world < 4 {
                let lead = self.site.view(self.job).expect("the daemon knows it").nodes[0].to_string();
                let words = [format!("--nodes={}", 8 - world), format!("--exclude={lead}")];
                main = Some(self.site.main_job(1800, &[&words[0], &words[1]]).id);
            }
            self.until_world(world);
        }
    }
}

fn check(recipe: &Recipe) {
    let site = Site::with(|s| s.set("agent.preempt_leave_secs", 20.0));
    if recipe.needs_frameworks {
        let Some(folder) = frameworks() else {
            return skip_test("the frameworks could not be fetched (tests/python.sh --frameworks)");
        };
        show(&folder, &site);
    }
    let alone = undisturbed(&site, recipe);
    let training = Training::submit(&site, recipe);
    training.change_sizes();
    let view = site.view(training.job).expect("the daemon knows it");
    assert!(view.rescales >= 4 && view.restarts == 0, "{view:?}");
    std::fs::write(site.scratch().join("job/hurry"), "").expect("cannot write into /scratch");
    assert_eq!(site.end_of(training.job, 240.0), "COMPLETED 0:0", "{}", training.output());

    let output = training.output();
    let steps = steps(&output);
    let made: Vec<u64> = steps.iter().map(|step| step.step).collect();
    assert!(made.iter().copied().eq(1..=STEPS), "a step was left out or made again: {made:?}");
    let end = ending(&output).expect("it says how it ended");
    let apart = (end.loss - alone.loss).abs();
    assert!(apart < TOLERANCE, "the losses are {apart:e} apart: {end:?}, undisturbed {alone:?}");
    let pauses = pauses(&steps);
    assert!(pauses.len() >= SIZES.len() - 1, "changes of size: {pauses:?}");
    record(&Seen {
        framework: end.framework,
        version: end.version.split('+').next().unwrap_or_default().to_owned(),
        test: format!("frameworks::{}", recipe.name),
        changes: pauses.len(),
        pause_secs: median(pauses),
        losses_apart: apart,
    });
}

fn seen_folder() -> PathBuf {
    repository().join("target/frameworks")
}

fn record(seen: &Seen) {
    eprintln!("{}", seen.row());
    let text = serde_json::to_string(seen).expect("a row is JSON");
    std::fs::create_dir_all(seen_folder()).expect("cannot make a folder in target");
    let path = seen_folder().join(format!("{}.json", seen.test.replace("::", ".")));
    std::fs::write(path, text).expect("cannot write what was seen");
}

/// The document with these rows in its table. Rows of tests that did not run stay.
fn with_rows(document: &str, seen: &[Seen]) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (table, after) = rest.split_once(END)?;
    let lines: Vec<&str> = table.lines().filter(|line| !line.is_empty()).collect();
    let (head, old) = lines.split_at_checked(2)?;
    let replaced = |row: &&&str| !seen.iter().any(|s| row.contains(&format!("`{}`", s.test)));
    let mut rows: Vec<String> = old.iter().filter(replaced).map(|row| (*row).to_owned()).collect();
    rows.extend(seen.iter().map(Seen::row));
    rows.sort();
    Some(format!("{before}{BEGIN}\n\n{}\n{}\n\n{END}{after}", head.join("\n"), rows.join("\n")))
}

#[test]
fn ddp() {
    check(&Recipe { needs_frameworks: false, ..Recipe::new("ddp") });
}

#[test]
fn fsdp2_dcp() {
    check(&Recipe { needs_frameworks: false, ..Recipe::new("fsdp2_dcp") });
}

#[test]
fn jax_orbax() {
    check(&Recipe::new("jax_orbax"));
}

#[test]
#[ignore = "tests/run.sh --frameworks"]
fn with_lightning() {
    check(&Recipe::new("with_lightning"));
}

#[test]
#[ignore = "tests/run.sh --frameworks"]
fn hf_trainer() {
    check(&Recipe::new("hf_trainer"));
}

#[test]
#[ignore = "tests/run.sh --frameworks"]
fn with_accelerate() {
    check(&Recipe::new("with_accelerate"));
}

#[test]
#[ignore = "tests/run.sh --frameworks"]
fn keras_jax() {
    check(&Recipe::new("keras_jax"));
}

/// Not a test: writes what the tests saw into the document.
#[test]
#[ignore = "tests/run.sh --frameworks"]
fn the_table_of_the_document() {
    let read = |path: PathBuf| serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok();
    let files = std::fs::read_dir(seen_folder()).expect("a test has seen something");
    let seen: Vec<Seen> = files.flatten().filter_map(|file| read(file.path())).collect();
    let path = repository().join("docs/frameworks.md");
    let document = std::fs::read_to_string(&path).expect("the document");
    let written = with_rows(&document, &seen).expect("the document has a place for the table");
    std::fs::write(path, written).expect("cannot write the document");
}

#[test]
fn what_was_seen_replaces_the_rows_of_the_same_tests() {
    let seen = Seen {
        framework: "B".into(),
        version: "2".into(),
        test: "frameworks::b".into(),
        changes: 4,
        pause_secs: 1.25,
        losses_apart: 3e-12,
    };
    let text = format!(
        "x\n{BEGIN}\n\n| h |\n|---|\n| A | `frameworks::a` |\n| B | 1 | `frameworks::b` |\n\n{END}\ny"
    );
    let row = "| B | 2 | restart | 4 | 1.2 s | 3e-12 | `frameworks::b` |";
    let expected = format!("x\n{BEGIN}\n\n| h |\n|---|\n| A | `frameworks::a` |\n{row}\n\n{END}\ny");
    assert_eq!(with_rows(&text, &[seen]), Some(expected));
}

#[test]
fn the_lines_of_a_program_are_read() {
    let output = "noise\nstep=1 world=4 time=1.0\n[0] step=2 world=4 time=1.5\n[0] step=3 world=2 time=4.0\n\
                  [0] A + B 1.2 loss=0.5\n";
    assert_eq!(pauses(&steps(output)), [2.0]);
    let expected = Ending { framework: "A + B".into(), version: "1.2".into(), loss: 0.5 };
    assert_eq!(ending(output), Some(expected));
}
