//! One line for people about an end that the exit status alone does not explain.

use cordon_protocol::{Bytes, EndedBy, ExitReport, counted};

/// What ended the command and what to do about it; for a plain exit or signal only where the report has a hint.
pub(crate) fn of_report(report: &ExitReport) -> Option<String> {
    let (cause, otherwise) = match report.ended_by {
        EndedBy::Exit | EndedBy::Signal => {
            let hint = report.hint.as_ref()?;
            return Some(format!("refused by {}: {}; {}", hint.layer, hint.what, hint.remedy));
        }
        EndedBy::WallTimeout => (
            format!("ended by wall_timeout after {:.0} ms", report.wall_ms),
            "allow more time with --timeout".to_owned(),
        ),
        EndedBy::CpuTimeout => (
            format!("ended by cpu_timeout after {:.0} ms of processor time", report.cpu_ms),
            "raise cpu_time in the profile, or do less".to_owned(),
        ),
        EndedBy::OutOfMemory => {
            let peak = report.peak_memory_bytes.map(|b| format!(" at {}", Bytes(b)));
            let cause = format!("ended by out_of_memory{}", peak.unwrap_or_default());
            (cause, "allow more with --memory".to_owned())
        }
        EndedBy::OutputLimit => {
            let bytes = report.stdout_bytes.saturating_add(report.stderr_bytes);
            let cause = format!("ended by output_limit after {} of output", counted(bytes, "byte"));
            (cause, "allow more with --output".to_owned())
        }
        EndedBy::DiskLimit => {
            ("ended by disk_limit".to_owned(), "the workspace is full; write less".to_owned())
        }
        EndedBy::Cancelled => {
            let who = "somebody used `cordon kill`, or the executor is ending";
            ("ended by cancelled".to_owned(), who.to_owned())
        }
        EndedBy::LaunchFailed => launch_failed(report),
    };
    Some(match &report.hint {
        Some(hint) => format!("{cause}: {}; {}", hint.what, hint.remedy),
        None => format!("{cause}; {otherwise}"),
    })
}

fn launch_failed(report: &ExitReport) -> (String, String) {
    let step = report.step.as_deref().unwrap_or("unknown");
    let cause = format!("launch failed at step {step}");
    let remedy = match (step, report.exit_code) {
        ("exec", Some(127)) => "the program, or its interpreter, is not there inside the sandbox",
        ("exec", _) => "the program is not an executable file",
        _ => "nothing was run; `cordon doctor` shows what this host enforces",
    };
    (cause, remedy.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::run::sample;
    use cordon_protocol::Hint;

    fn line(ended_by: EndedBy) -> Option<String> {
        of_report(&ExitReport { ended_by, ..sample() })
    }

    #[test]
    fn plain_ends_need_no_words() {
        assert_eq!(line(EndedBy::Exit), None);
        assert_eq!(line(EndedBy::Signal), None);
    }

    #[test]
    fn a_hint_is_told_after_a_plain_end_too() {
        let hint = Hint { layer: "network".into(), what: "no way".into(), remedy: "make one".into() };
        let line = of_report(&ExitReport { ended_by: EndedBy::Exit, hint: Some(hint), ..sample() });
        assert_eq!(line.as_deref(), Some("refused by network: no way; make one"));
    }

    #[test]
    fn each_other_end_is_named_with_its_figure_and_remedy() {
        let lines = [
            (EndedBy::WallTimeout, "ended by wall_timeout after 1000 ms; allow more time with --timeout"),
            (EndedBy::OutOfMemory, "ended by out_of_memory at 1M; allow more with --memory"),
            (EndedBy::OutputLimit, "ended by output_limit after 0 bytes of output; allow more with --output"),
        ];
        for (ended_by, expected) in lines {
            assert_eq!(line(ended_by).as_deref(), Some(expected));
        }
        for ended_by in [EndedBy::CpuTimeout, EndedBy::DiskLimit, EndedBy::Cancelled] {
            assert!(line(ended_by).unwrap().starts_with("ended by "));
        }
    }

    #[test]
    fn a_failed_launch_names_its_step_and_a_hint_beats_the_general_remedy() {
        let mut report = ExitReport {
            ended_by: EndedBy::LaunchFailed,
            step: Some("exec".into()),
            exit_code: Some(127),
            ..sample()
        };
        let text = of_report(&report).unwrap();
        assert_eq!(
            text,
            "launch failed at step exec; the program, or its interpreter, is not there inside the sandbox"
        );
        let hint = Hint { layer: "exec".into(), what: "/x: no such file".into(), remedy: "name one".into() };
        report.hint = Some(hint);
        let text = of_report(&report).unwrap();
        assert_eq!(text, "launch failed at step exec: /x: no such file; name one");
    }
}
