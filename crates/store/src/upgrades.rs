//! Stores that earlier versions of the schema made. The present version must open each, with every row.

use super::port::{Measurement, RoundRecord, Store};
use super::schema::{POSTGRES, SQLITE, SchemaVersion};
use infill_model::{
    BatchMode, ChangeCost, EndedGap, EndedJob, ExecPlan, GenerationRecord, GenerationStop, JobId, JobVerdict,
    LeadRecord, MainDelay, MeasuredCosts, NodeName, NodeTimeKey, NodeTimeRow, NodeTimeUsage, NodeType,
    NodeUsageSecs, PackedHour, Plan, Profile, ProfileFilter, ProfileKey, RoundReport, SizePoint, SolveStatus,
    Spread, StopOutcome, UnixTime, UserId, WindowCause, WindowEnd,
};

/// The first version of the schema that can hold a row, and the statement that its daemon wrote. `BYTES`
/// stands for two bytes: each database has its own way to write them.
const ROWS: [(&str, &str); 20] = [
    ("start", r#"INSERT INTO leads (job, submitted_at, updated_at, ended, state) VALUES (7, 100, 110, FALSE, '{"n":1}')"#),
    ("start", r#"INSERT INTO leads (job, submitted_at, updated_at, ended, state) VALUES (8, 100, 110, FALSE, '{"n":2}')"#),
    ("start", r#"INSERT INTO generations (job, generation, started_at, nodes, why) VALUES (7, 1, 120, '["n1"]', 'start')"#),
    (
        "start",
        r#"INSERT INTO generations (job, generation, started_at, nodes, why) VALUES (7, 2, 130, '["n1","n2"]', 'grow')"#,
    ),
    (
        "start",
        r#"INSERT INTO rounds (planned_at, plan, report, acted) VALUES (140,
           '{"at":140,"jobs":[],"status":{"time_limit":{"gap":0.25}},"objective":12.5,"steps":[200]}',
           '{"at":140,"jobs":[{"job":7,"had":1,"gets":0,"why":"no gap is long enough"}],"nodes":[],"notes":["all is well"]}',
           TRUE)"#,
    ),
    (
        "start",
        r#"INSERT INTO gaps (node, node_type, started_at, ended_at, taken, block, planned)
           VALUES ('n1', 'cpu2', 90, 150, TRUE, 3, '{"known":{"at":160,"cause":{"planned_job":5}}}')"#,
    ),
    ("start", "INSERT INTO settings (name, content) VALUES ('control', 'paused')"),
    ("start", "INSERT INTO counters (name, next) VALUES ('orders', 42)"),
    (
        "profiles",
        r#"INSERT INTO profiles (owner, name, node_type, exec_plan, batch, points, costs, probes, probe_secs, jobs,
           job_name, updated_at) VALUES ('alice', 'bert', 'cpu2', 'default', 'global',
           '[{"nodes":2,"rate":19.5,"error":0.01,"secs":60.5,"step_samples":64.0,"at":170}]',
           '{"up":{"checkpoint_secs":1.0,"exit_secs":2.0,"start_secs":3.0,"warmup_secs":4.0,"count":5},
             "down":{"checkpoint_secs":0.0,"exit_secs":0.0,"start_secs":0.0,"warmup_secs":0.0,"count":0},
             "start":{"checkpoint_secs":0.0,"exit_secs":0.0,"start_secs":0.0,"warmup_secs":0.0,"count":0}}',
           2, 33.5, 4, 'train', 180)"#,
    ),
    (
        "profiles",
        "INSERT INTO measurements (profile, job, nodes, samples, secs, measured_at, probe)
         SELECT id, 7, 2, 780.5, 1.5, 190, TRUE FROM profiles WHERE name = 'bert'",
    ),
    ("stops", r#"UPDATE profiles SET stops = '[{"job":7,"generation":2,"secs":2.5,"end":"killed"}]'"#),
    ("owners", "UPDATE leads SET user_id = 1001 WHERE job = 7"),
    ("generations", "INSERT INTO generations (job, generation, started_at, nodes, why) VALUES (7, 1, 900, '[]', 'restart')"),
    ("unfit", "UPDATE profiles SET unfit = '[8]'"),
    (
        "ended",
        "INSERT INTO ended_jobs (job, submitted_at, ended_at, owner, account, name, command_hash, min_nodes, max_nodes,
         gpus_per_node, limit_secs, work_secs, said_secs, samples, secs, exit_code, why)
         VALUES (9, 10, 200, 'alice', 'physics', 'train', '0a1b', 1, 4, 8, 3600.5, 60.5, 70.5, 80.5, 90.5, -7, 'failed')",
    ),
    ("flat", "UPDATE ended_jobs SET flat_secs = 65.5"),
    ("hours", "INSERT INTO node_hours (began_at, packed) VALUES (3600, BYTES)"),
    (
        "spent",
        "INSERT INTO node_time (began_at, account, owner, node_type, useful_secs, rescale_secs, preempted_secs,
         probing_secs, gpu_secs) VALUES (3600, 'physics', 'alice', 'cpu2', 1.5, 2.5, 3.5, 4.5, 5.5)",
    ),
    ("spent", "INSERT INTO main_delays (job, started_at, secs, planned) VALUES (5, 210, 7.5, TRUE)"),
    (
        "spent",
        "INSERT INTO node_uses (began_at, main_secs, malleable_secs, idle_secs, wanted_secs, refused_secs, down_secs)
         VALUES (3600, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5)",
    ),
];

/// The SHA-256 of each file, as `sha256sum migrations/*/*` prints it.
const RELEASED: [(&str, &str); 19] = [
    ("sqlite/0001_start.sql", "12c69908630b0ff3d7cd5c23dc6fab39920a50fff790a03aed88707d16856134"),
    ("sqlite/0002_profiles.sql", "a92d2624d9bbb8fac536279f86bf9a859fa901f37c7baab78e25123378c1de9a"),
    ("sqlite/0003_stops.sql", "8eab70a0f8b935732a5818f57261fa55236c87d69b7d633acb32131d77c2b2bc"),
    ("sqlite/0004_owners.sql", "73b9a3c23315815189735d23d93439f3b3e93d4bf1a38eba34fe54bf5f645969"),
    ("sqlite/0005_generations.sql", "bdf6d12f1392e6ed8b810f4a29eb02fc1b0ca78a74b8d7abd92515d04cab5c33"),
    ("sqlite/0006_unfit.sql", "2d74e567a6221bdb1afece335c3dfe12d8a04d444a6b83a068a501ad9a353038"),
    ("sqlite/0007_ended.sql", "a756aff14330ea21bc63fe28fa509e0769d9c2660c83f176d47b4972eff6567f"),
    ("sqlite/0008_flat.sql", "594702d472fa36bed1e634e6c2be60d85c274218d45cc903be9b92dc992c2710"),
    ("sqlite/0009_hours.sql", "3f59fe0be1fc0aca5e1c9c182a43a8173b185fb53c57f03b9835dbc4030849d2"),
    ("sqlite/0010_spent.sql", "379d2f1d4d2431a2eecc7470113a44dd8928a629c5fd23c89b37f0fdeaf778b3"),
    ("postgres/0001_start.sql", "5a903091f58a80c3d70cdf797c29f09fa137539996a247f4797e3bf6c05c53f6"),
    ("postgres/0002_stops.sql", "8eab70a0f8b935732a5818f57261fa55236c87d69b7d633acb32131d77c2b2bc"),
    ("postgres/0003_owners.sql", "73b9a3c23315815189735d23d93439f3b3e93d4bf1a38eba34fe54bf5f645969"),
    ("postgres/0004_generations.sql", "0c57251c59aad902166c4cd5661cbf61a0b51d97bfe4d54fa08fbc8fbd11ee64"),
    ("postgres/0005_unfit.sql", "2d74e567a6221bdb1afece335c3dfe12d8a04d444a6b83a068a501ad9a353038"),
    ("postgres/0006_ended.sql", "a756aff14330ea21bc63fe28fa509e0769d9c2660c83f176d47b4972eff6567f"),
    ("postgres/0007_flat.sql", "594702d472fa36bed1e634e6c2be60d85c274218d45cc903be9b92dc992c2710"),
    ("postgres/0008_hours.sql", "b981a5e7565fd4d8e44be8e35cd0739a97739e9290f1e0d3ed54641dc4fc6426"),
    ("postgres/0009_spent.sql", "379d2f1d4d2431a2eecc7470113a44dd8928a629c5fd23c89b37f0fdeaf778b3"),
];

#[test]
fn a_released_version_of_the_schema_is_never_edited() {
    use sha2::Digest as _;
    let hex = |text: &str| {
        let digest = sha2::Sha256::digest(text.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let present: Vec<(&str, String)> =
        SQLITE.iter().chain(&POSTGRES).map(|(name, text)| (*name, hex(text))).collect();
    for (name, released) in RELEASED {
        let found = present.iter().find(|(other, _)| *other == name).map(|(_, hash)| hash.as_str());
        let rule = "was released, and a store that has it refuses an edited one: add a new migration";
        assert_eq!(found, Some(released), "migrations/{name} {rule}");
    }
    for (name, hash) in present {
        let is_listed = RELEASED.iter().any(|(other, _)| *other == name);
        assert!(is_listed, "migrations/{name} is new: add it to RELEASED with {hash}");
    }
}

/// A store as these versions of the schema make it.
pub(super) struct OldStore<'a>(&'a [SchemaVersion]);

/// One store for each version, the oldest first.
pub(super) fn old_stores(all: &[SchemaVersion]) -> impl Iterator<Item = OldStore<'_>> {
    (1..=all.len()).map(|count| OldStore(&all[..count]))
}

impl OldStore<'_> {
    /// Its versions of the schema.
    pub(super) fn versions(&self) -> &[SchemaVersion] {
        self.0
    }

    fn is_sqlite(&self) -> bool {
        self.0.iter().all(|(name, _)| name.starts_with("sqlite/"))
    }

    fn has(&self, version: &str) -> bool {
        // PostgreSQL's first version has profiles.
        if version == "profiles" && !self.is_sqlite() {
            return true;
        }
        let suffix = format!("_{version}.sql");
        self.0.iter().any(|(name, _)| name.ends_with(&suffix))
    }

    /// The statements with which its daemon wrote its rows.
    pub(super) fn statements(&self) -> Vec<String> {
        let bytes = if self.is_sqlite() { "X'00FF'" } else { r"'\x00ff'::bytea" };
        let written = ROWS.iter().filter(|(version, _)| self.has(version));
        written.map(|(_, statement)| statement.replace("BYTES", bytes)).collect()
    }

    /// Panics if the present version does not read all of these rows.
    pub(super) async fn check(&self, store: &dyn Store) {
        let made_by = self.0[self.0.len() - 1].0;
        assert_eq!(store.open_leads().await.unwrap(), self.leads(), "{made_by}");
        assert_eq!(store.list_generations(JobId(7)).await.unwrap(), self.generations(), "{made_by}");
        assert_eq!(store.round_at(UnixTime(140)).await.unwrap(), Some(round()), "{made_by}");
        assert_eq!(store.recent_gaps(9).await.unwrap(), [gap()], "{made_by}");
        assert_eq!(store.get_setting("control").await.unwrap().as_deref(), Some("paused"), "{made_by}");
        assert_eq!(store.next_wing_numbers(1, 0).await.unwrap(), 42, "{made_by}");
        let profiles = store.find_profiles(&ProfileFilter::default(), 9).await.unwrap();
        assert_eq!(profiles, self.once("profiles", || self.profile()), "{made_by}");
        let measurements = store.recent_measurements(&key(), 9).await.unwrap();
        assert_eq!(measurements, self.once("profiles", measurement), "{made_by}");
        assert_eq!(
            store.recent_ended_jobs(9).await.unwrap(),
            self.once("ended", || self.ended_job()),
            "{made_by}"
        );
        let from = UnixTime(0);
        let to = UnixTime(i64::MAX);
        assert_eq!(store.hours_between(from, to, 9).await.unwrap(), self.once("hours", hour), "{made_by}");
        assert_eq!(store.sum_node_time(from, to).await.unwrap(), self.once("spent", spent), "{made_by}");
        assert_eq!(store.delays_between(from, to, 9).await.unwrap(), self.once("spent", delay), "{made_by}");
        let uses = store.usage_by_hour(from, to, 9).await.unwrap();
        let used = || (UnixTime(3600), NodeUsageSecs::from_array([1.5, 2.5, 3.5, 4.5, 5.5, 6.5]));
        assert_eq!(uses, self.once("spent", used), "{made_by}");
    }

    /// The row if this store's schema has this version; else nothing.
    fn once<T>(&self, version: &str, row: impl Fn() -> T) -> Vec<T> {
        self.has(version).then(row).into_iter().collect()
    }

    fn leads(&self) -> [LeadRecord; 2] {
        [(7, 1), (8, 2)].map(|(job, n)| LeadRecord {
            job: JobId(job),
            submitted_at: UnixTime(100),
            user_id: (job == 7 && self.has("owners")).then_some(UserId(1001)),
            updated_at: UnixTime(110),
            ended: false,
            state: serde_json::json!({ "n": n }),
        })
    }

    fn generations(&self) -> Vec<GenerationRecord> {
        let generation = |generation, at, nodes: &[&str], why: &str| GenerationRecord {
            job: JobId(7),
            generation,
            started_at: UnixTime(at),
            nodes: nodes.iter().map(|node| NodeName::new(*node)).collect(),
            why: why.to_owned(),
        };
        let first = [generation(1, 120, &["n1"], "start"), generation(2, 130, &["n1", "n2"], "grow")];
        first.into_iter().chain(self.once("generations", || generation(1, 900, &[], "restart"))).collect()
    }

    fn profile(&self) -> Profile {
        let up =
            ChangeCost { checkpoint_secs: 1.0, exit_secs: 2.0, start_secs: 3.0, warmup_secs: 4.0, count: 5 };
        let point = SizePoint {
            nodes: 2,
            rate: 19.5,
            error: 0.01,
            secs: 60.5,
            step_samples: Some(64.0),
            hosts: None,
            spread: Spread::Near,
            over_hosts: Spread::Near,
            at: UnixTime(170),
        };
        Profile {
            points: vec![point],
            costs: MeasuredCosts { up, ..MeasuredCosts::default() },
            stops: self.once("stops", || GenerationStop {
                job: JobId(7),
                generation: 2,
                secs: 2.5,
                end: StopOutcome::Killed,
            }),
            unfit: self.once("unfit", || 8),
            probes: 2,
            probe_secs: 33.5,
            jobs: 4,
            job_name: "train".to_owned(),
            updated_at: UnixTime(180),
            ..Profile::new(key())
        }
    }

    fn ended_job(&self) -> EndedJob {
        EndedJob {
            job: JobId(9),
            submitted_at: UnixTime(10),
            ended_at: UnixTime(200),
            user: "alice".to_owned(),
            account: "physics".to_owned(),
            name: "train".to_owned(),
            command_hash: "0a1b".to_owned(),
            min_nodes: 1,
            max_nodes: 4,
            gpus_per_node: 8,
            limit_secs: Some(3600.5),
            work_secs: 60.5,
            said_secs: Some(70.5),
            flat_secs: self.has("flat").then_some(65.5),
            samples: 80.5,
            secs: 90.5,
            exit_code: Some(-7),
            why: "failed".to_owned(),
        }
    }
}

fn round() -> RoundRecord {
    let at = UnixTime(140);
    let plan = Plan {
        at,
        jobs: Vec::new(),
        status: SolveStatus::TimeLimit { gap: Some(0.25) },
        proof: None,
        objective: 12.5,
        steps: vec![UnixTime(200)],
    };
    let why = "no gap is long enough".to_owned().into();
    let verdict = JobVerdict { job: JobId(7), had: 1, gets: 0, why, hosts: None, guarantee: None };
    let notes = vec!["all is well".to_owned().into()];
    let report = RoundReport { at, jobs: vec![verdict], notes, ..RoundReport::default() };
    RoundRecord { at, plan, report, acted: true }
}

fn gap() -> EndedGap {
    EndedGap {
        node: NodeName::new("n1"),
        node_type: NodeType::new("cpu2"),
        start: UnixTime(90),
        end: UnixTime(150),
        taken: true,
        block: 3,
        planned: WindowEnd::Known { at: UnixTime(160), cause: WindowCause::PlannedJob(JobId(5)) },
    }
}

fn key() -> ProfileKey {
    ProfileKey {
        user: "alice".to_owned(),
        name: "bert".to_owned(),
        node_type: NodeType::new("cpu2"),
        exec_plan: ExecPlan::default(),
        batch: BatchMode::Global,
    }
}

fn measurement() -> Measurement {
    Measurement {
        key: key(),
        job: JobId(7),
        nodes: 2,
        samples: 780.5,
        secs: 1.5,
        probe: true,
        at: UnixTime(190),
    }
}

fn hour() -> PackedHour {
    PackedHour { from: UnixTime(3600), packed: vec![0, 255] }
}

fn spent() -> NodeTimeRow {
    let key = NodeTimeKey {
        from: UnixTime(3600),
        account: "physics".to_owned(),
        user: "alice".to_owned(),
        node_type: "cpu2".to_owned(),
    };
    let spent = NodeTimeUsage {
        useful_secs: 1.5,
        rescale_secs: 2.5,
        preempted_secs: 3.5,
        probing_secs: 4.5,
        gpu_secs: 5.5,
    };
    NodeTimeRow { key, spent }
}

fn delay() -> MainDelay {
    MainDelay { job: JobId(5), at: UnixTime(210), secs: 7.5, planned: true }
}
