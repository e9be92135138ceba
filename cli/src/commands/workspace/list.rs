//! `cordon workspace list` and `show`: which there are, and what is in one.

use super::{check_name, errand::Errands};
use crate::{commands::CLIENT, exit_status, failure::Failure, output};
use cordon_protocol::{Action, Bytes, WorkspaceDetail, WorkspaceInfo, client::blocking};
use jiff::Timestamp;
use std::path::Path;

/// How to list.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print a JSON array
    #[arg(long)]
    pub(super) json: bool,
}

/// Which to show, and how.
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// Its name
    name: String,
    /// Print a JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// Profile under which it is looked at [default: default]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

/// Lists the peer's own.
pub(super) fn execute(args: &Args, socket: &Path) -> Result<u8, Failure> {
    let failed = |error| Failure::of_client("workspace list", socket, error);
    let workspaces = blocking::workspaces(socket, CLIENT).map_err(failed)?;
    if args.json {
        output::print_json(&workspaces)?
    } else {
        output::print(&listing(&workspaces))?
    }
    Ok(exit_status::SUCCESS)
}

fn listing(workspaces: &[WorkspaceInfo]) -> String {
    let mut rows = vec![["NAME", "LAST CHANGE"].map(str::to_owned)];
    for workspace in workspaces {
        rows.push([output::visible(&workspace.name), time(workspace.modified)]);
    }
    output::table(&rows)
}

/// Shows one of them.
pub(super) fn show(args: &ShowArgs, socket: &Path) -> Result<u8, Failure> {
    check_name(&args.name)?;
    let errands = Errands::new("workspace show", socket, &args.name, args.profile.as_deref())?;
    let workspace = errands.existing()?;
    let (report, _) = errands.run(errands.request(Action::Measure))?;
    let answer = report.stdout.unwrap_or_default();
    let detail = WorkspaceDetail::measured(workspace, &answer).ok_or_else(|| {
        Failure::new(
            "workspace show",
            "the answer is not a size",
            "use cordon and cordon-executor of one version",
        )
    })?;
    if args.json {
        output::print_json(&detail)?
    } else {
        output::print(&description(&detail))?
    }
    Ok(exit_status::SUCCESS)
}

fn description(detail: &WorkspaceDetail) -> String {
    let size = Bytes(detail.bytes).to_string();
    let exact = detail.bytes.to_string();
    let size = if size == exact { size } else { format!("{exact} ({size})") };
    let mut rows = vec![
        ["name".to_owned(), output::visible(&detail.name)],
        ["bytes".to_owned(), size],
        ["files".to_owned(), detail.files.to_string()],
        ["last change".to_owned(), time(detail.modified)],
    ];
    if detail.closed > 0 {
        let closed =
            format!("{} (directories without rights for their owner, not counted above)", detail.closed);
        rows.insert(3, ["closed".to_owned(), closed]);
    }
    output::table(&rows)
}

/// `2026-11-30T04:05:06Z`.
fn time(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| format!("{seconds} s"), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_times_and_sizes_they_can_read() {
        let workspaces = [("a", 0), ("my-project", 1_764_489_600)]
            .map(|(name, modified)| WorkspaceInfo { name: name.into(), modified });
        let expected =
            "NAME        LAST CHANGE\na           1970-01-01T00:00:00Z\nmy-project  2025-11-30T08:00:00Z\n";
        assert_eq!(listing(&workspaces), expected);
        let detail =
            WorkspaceDetail { name: "a".into(), modified: u64::MAX, bytes: 3 << 20, files: 7, closed: 0 };
        let expected = "name         a\nbytes        3145728 (3M)\nfiles        7\nlast change  18446744073709551615 s\n";
        assert_eq!(description(&detail), expected);
        let closed = description(&WorkspaceDetail { closed: 2, ..detail });
        assert!(closed.contains("closed       2 (directories without rights for their owner"), "{closed}");
    }
}
