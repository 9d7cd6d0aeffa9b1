//! Files that are accepted, and files that are refused.

use super::*;

#[test]
fn the_commented_file_has_the_defaults_of_the_code() {
    let from_file = Config::parse(DEFAULT_FILE, Path::new("infill.toml")).unwrap();
    assert_eq!(from_file, Config::default());
}

#[test]
fn an_unknown_key_is_refused_with_its_line() {
    let e = Config::parse("[daemon]\nmode = \"act\"\npol = 3\n", Path::new("x.toml")).unwrap_err();
    let text = e.to_string();
    assert!(text.contains("line 3") && text.contains("pol"), "{text}");
}

#[test]
fn an_error_in_the_daemons_part_does_not_concern_clients() {
    let defaults = client_config("http://127.0.0.1:6810", "infill", "infill");
    assert_eq!(parse_client("").unwrap(), defaults);
    // A key of a newer daemon, a key of an older one, a value of a wrong type, and an invalid value.
    for text in ["[daemon]\nnonsense = 1", "[future]\nx = []", "[store]\nurl = 7", "[gaps]\nconfidence = 9.0"]
    {
        assert_eq!(parse_client(text).unwrap(), defaults, "{text}");
    }
    let both =
        "[slurm]\npartition = \"gaps\"\nnew = 1\n[agent]\nurl = \"http://ctl:1\"\ndaemon_user = \"filler\"";
    assert_eq!(parse_client(both).unwrap(), client_config("http://ctl:1", "filler", "gaps"));
    let ca = parse_client("[agent]\nca = \"/etc/infill/ca.pem\"").unwrap().ca;
    assert_eq!(ca.as_deref(), Some(Path::new("/etc/infill/ca.pem")));
    let wrong_type = parse_client("[agent]\nurl = 7").unwrap_err().to_string();
    assert!(wrong_type.starts_with("x.toml: ") && wrong_type.contains("line 2"), "{wrong_type}");
    assert!(parse_client("[agent").unwrap_err().to_string().contains("line 1"));
}

fn parse_client(text: &str) -> Result<ClientConfig, ConfigError> {
    ClientConfig::parse(text, Path::new("x.toml"))
}

fn client_config(url: &str, daemon_user: &str, partition: &str) -> ClientConfig {
    ClientConfig {
        url: url.to_owned(),
        daemon_user: daemon_user.to_owned(),
        partition: partition.to_owned(),
        ca: None,
    }
}

#[test]
fn curves_are_written_as_on_the_command_line() {
    let text = "[planner.curves]\nresnet = \"1:10,4:35\"\n";
    let config = Config::parse(text, Path::new("x.toml")).unwrap();
    assert_eq!(config.planner.curves["resnet"].rate(4), 35.0);
    assert_eq!(Config::parse(&toml::to_string(&config).unwrap(), Path::new("x.toml")).unwrap(), config);
}

#[test]
fn a_refusal_names_key_value_and_what_is_expected() {
    let texts = [
        "[daemon]\npoll_interval_secs = nan",
        "[daemon]\nlisten = \"here\"",
        "[daemon]\ntls_cert = \"/c.pem\"",
        "[daemon]\ntls_cert = \"/c.pem\"\ntls_key = \"k.pem\"",
        "[daemon]\ntls_cert = \"/c.pem\"\ntls_key = \"/k.pem\"",
        "[http]\nmax_connections = 3",
        "[slurm]\npartition = \"a,b\"",
        "[slurm]\nrest = \"ftp://x\"",
        "[gaps]\nmin_window_secs = 5",
        "[gaps]\nconfidence = 1.5",
        "[nodes.gpus]\na100 = { cpus = 0 }",
        "[planner]\nmax_steps = 0",
        "[planner]\nmip_gap = -1.0",
        "[planner.costs]\nup_secs = -1.0\ndown_secs = 1.0\nstart_secs = 1.0",
        "[planner.shares]\nalice = -1.0",
        "[advisor]\nmax_probe_secs = 1e9",
        "[agent]\nwing_start_secs = 0",
        "[store]\nkeep_history_days = 0",
    ];
    let errors = texts.map(|text| Config::parse(text, Path::new("x.toml")).unwrap_err().to_string());
    insta::assert_snapshot!(errors.join("\n"), @r#"
    x.toml: daemon.poll_interval_secs = NaN: expected seconds between 0.05 and 86400
    x.toml: daemon.listen = here: expected ADDRESS:PORT
    x.toml: daemon.tls_key = "": expected a file, together with daemon.tls_cert, or neither
    x.toml: daemon.tls_cert = "k.pem": expected absolute paths of both files
    x.toml: agent.url = http://127.0.0.1:6810: expected https://, because daemon.tls_cert is set
    x.toml: http.max_connections = 3: expected 64 to 1000000 connections
    x.toml: slurm.partition = a,b: expected one partition
    x.toml: slurm.rest = ftp://x: expected unix:/path, http://host:port or https://host:port
    x.toml: gaps.min_window_secs = 5: expected 60 to 86400 seconds
    x.toml: gaps.confidence = 1.5: expected a chance between 0.01 and 0.99
    x.toml: nodes.gpus = {a100 = {cpus = 0}}: expected 1 to 65536 CPUs with a GPU
    x.toml: planner.max_steps = 0: expected 1 to 24 steps
    x.toml: planner.mip_gap = -1: expected a share between 0 and 1
    x.toml: planner.costs.up_secs = -1: expected seconds between 0 and 86400
    x.toml: planner.shares = {alice = -1}: expected a positive share
    x.toml: advisor.max_probe_secs = 1000000000: expected seconds between 0 and 86400
    x.toml: agent.wing_start_secs = 0: expected seconds between 0.05 and 86400
    x.toml: store.keep_history_days = 0: expected 1 to 36500 days
    "#);
}

#[test]
fn invalid_values_are_refused() {
    for text in [
        "[daemon]\npoll_interval_secs = nan",
        "[gaps]\nconfidence = 1.5",
        "[slurm]\npartition = \"a,b\"",
        "[slurm]\nrest = \"ftp://x\"",
        "[planner]\nmax_steps = 0",
        "[planner.shares]\nalice = -1.0",
        "[planner.curves]\nx = \"1:0\"",
    ] {
        assert!(Config::parse(text, Path::new("x.toml")).is_err(), "{text}");
    }
}
