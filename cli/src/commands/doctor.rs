//! `cordon doctor`: what this host enforces, layer by layer, from probes that really tried.

use super::{CLIENT, up::configuration_of};
use crate::{exit_status, failure::Failure, output, sibling, signals::keep_children};
use cordon_protocol::{
    Health, LayerReport,
    client::{ClientError, blocking},
};
use std::{path::Path, process::Command};

const EXAMPLES: &str = "\
Examples:
  cordon doctor             ask the running executor
  sudo cordon doctor        the same; when none runs, probe this host
  cordon doctor --json | jq -r '.[] | select(.health != \"ok\") | .layer'

Exit status: 0 when no layer is missing and the audit trail can be written, ends as it was written and was not \
removed, else 1.";

/// How to show it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print a JSON array
    #[arg(long)]
    pub(super) json: bool,
}

/// Shows the layers; the status says whether all are there.
pub(crate) fn execute(args: &Args, socket: &Path) -> Result<u8, Failure> {
    let (layers, source) = match blocking::doctor(socket, CLIENT) {
        Ok(layers) => (layers, format!("the executor at {} says", socket.display())),
        Err(ClientError::Connect { .. }) if nix::unistd::geteuid().is_root() => {
            (probe(socket)?, format!("no executor answers at {}; probed just now", socket.display()))
        }
        Err(error) => return Err(Failure::of_client("doctor", socket, error)),
    };
    if args.json {
        output::print_json(&layers)?;
    } else {
        output::print(&format!("{source}:\n{}", listing(&layers)))?;
    }
    let missing = layers.iter().any(|layer| layer.health == Health::Missing);
    Ok(if missing { exit_status::FAILURE } else { exit_status::SUCCESS })
}

/// What the executor's program finds when it probes the host itself, as the executor of this socket would be told to.
fn probe(socket: &Path) -> Result<Vec<LayerReport>, Failure> {
    let program = sibling::path("cordon-executor")?;
    let what = format!("probing with {}", program.display());
    let next = "start the executor to see more: `sudo cordon up`";
    keep_children().map_err(|e| Failure::new(&what, e, next))?;
    let mut command = Command::new(&program);
    command.arg("--probe");
    // Else it looks at the system service's.
    if let Some(file) = configuration_of(socket) {
        command.arg("--config").arg(file);
    }
    let probed = command.output();
    let probed = probed.map_err(|e| Failure::new(&what, e, next))?;
    serde_json::from_slice(&probed.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&probed.stderr);
        let last = said.lines().last().unwrap_or("it printed no list of layers");
        Failure::new(&what, format!("{}: {last}", probed.status), next)
    })
}

fn listing(layers: &[LayerReport]) -> String {
    let rows = layers.iter().map(|layer| {
        let health = match layer.health {
            Health::Ok => "ok",
            Health::Lesser => "lesser",
            Health::Missing => "MISSING",
        };
        let remedy = layer.remedy.as_deref().filter(|_| layer.health != Health::Ok);
        let remedy = remedy.map(|r| format!("; {r}")).unwrap_or_default();
        let detail = format!("{}{remedy}", layer.detail);
        [format!("  {}", output::visible(&layer.layer)), health.to_owned(), output::visible(&detail)]
    });
    output::table(&rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_stand_where_something_is_to_be_done() {
        let layer = |name: &str, health| LayerReport {
            layer: name.into(),
            health,
            detail: "seen".into(),
            remedy: Some("do it".into()),
        };
        let layers = [layer("landlock", Health::Ok), layer("cgroup", Health::Lesser)];
        assert_eq!(listing(&layers), "  landlock  ok      seen\n  cgroup    lesser  seen; do it\n");
    }
}
