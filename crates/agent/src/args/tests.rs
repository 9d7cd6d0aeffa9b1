//! Tests of the flags of `infill run`.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    common: CommandArgs,
}

#[test]
fn a_command_that_names_files_needs_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("train.py"), "").unwrap();
    for (line, want) in [
        ("python train.py", true),
        ("python ./train.py --lr 1", true),
        ("sh -c true --config=train.py", true),
        ("python /home/alice/train.py", false),
        ("python -m train --dir= out", false),
    ] {
        let words = ["infill", "--"].into_iter().chain(line.split(' '));
        assert_eq!(Flags::parse_from(words).common.names_files_in(dir.path()), want, "{line}");
    }
}

#[derive(Parser)]
struct Lead {
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    common: CommandArgs,
}

/// Whether the declaration for the daemon has a model, and its GPUs per node.
fn declared_model_and_gpus(line: &str) -> (bool, Option<u32>) {
    let json = r#"--plans={"model":{"params_mi":7},"plan":[{"name":"a"}]}"#;
    let words = line.split(' ').map(|word| if word == "--plans" { json } else { word });
    let lead = Lead::parse_from(["infill"].into_iter().chain(words));
    let spec = lead.spec.to_spec(&lead.common).unwrap();
    (spec.model.is_some(), spec.gpus_per_node)
}

#[test]
fn the_declaration_has_the_model_and_the_number_of_ranks_on_a_node() {
    for (line, want) in [
        ("--plans --nproc-per-node=4 -- python train.py", (true, Some(4))),
        ("--plans --nproc-per-node=4 -- torchrun train.py", (true, Some(4))),
        ("--plans -- torchrun --nproc-per-node=2 train.py", (true, Some(2))),
        ("--plans --nproc-per-node=4 -- torchrun --nproc-per-node=2 train.py", (true, Some(2))),
        ("--plans --extend=1-4 --nproc-per-node=4 -- python train.py", (true, None)),
        ("--nproc-per-node=4 -- python train.py", (false, None)),
    ] {
        assert_eq!(declared_model_and_gpus(line), want, "{line}");
    }
}

#[test]
fn at_least_takes_a_rate_or_a_requested_size() {
    let declare = |flag: &str| {
        let words = ["infill", flag, "--", "python", "train.py"];
        let lead = Lead::try_parse_from(words).map_err(|e| e.to_string())?;
        let spec = lead.spec.to_spec(&lead.common).unwrap();
        Ok((spec.at_least, spec.as_asked.map(|asked| asked.nodes)))
    };
    let declared =
        |flag: &str| declare(flag).map_err(|e: String| e.lines().next().unwrap_or_default().to_owned());
    assert_eq!(declared("--at-least=40.5"), Ok((Some(40.5), None)));
    assert_eq!(declared("--at-least=asked"), Ok((None, Some(None))));
    assert_eq!(declared("--at-least=asked:4"), Ok((None, Some(Some(4)))));
    assert_eq!(declared("--at-least= 400 "), Ok((Some(400.0), None)));
    for wrong in [
        "", "0", "-3", "inf", "nan", "1e999", "fast", "asked:", "asked:0", "asked:-1", "asked4", "askedfor",
        "Asked",
    ] {
        let flag = format!("--at-least={wrong}");
        let message = declare(&flag).expect_err(wrong);
        assert!(
            message.contains("expected a positive number of samples a second, asked or asked:NODES"),
            "{message}"
        );
    }
}

#[test]
fn a_launcher_is_started_once_and_gets_the_number_of_processes() {
    for (line, started, launched) in [
        ("--nproc-per-node=4 -- python train.py", 4, Some(4)),
        ("--nproc-per-node=4 -- torchrun train.py", 1, Some(4)),
        ("--nproc-per-node=4 -- python -m torch.distributed.run train.py", 1, Some(4)),
        ("--nproc-per-node=4 -- accelerate launch train.py", 1, Some(4)),
        ("--nproc-per-node=4 -- torchrun --nproc-per-node=2 train.py", 1, Some(2)),
        ("-- torchrun train.py", 1, None),
        ("-- python train.py", 1, None),
    ] {
        let common = Flags::parse_from(["infill"].into_iter().chain(line.split(' '))).common;
        assert_eq!((common.started_ranks(), common.launched_ranks()), (started, launched), "{line}");
    }
    // One process is too few for plans that divide a node's GPUs.
    let with_plans = |program: &str| {
        let words = [r#"--plans={"plan":[{"name":"a"}]}"#, "--", program, "train.py"];
        Flags::parse_from(["infill"].into_iter().chain(words)).common
    };
    let torchrun = with_plans("torchrun");
    assert_eq!((torchrun.started_ranks(), torchrun.launched_ranks()), (1, Some(torchrun.ranks_per_node())));
    assert_eq!(with_plans("python").launched_ranks(), None);
}

#[test]
fn without_a_flag_each_gpu_of_a_whole_node_has_a_process() {
    for (line, started, launched, local) in [
        ("-- python train.py", 4, None, 4),
        ("--workers-per-node=1 -- python train.py", 1, Some(1), 1),
        ("--nproc-per-node=2 -- python train.py", 2, Some(2), 2),
        ("-- torchrun train.py", 1, Some(4), 4),
        ("-- torchrun --nproc-per-node=2 train.py", 1, Some(2), 2),
        ("-- python -m torch.distributed.run train.py", 1, Some(4), 4),
        ("--workers-per-node=8 -- accelerate launch train.py", 1, Some(8), 8),
    ] {
        let mut common = Flags::parse_from(["infill"].into_iter().chain(line.split(' '))).common;
        common.default_ranks = 4;
        let got = (common.started_ranks(), common.launched_ranks(), common.local_ranks());
        assert_eq!(got, (started, launched, local), "{line}");
    }
}

#[test]
fn an_expression_for_progress_has_groups_that_fit() {
    let read = |regex: &str| {
        let words = ["infill", "--progress-regex", regex, "--", "true"];
        let flags = Flags::try_parse_from(words).map_err(|e| e.to_string());
        flags.map(|flags| flags.common.progress_regex.is_some())
    };
    for good in
        [r"(?<seen>\d+)", r"(?<samples>\d+) (?<step>\d+)", r"(?P<step>\d+)/(?P<total>\d+) (?P<seen>\d+)"]
    {
        assert_eq!(read(good), Ok(true), "{good}");
    }
    let both = read(r"(?<seen>\d+) (?<samples>\d+)").unwrap_err();
    assert!(both.contains("(?<seen>…) for those in all so far, and not both"), "{both}");
    for bad in [r"\d+", r"(?<total>\d+)", r"(?<other>\d+)"] {
        let error = read(bad).unwrap_err();
        assert!(error.contains("expected a group (?<samples>…), (?<seen>…)"), "{bad}: {error}");
    }
    assert!(read("(?<seen>").unwrap_err().contains("unclosed"));
}

#[test]
fn trials_of_one_script_look_the_same_and_other_models_do_not() {
    let same = [("0.1", "1e-3"), ("--lr=0.1", "--lr=3"), ("out/run-7/log", "out/run-12/log"), ("17", "4")];
    for (a, b) in same {
        assert_eq!(normalize_word(a), normalize_word(b), "{a} {b}");
    }
    for (a, b) in
        [("resnet50.py", "resnet101.py"), ("--model=b1", "--model=b2"), ("inf", "nan"), ("--a=1", "--b=1")]
    {
        assert_ne!(normalize_word(a), normalize_word(b), "{a} {b}");
    }
}

#[test]
fn wings_prepare_their_nodes_and_use_the_container_as_the_lead_does() {
    let words = [
        "infill",
        "--on-node=cp 'a b' /tmp",
        "--on-node-secs=5",
        "--container=x.sif",
        "--container-runtime=enroot",
        "--container-option=--rw",
        "--container-option=--mount=/a",
        "--",
        "python",
        "train.py",
    ];
    let lead = Flags::parse_from(words).common;
    assert_eq!(lead.on_node.as_deref(), Some("cp 'a b' /tmp"));
    let given = lead.to_worker_args();
    let wing = Flags::parse_from(std::iter::once("infill".to_owned()).chain(given.clone())).common;
    assert_eq!(wing.to_worker_args(), given);
    assert_eq!((wing.on_node, wing.on_node_secs), (lead.on_node, 5));
    assert_eq!(wing.container.container_option, ["--rw", "--mount=/a"]);
    let plain = Flags::parse_from(["infill", "--", "python"]).common.to_worker_args().join(" ");
    assert!(
        !plain.contains("--on-node") && !plain.contains("--container"),
        "older wings know neither: {plain}"
    );
}
