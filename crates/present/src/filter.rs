//! Options that all commands that print tables share, named as in squeue.

use clap::Args;

use super::exit::{CommandFailure, ProgramExit};
use super::output;
use super::table::{TableColumn, TableFormat, TableLayout};
use infill_model::{JobId, NodeName};

/// How a table is printed.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct TableArgs {
    /// Columns in the notation of squeue; --help lists the fields
    #[arg(short = 'o', long, value_name = "FORMAT", conflicts_with = "json")]
    pub format: Option<TableFormat>,
    /// Print no header
    #[arg(long)]
    pub noheader: bool,
    /// Print the whole document as JSON
    #[arg(long)]
    pub json: bool,
}

impl TableArgs {
    /// Whether the user asked for columns or for no header, and therefore wants only the rows.
    pub fn wants_rows_alone(&self) -> bool {
        self.format.is_some() || self.noheader
    }

    /// Refuses a format with a field that this table does not have. A command calls it before it asks the
    /// daemon or reads a file.
    ///
    /// # Errors
    /// Wrong usage, when no column has a letter of the format.
    pub fn check_format<R>(&self, columns: &[TableColumn<R>]) -> Result<(), CommandFailure> {
        let Some(format) = &self.format else { return Ok(()) };
        format.check_fields(columns).map_err(|e| ProgramExit::Usage.caused_by(e))
    }
}

/// Which rows are shown. A row must satisfy all options that are given.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
pub struct FilterArgs {
    /// Show only my jobs
    #[arg(long, conflicts_with = "user")]
    pub me: bool,
    /// Show only jobs of these users
    #[arg(short = 'u', long, value_name = "USER,…", value_delimiter = ',')]
    pub user: Vec<String>,
    /// Show only these jobs, by the lead's id
    #[arg(short = 'j', long, value_name = "JOB,…", value_delimiter = ',')]
    pub job: Vec<u32>,
    /// Show only these nodes, or the jobs on them
    #[arg(short = 'n', long, value_name = "NODE,…", value_delimiter = ',')]
    pub node: Vec<String>,
}

impl FilterArgs {
    /// Replaces `--me` by the caller's name.
    ///
    /// # Errors
    /// When `id -un` does not print the name.
    pub fn resolve_me(mut self) -> Result<FilterArgs, CommandFailure> {
        if self.me {
            self.user = vec![current_user_name()?];
        }
        Ok(self)
    }

    /// Whether a job passes.
    pub fn admits_job(&self, id: JobId) -> bool {
        self.job.is_empty() || self.job.contains(&id.0)
    }

    /// Whether a user passes.
    pub fn admits_user(&self, name: &str) -> bool {
        self.user.is_empty() || self.user.iter().any(|u| u == name)
    }

    /// Whether a node passes.
    pub fn admits_node(&self, name: &NodeName) -> bool {
        self.node.is_empty() || self.node.iter().any(|n| name.matches_name(n))
    }

    /// Whether any of these nodes passes.
    pub fn admits_any_node(&self, names: &[NodeName]) -> bool {
        self.node.is_empty() || names.iter().any(|n| self.admits_node(n))
    }
}

/// The caller's login name, from `id -un`: only NSS knows the users of a site.
///
/// # Errors
/// When the program is missing or prints no name.
pub fn current_user_name() -> Result<String, CommandFailure> {
    let out = std::process::Command::new("id").arg("-un").output()?;
    let name = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    if out.status.success() && !name.is_empty() {
        Ok(name)
    } else {
        Err(ProgramExit::Failed
            .caused_by(anyhow::anyhow!("--me: `id -un` does not print your login name; use --user")))
    }
}

/// A whole table in this format. It is not cut to the width of the terminal, because its numbers are needed.
pub fn render_full_table<R>(
    format: &str,
    columns: &[TableColumn<R>],
    rows: &[R],
) -> Result<String, CommandFailure> {
    let format: TableFormat =
        format.parse().map_err(|e| ProgramExit::Failed.caused_by(anyhow::Error::new(e)))?;
    let layout = TableLayout { header: true, terminal: None };
    format.render_rows(columns, rows, layout).map_err(|e| ProgramExit::Failed.caused_by(e))
}

/// A table in the format that `args` has, or in the default one.
pub fn render_table<R>(
    args: &TableArgs,
    default: &str,
    columns: &[TableColumn<R>],
    rows: &[R],
) -> Result<String, CommandFailure> {
    let layout = TableLayout { header: !args.noheader, terminal: output::terminal_width() };
    let format = match &args.format {
        Some(format) => format.clone(),
        None => default.parse().map_err(|e| ProgramExit::Failed.caused_by(anyhow::Error::new(e)))?,
    };
    format.render_rows(columns, rows, layout).map_err(|e| ProgramExit::Usage.caused_by(e))
}
