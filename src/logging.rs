//! Logging to stderr: JSON on demand, lines with journald's priority prefix under systemd, else plain lines.

use std::fmt;
use std::io::IsTerminal;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Starts logging. `INFILL_LOG` overrides `-v`; `base` is the level without either.
pub fn start_logging(verbose: u8, base: &str) {
    let directives = std::env::var("INFILL_LOG").unwrap_or_else(|_| filter_directives(verbose, base));
    let filter = EnvFilter::try_new(&directives).unwrap_or_else(|error| {
        eprintln!("infill: INFILL_LOG={directives:?} is not a valid filter ({error}); logging at `{base}`");
        EnvFilter::new(base)
    });
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let json = std::env::var("INFILL_LOG_FORMAT").is_ok_and(|f| f == "json");
    // A second subscriber is refused. Only tests call this twice.
    let _ = if json {
        builder.json().try_init()
    } else if std::env::var_os("JOURNAL_STREAM").is_some() && !std::io::stderr().is_terminal() {
        builder.with_ansi(false).event_format(JournalFormat).try_init()
    } else {
        builder.with_ansi(infill_present::output::wants_colours(&std::io::stderr())).try_init()
    };
}

fn filter_directives(verbose: u8, base: &str) -> String {
    match verbose {
        0 => base.to_owned(),
        1 => "info,infill=debug".to_owned(),
        _ => "debug,infill=trace".to_owned(),
    }
}

/// A line for each event, with the `<priority>` that journald reads. journald adds the time itself.
struct JournalFormat;

impl<S, N> FormatEvent<S, N> for JournalFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        write!(writer, "<{}>{}: ", syslog_priority(metadata.level()), metadata.target())?;
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            write!(writer, "{}", span.name())?;
            if let Some(fields) = span.extensions().get::<FormattedFields<N>>().filter(|f| !f.is_empty()) {
                write!(writer, "{{{fields}}}")?;
            }
            write!(writer, ": ")?;
        }
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// The syslog priority of a level.
fn syslog_priority(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}
