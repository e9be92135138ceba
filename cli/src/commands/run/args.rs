//! What `cordon run` takes, and the request that comes of it.

use super::files;
use crate::{commands::workspace, failure::Failure, source};
use cordon_protocol::{Action, Bytes, LimitRequest, Millis, RunRequest};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cordon run -- python3 -c 'print(6 * 7)'
  cordon run -c 'grep -r TODO . | head'
  cordon run --timeout 5s --memory 256M --pids 32 -- make test
  tar c src | cordon run -c 'tar x && wc -l src/*'
  cordon run --json -c 'exit 3' | jq .exit_code
  cordon run --file main.c=src/main.c --collect a.out --into build -- gcc main.c
  cordon run --workspace proj -c 'python3 -m venv env && env/bin/pip --version'

Sizes take K, M or G (1024); times ms, s, m or h. Output passes through as it comes; with --json one \
report is printed instead. The workspace is the home directory, where the command starts: a private one that goes \
with it, or a named one that stays.

Patterns of --collect are as a shell's, `**` standing for any directories, and a `/` at the end for all that is in the directories that match. At most 256 files of 4M each and 16M \
together are collected, whatever ended the command. Each keeps its path below DIR and its permission bits, less those \
that umask takes; nothing is written outside DIR, through a link, or over what is not a regular file. One that could \
not be collected whole or written is told on standard error, and makes the exit status 125 where the command's own \
would be 0. Without --into they are in the `collected` of --json's report, which tells of such a one instead.

With --json a refusal or failure of Cordon's own is {\"error\":{\"code\",\"message\",\"hint\"}} on standard output, and told on \
standard error as well.

Exit status: the command's own; 128+N when signal N ended it; 124 time-out; 137 out of memory; 141 output \
limit; 130 cancelled; 122 disk limit; 126 not executable; 127 not found; 125 when Cordon itself failed or \
refused.";

/// What to run and within which limits.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, after_help = EXAMPLES, override_usage = "cordon run [OPTIONS] -- CMD [ARG]...\n       cordon run [OPTIONS] -c LINE")]
pub(crate) struct Args {
    /// Run a line for the profile's shell (`bash -c LINE`)
    #[arg(
        short = 'c',
        value_name = "LINE",
        allow_hyphen_values = true,
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    line: Option<String>,
    /// Profile to run under [default: default]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Most time by the clock, as in 90s
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    timeout: Option<Millis>,
    /// Most memory of all processes together, as in 512M
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    memory: Option<Bytes>,
    /// Most processes and threads
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole_number)]
    pids: Option<u64>,
    /// Most output of both streams together; more ends the command
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    output: Option<Bytes>,
    /// Output of each stream that the report of --json keeps (head and tail)
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    capture: Option<Bytes>,
    /// Working directory inside the sandbox [default: the workspace]
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Named workspace, made where there is none; what the command leaves in it stays [default: a private one]
    #[arg(long, value_name = "NAME", value_parser = workspace::name)]
    workspace: Option<String>,
    /// Put a local file into the workspace first, with its permission bits; may be given more than once
    #[arg(long = "file", value_name = "PATH=LOCAL", value_parser = file_entry, value_hint = clap::ValueHint::FilePath)]
    files: Vec<(String, PathBuf)>,
    /// Collect the files that match a pattern after the command's end; may be given more than once
    #[arg(long, value_name = "GLOB", value_parser = pattern)]
    pub(super) collect: Vec<String>,
    /// Directory that collected files are written into; made where there is none
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(super) into: Option<PathBuf>,
    /// Set an environment variable; may be given more than once
    #[arg(long, value_name = "NAME=VALUE", value_parser = environment_entry)]
    env: Vec<(String, String)>,
    /// Do not pass standard input on: the command reads /dev/null
    #[arg(short = 'n', long)]
    pub(super) no_stdin: bool,
    /// Print one report as JSON instead of the output
    #[arg(long)]
    pub(in crate::commands) json: bool,
    /// Program and its arguments, no shell between
    #[arg(last = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<String>,
}

fn whole_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "not a whole number; write it in digits, as in 32".to_owned())
}

fn environment_entry(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("not of the form NAME=VALUE".to_owned()),
    }
}

/// A path in the workspace and a file of ours.
fn file_entry(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((_, "-")) => Err("`-` is not taken: standard input is the command's; name a file".to_owned()),
        Some((path, local)) if !local.is_empty() => {
            source::check_path(path).map_err(|problem| format!("PATH: {problem}"))?;
            Ok((path.to_owned(), PathBuf::from(local)))
        }
        _ => Err("not of the form PATH=LOCAL".to_owned()),
    }
}

/// What it matches; one that ends in `/` stands for all that is in directories.
fn pattern(text: &str) -> Result<String, String> {
    source::check_path(text.strip_suffix('/').unwrap_or(text)).map(|()| text.to_owned())
}

impl Args {
    /// The request, with the files of ours read.
    pub(super) fn into_request(self) -> Result<RunRequest, Failure> {
        let action = match self.line {
            Some(line) => Action::Line(line),
            None => Action::Argv(self.command),
        };
        Ok(RunRequest {
            profile: self.profile,
            workspace: self.workspace,
            files: files::read(&self.files)?,
            collect: self.collect,
            cwd: self.cwd,
            env: self.env,
            stdin: !self.no_stdin,
            stream: !self.json,
            limits: LimitRequest {
                wall_ms: self.timeout.map(|t| t.0),
                memory_bytes: self.memory.map(|b| b.0),
                pids: self.pids,
                output_bytes: self.output.map(|b| b.0),
                capture_bytes: self.capture.map(|b| b.0),
                ..LimitRequest::default()
            },
            ..RunRequest::new(action)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Result<RunRequest, String> {
        let words = ["run"].iter().chain(words);
        Alone::try_parse_from(words).map(|a| a.args.into_request().unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn options_become_the_request() {
        let words = [
            "--timeout",
            "1500ms",
            "--profile",
            "p",
            "--memory",
            "64M",
            "--pids",
            "9",
            "--output",
            "1G",
            "--capture",
            "0",
            "--cwd",
            "/tmp",
            "--workspace",
            "w-1",
            "--collect",
            "out/**/*.o",
            "--collect",
            ".env",
            "--env",
            "A=b=c",
            "--env",
            "D=",
            "-n",
            "--json",
            "--",
            "ls",
            "--env",
        ];
        let request = parse(&words).unwrap();
        let expected = RunRequest {
            profile: Some("p".into()),
            cwd: Some("/tmp".into()),
            workspace: Some("w-1".into()),
            collect: vec!["out/**/*.o".into(), ".env".into()],
            env: vec![("A".into(), "b=c".into()), ("D".into(), String::new())],
            limits: LimitRequest {
                wall_ms: Some(1500),
                memory_bytes: Some(64 << 20),
                pids: Some(9),
                output_bytes: Some(1 << 30),
                capture_bytes: Some(0),
                ..LimitRequest::default()
            },
            ..RunRequest::new(Action::Argv(vec!["ls".into(), "--env".into()]))
        };
        assert_eq!(request, expected);
    }

    #[test]
    fn options_stand_on_either_side_of_the_line_which_may_look_like_one() {
        for words in [["-c", "-x", "--timeout", "1s"], ["--timeout", "1s", "-c", "-x"]] {
            let request = parse(&words).unwrap();
            assert_eq!(request.action, Action::Line("-x".into()));
            assert_eq!(request.limits.wall_ms, Some(1000));
            assert!(request.stdin && request.stream);
        }
    }

    #[test]
    fn one_of_line_and_command_and_nothing_unclear() {
        for (words, says) in [
            (&[][..], "not provided"),
            (&["-c", "x", "--", "y"], "cannot be used with"),
            (&["ls"], "unexpected argument 'ls'"),
            (&["-c", "x", "--memory", "1T"], "not a size"),
            (&["-c", "x", "--timeout", "60"], "not a time"),
            (&["-c", "x", "--timeout", "-1s"], "not a time"),
            (&["-c", "x", "--pids", "-1"], "not a whole number"),
            (&["-c", "x", "--pids", "many"], "not a whole number"),
            (&["-c", "x", "--env", "=v"], "NAME=VALUE"),
            (&["-c", "x", "--env", "A"], "NAME=VALUE"),
            (&["-c", "x", "--workspace", "../x"], "'--workspace <NAME>': not a name: "),
            (&["-c", "x", "--workspace", ""], "'--workspace <NAME>'"),
            (&["-c", "x", "--file", "a"], "'--file <PATH=LOCAL>': not of the form PATH=LOCAL"),
            (&["-c", "x", "--file", "a="], "not of the form PATH=LOCAL"),
            (&["-c", "x", "--file", "a=-"], "`-` is not taken"),
            (&["-c", "x", "--file", "../a=b"], "'--file <PATH=LOCAL>': PATH: not a path relative"),
            (&["-c", "x", "--file", "/a=b"], "PATH: not a path relative"),
            (&["-c", "x", "--collect", "/etc/*"], "'--collect <GLOB>': not a path relative"),
            (&["-c", "x", "--collect", "a/../../*"], "'--collect <GLOB>': not a path relative"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(says), "{words:?}: {error}");
        }
    }
}
