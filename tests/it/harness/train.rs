//! The tests' malleable jobs: `trainee.py` under `infill run`, and its log.

use infill_api::JobView;
use infill_model::MalleableState;
use serde::Deserialize;

use super::Site;

/// Flags of `infill run` for jobs that share nodes. With linear curves it would be equally good to give one
/// of them everything.
pub const SUBLINEAR: &str = "--grace 10 --curve 1:10,2:19,4:35,8:60";

/// A malleable job to submit.
#[derive(Clone, Debug)]
pub struct Train {
    user: &'static str,
    nodes: &'static str,
    partition: &'static str,
    run_flags: String,
    flags: String,
    sbatch: Vec<&'static str>,
    before: String,
    after: String,
    program: &'static str,
}

impl Train {
    /// A job of alice's that may run on `nodes` and counts forever.
    pub fn on(nodes: &'static str) -> Train {
        Train {
            user: "alice",
            nodes,
            partition: "infill",
            run_flags: "--grace 10".to_owned(),
            flags: String::new(),
            sbatch: Vec::new(),
            before: String::new(),
            after: String::new(),
            program: "trainee.py",
        }
    }

    /// Sets another owner.
    pub fn user(self, user: &'static str) -> Train {
        Train { user, ..self }
    }

    /// Makes it a job of the main queue.
    pub fn in_main_queue(self) -> Train {
        Train { partition: "main", ..self }
    }

    /// Adds flags of `infill run`.
    pub fn run(self, flags: &str) -> Train {
        Train { run_flags: flags.to_owned(), ..self }
    }

    /// Runs another program of this folder instead of `trainee.py`.
    pub fn program(self, program: &'static str) -> Train {
        Train { program, ..self }
    }

    /// Adds flags of `trainee.py`.
    pub fn flags(self, flags: &str) -> Train {
        Train { flags: format!("{} {flags}", self.flags), ..self }
    }

    /// Adds an option of `sbatch`.
    pub fn option(mut self, option: &'static str) -> Train {
        self.sbatch.push(option);
        self
    }

    /// Adds shell lines before `infill run`.
    pub fn before(self, lines: &str) -> Train {
        Train { before: lines.to_owned(), ..self }
    }

    /// Adds shell lines after `infill run`.
    pub fn after(self, lines: &str) -> Train {
        Train { after: lines.to_owned(), ..self }
    }

    /// Submits the job.
    pub fn submit(&self, site: &Site) -> u32 {
        let script = format!(
            "mkdir -p /scratch/$SLURM_JOB_ID\n{}\ninfill run {} -- \
             python3 /opt/infill/tests/it/{} --dir /scratch/$SLURM_JOB_ID {}\n{}",
            self.before, self.run_flags, self.program, self.flags, self.after
        );
        let nodes = format!("--nodes={}", self.nodes);
        let mut options = vec!["-p", self.partition, "-J", "train", &nodes];
        options.extend(&self.sbatch);
        site.sbatch(self.user, &options, &script)
    }
}

/// One line of the trainee's events.
#[derive(Clone, Debug, Deserialize)]
pub struct Event {
    /// `start`, `step`, `stop`, `fail`, `end`, `untold`.
    pub event: String,
    /// When.
    pub at: f64,
    /// Generation.
    pub generation: u64,
    /// Rank.
    pub rank: u32,
    /// Number of ranks.
    pub world: u32,
    /// Step.
    #[serde(default)]
    pub step: u64,
    /// Node.
    pub node: String,
    /// Process id, if the event has one.
    #[serde(default)]
    pub pid: u32,
}

/// A job's log.
#[derive(Clone, Debug)]
pub struct Diary(pub Vec<Event>);

impl Diary {
    /// The events of this kind.
    pub fn all(&self, event: &str) -> Vec<&Event> {
        self.0.iter().filter(|e| e.event == event).collect()
    }

    /// The last completed step.
    pub fn last_step(&self) -> u64 {
        self.all("step").last().map_or(0, |e| e.step)
    }

    /// For each generation after the first: the number of repeated steps.
    pub fn lost(&self) -> Vec<u64> {
        let mut lost = Vec::new();
        let mut reached = 0;
        for e in self.0.iter().filter(|e| e.rank == 0) {
            match e.event.as_str() {
                "start" if e.generation > 1 => lost.push(reached.max(e.step) - e.step),
                "step" => reached = e.step,
                _ => {}
            }
        }
        lost
    }

    /// The numbers of ranks of the generations, in order.
    pub fn worlds(&self) -> Vec<u32> {
        self.all("start").into_iter().filter(|e| e.rank == 0).map(|e| e.world).collect()
    }

    /// Checks that no two generations ran at the same time: each starts after all of the one before has
    /// stopped.
    pub fn assert_no_overlap(&self) {
        let mut newest = 0;
        for e in &self.0 {
            assert!(
                e.generation >= newest || e.event == "fail",
                "generation {} after {newest}: {e:?}",
                e.generation
            );
            newest = newest.max(e.generation);
        }
    }
}

impl Site {
    /// The job's log so far.
    pub fn diary(&self, job: u32) -> Diary {
        let path = self.scratch().join(format!("{job}/events"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        Diary(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Lets the job end at the next step.
    pub fn finish(&self, job: u32) {
        std::fs::write(self.scratch().join(format!("{job}/enough")), "").expect("cannot write into /scratch");
    }

    /// Lets the job end, and checks that nothing of it is left.
    pub fn completes(&self, job: u32) {
        self.finish(job);
        assert_eq!(self.end_of(job, 30.0), "COMPLETED 0:0");
        self.until("its wings to be gone", 15.0, || self.queue().iter().all(|j| j.lead() != Some(job)));
    }

    /// Waits until the job trains on this many nodes, and Slurm, the daemon and the job itself agree on it.
    pub fn until_trains_on(&self, job: u32, nodes: usize, secs: f64) -> JobView {
        self.wait(&format!("job {job} to train on {nodes} nodes"), secs, || {
            let view =
                self.view(job).filter(|v| v.state == MalleableState::Running && v.nodes.len() == nodes)?;
            let diary = self.diary(job);
            let begun = diary.0.iter().rposition(|e| e.event == "start" && e.rank == 0)?;
            let trains =
                diary.0[begun].world as usize == nodes && diary.0[begun..].iter().any(|e| e.event == "step");
            let mut theirs: Vec<String> = view.nodes.iter().map(|n| n.host().to_string()).collect();
            theirs.sort_unstable();
            (trains && theirs == self.nodes_of(job)).then_some(view.clone())
        })
    }

    /// Waits until the job has done `steps` more steps.
    pub fn until_trains(&self, job: u32, steps: u64, secs: f64) {
        let goal = self.diary(job).last_step() + steps;
        self.until(&format!("job {job} to reach step {goal}"), secs, || self.diary(job).last_step() >= goal);
    }
}
