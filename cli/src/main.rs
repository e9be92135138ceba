//! The `cordon` command: arguments in, one command of [`commands`] run, an exit status out.

mod commands;
mod destination;
mod exit_status;
mod failure;
mod not_text;
mod output;
mod sibling;
mod signals;
mod source;
mod stdio;

use clap::{
    CommandFactory, Parser,
    builder::{OsStringValueParser, TypedValueParser},
    error::{ContextKind, ContextValue, ErrorKind},
};
use commands::Command;
use failure::Failure;
use std::{env, ffi::OsString, path::PathBuf, process::ExitCode};

/// Run commands as an unprivileged user behind cgroups, namespaces, Landlock and seccomp.
#[derive(Debug, Parser)]
#[command(name = "cordon", version, after_help = EXAMPLES)]
struct Cli {
    /// The executor's socket
    #[arg(
        long, global = true, value_name = "PATH", value_hint = clap::ValueHint::FilePath,
        env = cordon_protocol::limits::SOCKET_VARIABLE,
        default_value = cordon_protocol::limits::EXECUTOR_SOCKET,
        // An empty one is told when it is used, with the remedy, which clap's message has not.
        value_parser = OsStringValueParser::new().map(PathBuf::from)
    )]
    socket: PathBuf,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  sudo cordon up                        start everything and send one command the whole way
  cordon run -- ls -l /                 run a program in the sandbox
  cordon run -c 'echo $HOME | rev'      run a line for the shell
  cordon doctor                         what this host enforces, and what to do where it does not";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().collect();
    // Not clap's to notice: to it, CORDON_SOCKET is an argument too.
    if arguments.len() < 2 {
        output::complain(Cli::command().render_help().to_string().trim_end());
        return ExitCode::from(exit_status::USAGE);
    }
    if let Some(status) = commands::launch_daemon(&arguments) {
        return ExitCode::from(status);
    }
    let status = match Cli::try_parse_from(&arguments) {
        Ok(cli) => {
            let (otherwise, json) = (cli.command.failure_status(), cli.command.answers_in_json());
            cli.command.execute(&cli.socket).unwrap_or_else(|failure| {
                if json {
                    failure.print_json();
                }
                failure.report(otherwise)
            })
        }
        Err(error) => explain_usage(error, &arguments),
    };
    ExitCode::from(status)
}

/// Prints help where it was asked for, else what is wrong with the arguments; the exit status.
fn explain_usage(mut error: clap::Error, arguments: &[OsString]) -> u8 {
    let of_run = names_run(arguments);
    if of_run {
        name_both_forms(&mut error);
    }
    let status = if of_run { exit_status::CORDON_FAILED } else { exit_status::USAGE };
    let not_text = (error.kind() == ErrorKind::InvalidUtf8).then(|| not_text::explain(arguments, of_run));
    let json = asks_for_json(arguments);
    if let Some((problem, remedy)) = not_text.flatten() {
        if json {
            Failure::bad_request(&problem, remedy).print_json();
        }
        return Failure::new("reading the arguments", problem, remedy).report(status);
    }
    let text = error.render().to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let printed = output::print(&text).map(|()| exit_status::SUCCESS);
        return printed.unwrap_or_else(|failure| failure.report(exit_status::FAILURE));
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        output::complain(text.trim_end());
        return status;
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    if json {
        // What stands before the usage, on one line.
        let problem = text.split("\n\nUsage:").next().unwrap_or(text);
        let words: Vec<_> = problem.split_whitespace().collect();
        Failure::bad_request(words.join(" "), "`--help` shows what can be asked for").print_json();
    }
    output::complain(&format!("cordon: reading the arguments failed: {}", text.trim_end()));
    status
}

/// Says of a `cordon run` that names nothing to run, or names it without `--`, how it is written.
fn name_both_forms(error: &mut clap::Error) {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::MissingRequiredArgument, _) => {
            let forms =
                ["-- CMD [ARG]...   a program and its arguments", "-c LINE            a line for the shell"];
            let forms = forms.map(str::to_owned).to_vec();
            error.insert(ContextKind::InvalidArg, ContextValue::Strings(forms));
        }
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) if !word.starts_with('-') => {
            let tip = format!("the program stands after `--`: cordon run [OPTIONS] -- {word} [ARG]...");
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        _ => {}
    }
}

/// Whether the first word that is not an option is `run`. The arguments could not be parsed, so this
/// looks at no more than the options that may stand before a subcommand.
fn names_run(arguments: &[OsString]) -> bool {
    let mut rest = arguments.iter().skip(1);
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("--socket") => {
                rest.next();
            }
            Some(option) if option.starts_with('-') => {}
            word => return word == Some("run"),
        }
    }
    false
}

/// Whether the answer was to be JSON, as far as can be told of arguments that could not be parsed.
fn asks_for_json(arguments: &[OsString]) -> bool {
    arguments.iter().skip(1).take_while(|word| *word != "--").any(|word| word == "--json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_takes_the_socket_and_shows_an_example() {
        let mut root = Cli::command();
        root.build();
        for command in root.get_subcommands().filter(|c| c.get_name() != "help") {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("--socket"), "{}", command.get_name());
            assert!(help.contains("Example"), "{}", command.get_name());
        }
    }

    #[test]
    fn run_is_found_before_its_arguments_are_understood() {
        for line in ["cordon run --bogus", "cordon --socket run run -- x", "cordon --socket=/s run"] {
            assert!(names_run(&words(line)), "{line}");
        }
        for line in ["cordon", "cordon ps --bogus run", "cordon --socket run", "cordon kill run"] {
            assert!(!names_run(&words(line)), "{line}");
        }
    }

    #[test]
    fn the_socket_stands_before_or_after_the_subcommand() {
        for line in ["cordon --socket /s ps", "cordon ps --socket /s"] {
            assert_eq!(Cli::try_parse_from(words(line)).unwrap().socket, PathBuf::from("/s"));
        }
    }
}
