//! Which command lines are valid.

use clap::error::ErrorKind;

use super::*;

fn parse_line(line: &str) -> Result<Cli, clap::Error> {
    parse_words(line.split(' ').map(OsString::from).collect())
}

fn kind(line: &str) -> Option<ErrorKind> {
    parse_line(line).err().map(|e| e.kind())
}

#[test]
fn the_grammar_is_sound() {
    help::grammar().debug_assert();
}

#[test]
fn valid_command_lines_parse() {
    for line in [
        "infill serve",
        "infill rehearse -- python train.py",
        "infill rehearse --sizes 1,2,1 --train-secs 1 --start-secs 9 --grace 5 --json -- python train.py --json",
        "infill run -- python train.py --config x -h",
        "infill run python train.py --help -h",
        "infill rehearse python train.py --help",
        "infill status --watch --interval 2 --url http://x:1",
        "infill jobs --noheader -o %i -u alice,bob -j 1,2 -n n1",
        "infill web",
        "infill web --revoke",
        "infill web --revoke bob",
        "infill report --month 2026-10 --by user --csv",
        "infill report --since now-7days --json",
        "infill gaps -a --json",
        "infill nodes -n n1 --json",
        "infill gaps --log kth.swf.gz --log-format swf --procs-per-node 2 --nodes 100 --json",
        "infill gaps --log sacct.txt --unit gpu --gpus-per-node 8",
        "infill gaps --idle summit.csv.xz",
        "infill simulate --log kth.swf --curves a.csv --policy infill,bound --noheader -o %p|%e --html out.html",
        "infill simulate --machine 8x8:a800 --workload j.csv --plans p.csv --facts f.csv --restart 260 --speed-up 4 --json",
        "infill simulate --machine 468x1 --workload h.csv --order fcfs,gittins --stop 300 --mix 50 --json",
        "infill simulate --machine 29x4:a100,7x16:v100 --workload j.csv --plans p.csv --scale-work 0.2 --secs 150000 --noheader",
        "infill plan --local --json",
        "infill explain 12",
        "infill explain n7",
        "infill explain 12_3",
        "infill run --profile-by layers,hidden -- python train.py --layers=3 --hidden=64",
        "infill explain 12 --at now-10minutes",
        "infill explain n7 --json --at 2026-11-20T22:10",
        "infill history check --log h.csv.gz --train 0.3 --rows 9000 --seed 2 --json",
        "infill history import",
        "infill history import --since now-90days --json",
        "infill history import --from - --since 2026-01-01",
        "infill history forget --user ann --json",
        "infill rounds",
        "infill rounds --noheader -o %t|%s -n 1000 --before 22:10",
        "infill rounds --json --limit 5",
        "infill profiles",
        "infill profiles --noheader -o %n -u alice,bob -n bert --node-type a100 --exec-plan tp2",
        "infill plans check plans.toml -o %p --workers-per-node 4 --nodes 1-8",
        "infill plans check plans.toml --nproc-per-node 4",
        "infill plans suggest --params 1500 --layers 48 --hidden 1600 --sequence 1024 --batch 64 --nodes 1-8",
        "infill profiles list --me --json",
        "infill profiles show bert --svg bert.svg",
        "infill profiles show bert --json -u alice",
        "infill profiles show bert --history --json",
        "infill profiles export --csv --me",
        "infill profiles import -",
        "infill profiles forget -n bert --me",
        "infill profiles forget --all",
        "infill advise --curve a.csv --noise 0.1 --seed 7 --max-nodes 64 --json",
        "infill --config a.toml drain",
        "infill config check a.toml",
        "infill completions bash",
        "infill man /tmp",
        "infill notify --test",
        "infill python install",
        "infill python install --python /opt/venv/bin/python --wheel a.whl",
        "infill doctor --json -vv",
    ] {
        assert_eq!(kind(line), None, "{line}");
    }
}

#[test]
fn commands_in_the_guides_exist() {
    let guides = [
        include_str!("../../README.md"),
        include_str!("../../docs/users.md"),
        include_str!("../../docs/administrators.md"),
        include_str!("../../docs/reference.md"),
        include_str!("../../slurm/README.md"),
        include_str!("../../contrib/python/README.md"),
    ];
    let named = guides.iter().flat_map(|text| text.split('`').skip(1).step_by(2));
    let named: Vec<String> = named
        .filter(|words| words.starts_with("infill "))
        .map(|words| {
            let words: String = words
                .replace(['[', ']'], "")
                .split('\'')
                .enumerate()
                .map(|(i, part)| if i % 2 == 1 { part.replace(' ', "_") } else { part.to_owned() })
                .collect();
            words.split_whitespace().collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert!(named.len() > 40, "{named:?}");
    for line in named {
        let wrong = matches!(kind(&line), Some(ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument));
        assert!(!wrong, "{line}: {:?}", kind(&line));
    }
}

#[test]
fn an_agent_gets_the_url_from_any_position() {
    for line in ["infill --url http://x:1 run -- c", "infill run --url http://x:1 -- c"] {
        let cli = parse_line(line).unwrap();
        let CliCommand::Run(mut args) = cli.command else { panic!("{line}") };
        crate::session::CliSession { config: None, url: cli.url }.configure_agent(&mut args.common).unwrap();
        assert_eq!(args.common.url.as_deref(), Some("http://x:1"), "{line}");
    }
}

#[test]
fn invalid_command_lines_are_refused() {
    assert_eq!(kind("infill jobs --help"), Some(ErrorKind::DisplayHelp));
    for command in ["jobs", "gaps", "nodes", "rounds", "plan", "profiles", "profiles list", "simulate", "run"]
    {
        assert_eq!(kind(&format!("infill {command} -h")), Some(ErrorKind::DisplayHelp), "{command}");
    }
    assert_eq!(kind("infill profiles show --help"), Some(ErrorKind::DisplayHelp));
    assert_eq!(kind("infill profiles forget -h"), Some(ErrorKind::DisplayHelp));
    assert_eq!(kind("infill --version"), Some(ErrorKind::DisplayVersion));
    assert_eq!(kind("infill jobs --me -u bob"), Some(ErrorKind::ArgumentConflict));
    assert_eq!(kind("infill jobs -o %"), Some(ErrorKind::ValueValidation));
    assert_eq!(kind("infill jobs -j x"), Some(ErrorKind::ValueValidation));
    assert_eq!(kind("infill profiles forget"), Some(ErrorKind::MissingRequiredArgument));
    assert_eq!(kind("infill profiles forget --all -n x"), Some(ErrorKind::ArgumentConflict));
    assert_eq!(kind("infill profiles show"), Some(ErrorKind::MissingRequiredArgument));
    assert_eq!(kind("infill advise --curve a.csv --noise -1"), Some(ErrorKind::ValueValidation));
    assert_eq!(kind("infill gaps --log-format swf"), Some(ErrorKind::MissingRequiredArgument));
    assert_eq!(kind("infill gaps --log a --idle b"), Some(ErrorKind::ArgumentConflict));
    assert_eq!(kind("infill simulate --idle a --curves b --json -o %p"), Some(ErrorKind::ArgumentConflict));
    let machine = "infill simulate --workload j.csv --plans p.csv --machine";
    assert_eq!(kind(&format!("{machine} 8")), Some(ErrorKind::ValueValidation));
    assert_eq!(kind(&format!("{machine} 8x8:a --curves c.csv")), Some(ErrorKind::ArgumentConflict));
    assert_eq!(kind(&format!("{machine} 8x8:a --speed-up 0")), Some(ErrorKind::ValueValidation));
    assert_eq!(kind("infill simulate --machine 8x8:a"), Some(ErrorKind::MissingRequiredArgument));
    assert_eq!(
        kind("infill simulate --idle a --curves b --restart 2"),
        Some(ErrorKind::MissingRequiredArgument)
    );
    assert_eq!(kind("infill run --profile-by a,,b -- t"), Some(ErrorKind::ValueValidation));
    assert_eq!(kind("infill explain 12 --at soon"), Some(ErrorKind::ValueValidation));
    assert_eq!(kind("infill history import --since x"), Some(ErrorKind::ValueValidation));
    assert_eq!(kind("infill rounds --before x"), Some(ErrorKind::ValueValidation));
    assert_eq!(kind("infill rounds -n 1001"), Some(ErrorKind::ValueValidation));
    assert_eq!(kind("infill profiles show b --history --svg -"), Some(ErrorKind::ArgumentConflict));
    assert_eq!(kind("infill explain"), Some(ErrorKind::MissingRequiredArgument));
    assert_eq!(kind("infill status --interval 0"), Some(ErrorKind::ValueValidation));
    assert_eq!(kind("infill notify"), Some(ErrorKind::MissingRequiredArgument));
    assert_eq!(kind("infill frobnicate"), Some(ErrorKind::InvalidSubcommand));
}

#[test]
fn a_command_needs_no_dashes_before_it() {
    for (line, nodes, command) in [
        ("infill run python train.py", false, "python train.py"),
        ("infill run --nodes 2-8 python train.py --lr 0.1 -h", true, "python train.py --lr 0.1 -h"),
        ("infill run --nodes=2-8 -- python train.py --nodes 4", true, "python train.py --nodes 4"),
        ("infill run python train.py -- --lr 0.1", false, "python train.py -- --lr 0.1"),
        ("infill run -- python train.py -- --lr 0.1", false, "python train.py -- --lr 0.1"),
        ("infill run torchrun --nproc-per-node=4 a.py", false, "torchrun --nproc-per-node=4 a.py"),
        ("infill run python train.py --config a.yaml -v", false, "python train.py --config a.yaml -v"),
    ] {
        let cli = parse_line(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let CliCommand::Run(args) = cli.command else { panic!("{line}") };
        assert_eq!(args.common.command.join(" "), command, "{line}");
        assert_eq!(args.spec.nodes.is_some(), nodes, "{line}");
    }
    assert_eq!(kind("infill run --ndoes 2 python train.py"), Some(ErrorKind::UnknownArgument));
    assert_eq!(kind("infill run"), Some(ErrorKind::MissingRequiredArgument));
    assert_eq!(kind("infill run --nodes 2-8 --"), Some(ErrorKind::MissingRequiredArgument));
}

#[test]
fn slips_get_suggestions() {
    for (line, suggestion) in [
        ("infill job", "'jobs'"),
        ("infill statsu", "'status'"),
        ("infill run --ndoes 2 python train.py", "'--nodes'"),
        ("infill jobs --nohead", "'--noheader'"),
    ] {
        let message = parse_line(line).unwrap_err().to_string();
        assert!(message.contains(suggestion), "{line}: {message}");
    }
}

fn refusal(line: &[&str]) -> String {
    parse_words(line.iter().map(Into::into).collect()).unwrap_err().to_string()
}

#[test]
fn an_option_after_the_command_is_refused_with_what_to_type() {
    let line =
        ["infill", "run", "--grace", "9", "python", "a b.py", "--nodes", "2-8", "--lr=1", "--batch=global"];
    insta::assert_snapshot!(refusal(&line), @r"
    error: --nodes stands after `python`, so it could belong to either of them. Write one of:

      infill run --grace 9 --nodes 2-8 --batch=global -- python 'a b.py' --lr=1
          if infill should read it
      infill run --grace 9 -- python 'a b.py' --nodes 2-8 --lr=1 --batch=global
          if `python` should read it
    ");
    assert!(refusal(&["infill", "rehearse", "python", "t.py", "--sizes", "1,2"]).contains("--sizes 1,2 --"));
}
