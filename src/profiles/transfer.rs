//! `infill profiles export | import | forget`: copies profiles between sites, and deletes them.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgGroup, Args};
use serde::{Deserialize, Serialize};

use super::selection::{self, SelectionArgs};
use crate::session::CliSession;
use infill_api::{
    BodyProof, ForgetRequest, ImportRequest, MAX_IMPORTED, ProfileCount, SCHEMA_VERSION, routes,
};
use infill_model::{Profile, SizePoint, UnixTime};
use infill_present::{
    exit::{CommandResult, ProgramExit},
    output,
};

/// The purpose in the proofs of these orders.
const PURPOSE: &str = "profiles";

/// The largest file that is imported. A thousand profiles of 256 sizes have 40 MB.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Flags of `infill profiles export`.
#[derive(Clone, Debug, Args)]
pub struct ExportProfilesArgs {
    /// Export only profiles of this name
    #[arg(short = 'n', long, value_name = "NAME", help_heading = "Filters")]
    name: Option<String>,
    #[command(flatten)]
    choose: SelectionArgs,
    /// Print CSV with a row for each measured size, for `infill advise` and spreadsheets
    #[arg(long, help_heading = "Output")]
    csv: bool,
}

/// Flags of `infill profiles import`.
#[derive(Clone, Debug, Args)]
pub struct ImportProfilesArgs {
    /// Output of `infill profiles export`; `-` for standard input
    file: PathBuf,
}

/// Flags of `infill profiles forget`.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true).args(["name", "me", "user", "node_type", "exec_plan", "all"]))]
pub struct ForgetProfilesArgs {
    /// Delete only profiles of this name
    #[arg(short = 'n', long, value_name = "NAME", help_heading = "Filters")]
    name: Option<String>,
    #[command(flatten)]
    choose: SelectionArgs,
    /// Delete all profiles of all users; for root and `daemon.admins`
    #[arg(long, conflicts_with_all = ["name", "me", "user", "node_type", "exec_plan"], help_heading = "Filters")]
    all: bool,
}

/// The document that `export` prints and `import` reads.
#[derive(Serialize, Deserialize)]
struct ExportedProfiles {
    schema: u32,
    profiles: Vec<Profile>,
}

/// A measured size, as a row of CSV.
#[derive(Serialize)]
struct CsvLine<'a> {
    user: &'a str,
    name: &'a str,
    node_type: &'a str,
    exec_plan: &'a str,
    batch: &'static str,
    nodes: u32,
    throughput: f64,
    error: f64,
    secs: f64,
    step_samples: Option<f64>,
    at: UnixTime,
}

/// Runs `infill profiles export`.
pub async fn export_profiles(args: ExportProfilesArgs, session: &CliSession) -> CommandResult {
    let filters = args.choose.profile_filters(args.name)?;
    let views = selection::fetch_profiles(&session.daemon_client()?, &filters).await?;
    let profiles: Vec<Profile> = views.into_iter().map(|v| v.profile).collect();
    if args.csv {
        output::print_text(&profiles_csv(&profiles)?)?;
    } else {
        output::print_json(&ExportedProfiles { schema: SCHEMA_VERSION, profiles })?;
    }
    Ok(ProgramExit::Ok.code())
}

fn profiles_csv(profiles: &[Profile]) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for profile in profiles {
        for point in &profile.points {
            writer.serialize(csv_line(profile, point))?;
        }
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

fn csv_line<'a>(profile: &'a Profile, point: &SizePoint) -> CsvLine<'a> {
    let key = &profile.key;
    CsvLine {
        user: &key.user,
        name: &key.name,
        node_type: key.node_type.as_str(),
        exec_plan: &key.exec_plan.0,
        batch: key.batch.word(),
        nodes: point.nodes,
        throughput: point.rate,
        error: point.error,
        secs: point.secs,
        step_samples: point.step_samples,
        at: point.at,
    }
}

/// Runs `infill profiles import`.
pub async fn import_profiles(args: ImportProfilesArgs, session: &CliSession) -> CommandResult {
    let exported = read_export(&args.file).map_err(|e| ProgramExit::Input.caused_by(e))?;
    let client = session.daemon_client()?;
    let mut imported_count = 0;
    for part in exported.profiles.chunks(MAX_IMPORTED) {
        let request = ImportRequest { proof: BodyProof::default(), profiles: part.to_vec() };
        let counted: ProfileCount =
            client.send_order_for_answer(PURPOSE, routes::IMPORT_PROFILES, &request).await?;
        imported_count += counted.profiles;
    }
    output::print_text(&format!("imported {}", output::counted_noun(imported_count, "profile")))?;
    Ok(ProgramExit::Ok.code())
}

fn read_export(path: &Path) -> anyhow::Result<ExportedProfiles> {
    let name = path.display();
    let text = if path.as_os_str() == "-" {
        read_bounded(std::io::stdin().lock())
    } else {
        std::fs::File::open(path).and_then(read_bounded)
    };
    let text = text.with_context(|| format!("cannot read {name}"))?;
    anyhow::ensure!(text.len() as u64 <= MAX_BYTES, "{name} is longer than {MAX_BYTES} bytes");
    parse_export(&text).with_context(|| format!("{name} is not output of `infill profiles export`"))
}

/// Reads at most one byte more than the limit, so that the caller notices too long a file.
fn read_bounded(source: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    source.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn parse_export(text: &str) -> anyhow::Result<ExportedProfiles> {
    let exported: ExportedProfiles =
        serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(text))?;
    anyhow::ensure!(
        exported.schema == SCHEMA_VERSION,
        "its schema is {}, expected {SCHEMA_VERSION}",
        exported.schema
    );
    Ok(exported)
}

/// Runs `infill profiles forget`.
pub async fn forget_profiles(args: ForgetProfilesArgs, session: &CliSession) -> CommandResult {
    let client = session.daemon_client()?;
    let mut deleted_count = 0;
    for filter in args.choose.profile_filters(args.name)? {
        let request = ForgetRequest { proof: BodyProof::default(), filter };
        let counted: ProfileCount =
            client.send_order_for_answer(PURPOSE, routes::FORGET_PROFILES, &request).await?;
        deleted_count += counted.profiles;
    }
    output::print_text(&format!("deleted {}", output::counted_noun(deleted_count, "profile")))?;
    Ok(ProgramExit::Ok.code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn exported_profiles_can_be_read_back() {
        let profiles: Vec<Profile> =
            samples::sample_profiles().profiles.into_iter().map(|v| v.profile).collect();
        let text = serde_json::to_string_pretty(&ExportedProfiles {
            schema: SCHEMA_VERSION,
            profiles: profiles.clone(),
        })
        .unwrap();
        assert_eq!(parse_export(&text).unwrap().profiles, profiles);
        // The document of `list --json` can be imported too.
        assert_eq!(
            parse_export(&serde_json::to_string(&samples::sample_profiles()).unwrap()).unwrap().profiles,
            profiles
        );
    }

    #[test]
    fn a_wrong_file_is_refused_with_the_place() {
        let check = |text: &str, part: &str| {
            let error = format!("{:#}", parse_export(text).err().unwrap());
            assert!(error.contains(part), "{text}: {error}");
        };
        check("", "line 1");
        check(r#"{"schema":2,"profiles":[]}"#, "schema is 2");
        check(r#"{"schema":1,"profiles":[{"user":"a"}]}"#, "profiles[0]");
    }

    #[test]
    fn csv_has_a_row_for_each_size() {
        let profiles: Vec<Profile> =
            samples::sample_profiles().profiles.into_iter().map(|v| v.profile).collect();
        insta::assert_snapshot!(profiles_csv(&profiles).unwrap(), @r"
        user,name,node_type,exec_plan,batch,nodes,throughput,error,secs,step_samples,at
        alice,bert,gpu:a100:4/cpu64,default,auto,1,410.0,0.006,60.0,256.0,1795212017
        alice,bert,gpu:a100:4/cpu64,default,auto,2,780.0,0.01,120.0,512.0,1795212017
        alice,bert,gpu:a100:4/cpu64,default,auto,4,1390.0,0.03,240.0,1024.0,1795212017
        ");
    }

    #[test]
    fn an_absent_file_is_named() {
        let error = read_export(Path::new("/nonexistent/profiles.json")).err().unwrap();
        assert!(format!("{error:#}").starts_with("cannot read /nonexistent/profiles.json: "));
    }
}
