//! Runs every infill command in README and the guides as it is written there, on a real cluster, with files
//! of the names used there. It finds commands that no test runs.

use std::collections::BTreeMap;
use std::path::Path;

use crate::harness::{Site, Train};

/// The guides, including README.
const GUIDES: [(&str, &str); 8] = [
    ("README.md", include_str!("../../README.md")),
    ("docs/users.md", include_str!("../../docs/users.md")),
    ("docs/administrators.md", include_str!("../../docs/administrators.md")),
    ("docs/reference.md", include_str!("../../docs/reference.md")),
    ("docs/how-to/watch.md", include_str!("../../docs/how-to/watch.md")),
    ("docs/how-to/port-a-script.md", include_str!("../../docs/how-to/port-a-script.md")),
    ("docs/how-to/why-a-job-waits.md", include_str!("../../docs/how-to/why-a-job-waits.md")),
    ("docs/troubleshooting.md", include_str!("../../docs/troubleshooting.md")),
];

/// Names of the guides, with their names in this test. `JOB` is a job that trains.
const NAMES: [(&str, &str); 2] = [("NODE", "n1"), ("TYPE", "cpu")];

/// How a command is run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// In a shell, by this user. It must end with 0.
    By(&'static str),
    /// In a shell, by this user. It runs until it is stopped.
    Watches,
    /// As part of the batch script around it, which trains.
    Script,
    /// Elsewhere: it needs published data, or a program that a test cluster lacks. The text says where it is
    /// run.
    Elsewhere(&'static str),
}

/// How commands with these beginnings are run. The first match counts.
const WAYS: [(&str, Way); 34] = [
    ("infill observe ", Way::Watches),
    ("infill rehearse ", Way::Elsewhere("tests/it: rehearsal::the_example_is_ready…")),
    ("infill run --on-node ", Way::Elsewhere("tests/it: node_setup::each_node_is_prepared…")),
    ("infill run --container ", Way::Elsewhere("tests/it: containers::a_command_in_a_container…")),
    (
        "infill run --layers ",
        Way::Elsewhere("contrib/python/tests/test_layers.py, cargo test -p infill-agent layers"),
    ),
    (
        "infill run --plans plans.toml ",
        Way::Elsewhere("tests/it: advisor::the_right_plan_on_the_right_nodes…"),
    ),
    ("infill run --signal TERM --progress-regex ", Way::Elsewhere("cargo test -p infill-agent progress")),
    ("infill run ", Way::Script),
    ("infill python install", Way::Elsewhere("contrib/packaging/check, in an environment of each Debian")),
    ("infill status --watch", Way::Watches),
    ("infill status", Way::By("alice")),
    ("infill profiles list", Way::By("alice")),
    ("infill profiles show ", Way::By("alice")),
    ("infill gaps", Way::By("alice")),
    ("infill simulate --log ", Way::By("alice")),
    ("infill simulate --machine 468x1 ", Way::By("alice")),
    (
        "infill simulate --machine 8x8:a800 ",
        Way::Elsewhere("cargo test -p infill-traces tests::plans, the benches"),
    ),
    ("infill simulate --idle summit", Way::Elsewhere("cargo bench --bench sim")),
    ("infill plans suggest ", Way::By("alice")),
    ("infill profiles export ", Way::By("alice")),
    ("infill profiles forget -n ", Way::By("alice")),
    ("infill profiles forget ", Way::By("root")),
    ("infill doctor", Way::By("root")),
    ("infill pause", Way::By("root")),
    ("infill drain", Way::By("root")),
    ("infill resume", Way::By("root")),
    ("infill report ", Way::By("root")),
    ("infill web", Way::By("alice")),
    ("infill history import ", Way::By("root")),
    ("infill nodes", Way::By("alice")),
    ("infill rounds", Way::By("alice")),
    ("infill explain n1 --at ", Way::Elsewhere("tests/it: commands::explain…")),
    ("infill explain ", Way::By("alice")),
    ("TZ=UTC sacct ", Way::By("root")),
];

/// The commands of a guide, in order: indented lines that begin with one of our programs or Slurm's.
/// Continued lines are joined.
fn commands(guide: &str) -> Vec<String> {
    let joined = guide.replace("\\\n", " ");
    let lines =
        joined.lines().filter_map(|line| line.strip_prefix("    ")).filter(|line| !line.starts_with(' '));
    let ours = lines.filter(|line| line.starts_with("infill ") || line.starts_with("TZ=UTC "));
    // The rest of the line is a comment for people.
    ours.map(|line| {
        line.split("  #").next().unwrap_or(line).split(" # ").next().unwrap_or(line).trim().to_owned()
    })
    .collect()
}

fn way(command: &str) -> Way {
    let found = WAYS.iter().find(|(begin, _)| command.starts_with(begin) || command == begin.trim());
    found.unwrap_or_else(|| panic!("no test runs {command:?}")).1
}

/// Files with the names used in the guides.
fn write_files(dir: &Path) {
    let history = "submit_s,duration_s,user,name,nodes,gpus\n0,100,ann,a,1,1\n10,300,ben,b,1,2\n20,50,ann,a,1,1\n400,90,ann,a,1,1\n";
    let files = BTreeMap::from([
        ("curves.csv", "nodes,throughput\n1,10\n2,19\n4,35\n8,60\n"),
        ("history.csv", history),
        ("train.py", "import time\ntime.sleep(3)\n"),
    ]);
    for (name, text) in files {
        std::fs::write(dir.join(name), text).unwrap_or_else(|e| panic!("cannot write {name}: {e}"));
    }
}

/// The batch scripts of a guide: the lines around each `infill run`, starting at the first `#SBATCH`.
pub fn scripts(guide: &str) -> Vec<String> {
    let blocks = guide.split("\n\n");
    blocks
        .filter(|block| block.contains("    #SBATCH") && block.contains("infill run"))
        .map(|block| {
            let lines: Vec<&str> = block.lines().filter_map(|line| line.strip_prefix("    ")).collect();
            format!("#!/bin/bash\n{}\n", lines.join("\n").trim_start_matches("#!/bin/bash\n"))
        })
        .collect()
}

#[test]
fn every_command_of_the_guides_runs() {
    let site = Site::acting();
    let dir = site.scratch().join("guides");
    std::fs::create_dir_all(&dir).expect("a directory");
    write_files(&dir);
    site.must("root", &["chmod", "777", "/scratch/guides"]);
    let job = Train::on("1-2").run("--profile bert").submit(&site);
    site.until_trains_on(job, 2, 60.0);
    let mut ran = 0;
    for (guide, text) in GUIDES {
        for command in commands(text) {
            let job = job.to_string();
            let names = NAMES.into_iter().chain([("JOB", job.as_str())]);
            let command = names.fold(command, |text, (name, here)| {
                text.split(' ')
                    .map(|word| if word == name { here } else { word })
                    .collect::<Vec<_>>()
                    .join(" ")
            });
            let shell = |user: &str, line: &str| {
                let out = site.exec(user, &["sh", "-c", &format!("cd /scratch/guides && {line}")]);
                (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
            };
            let (code, said) = match way(&command) {
                Way::By(user) => shell(user, &command),
                Way::Watches => {
                    match shell("alice", &format!("timeout -s INT 2 {command} >/dev/null </dev/null")) {
                        (Some(0 | 124 | 130), said) => (Some(0), said),
                        other => other,
                    }
                }
                Way::Script | Way::Elsewhere(_) => continue,
            };
            // Doctor finds what a test cluster lacks.
            let is_well = code == Some(0) || (command.starts_with("infill doctor") && code == Some(1));
            assert!(is_well, "{guide}: {command}: {code:?} {said}");
            ran += 1;
        }
    }
    assert!(ran > 20, "only {ran} commands were found");
}

#[test]
fn every_batch_script_of_the_guides_trains() {
    let site = Site::acting();
    let dir = site.scratch().join("guides");
    std::fs::create_dir_all(&dir).expect("a directory");
    write_files(&dir);
    let all: Vec<String> = GUIDES.iter().flat_map(|(_, text)| scripts(text)).collect();
    for command in GUIDES.iter().flat_map(|(_, text)| commands(text)).filter(|c| way(c) == Way::Script) {
        assert!(all.iter().any(|script| script.contains(&command)), "no script has {command:?}");
    }
    assert!(all.len() >= 3, "{all:?}");
    for (i, script) in all.iter().enumerate() {
        let name = format!("/scratch/guides/script{i}.sh");
        std::fs::write(dir.join(format!("script{i}.sh")), script.replace("python ", "python3 "))
            .expect("a script");
        let out = site
            .must("alice", &["sbatch", "--parsable", "--chdir=/scratch/guides", "--output=/dev/null", &name]);
        let job: u32 = out.trim().parse().unwrap_or_else(|_| panic!("no number: {out}"));
        assert!(site.end_of(job, 90.0).contains("COMPLETED"), "{script}");
    }
}
