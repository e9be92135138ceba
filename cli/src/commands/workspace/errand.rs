//! Errands in a workspace: what is done there without a program, as confined as a command, and within the most that
//! its profile allows, as a file may be large.

use crate::{
    commands::{CLIENT, run::explanation},
    failure::Failure,
};
use cordon_protocol::{
    Action, Bytes, CollectedFile, EndedBy, Event, ExitReport, LimitRequest, Millis, RunRequest,
    WorkspaceInfo,
    client::{
        ClientError,
        blocking::{self, Connection},
    },
    limits,
};
use std::{io, path::Path};

/// Errands of one subcommand in one workspace.
#[derive(Debug)]
pub(super) struct Errands<'a> {
    what: &'static str,
    socket: &'a Path,
    name: &'a str,
    profile: Option<&'a str>,
    limits: LimitRequest,
    /// Most that the profile lets a workspace hold.
    most: Option<String>,
}

impl<'a> Errands<'a> {
    /// Asks what the profile allows. One that is not the peer's is refused with the first errand.
    pub(super) fn new(
        what: &'static str,
        socket: &'a Path,
        name: &'a str,
        profile: Option<&'a str>,
    ) -> Result<Self, Failure> {
        let failed = |error| Failure::of_client(what, socket, error);
        let profiles = blocking::profiles(socket, CLIENT).map_err(failed)?;
        let wanted = profile.unwrap_or(limits::DEFAULT_PROFILE);
        let found = profiles.into_iter().find(|profile| profile.name == wanted);
        let ceiling = |limit: &str| {
            let limits = found.iter().flat_map(|profile| &profile.limits);
            limits.filter(|info| info.name == limit).map(|info| info.ceiling.clone()).next()
        };
        let limits = LimitRequest {
            wall_ms: ceiling("wall").and_then(|text| text.parse::<Millis>().ok()).map(|time| time.0),
            output_bytes: ceiling("output").and_then(|text| text.parse::<Bytes>().ok()).map(|size| size.0),
            ..LimitRequest::default()
        };
        Ok(Self { what, socket, name, profile, limits, most: ceiling("named_workspace") })
    }

    /// The workspace, which must be there: to name it in an errand would make it.
    pub(super) fn existing(&self) -> Result<WorkspaceInfo, Failure> {
        let all = blocking::workspaces(self.socket, CLIENT).map_err(|error| self.failed(error))?;
        all.into_iter().find(|workspace| workspace.name == self.name).ok_or_else(|| Failure::Told {
            problem: format!("workspace: there is none of the name `{}`", self.name),
            next: "`cordon workspace list` shows yours; a command that names one makes it".to_owned(),
        })
    }

    /// The workspace's name.
    pub(super) fn name(&self) -> &str {
        self.name
    }

    /// A request for this, with its output in the report.
    pub(super) fn request(&self, action: Action) -> RunRequest {
        RunRequest {
            profile: self.profile.map(str::to_owned),
            workspace: Some(self.name.to_owned()),
            limits: self.limits,
            ..RunRequest::new(action)
        }
    }

    /// Does an errand that has no input; its report, which is of one that ended well, and what it collected.
    pub(super) fn run(&self, request: RunRequest) -> Result<(ExitReport, Vec<CollectedFile>), Failure> {
        let (connection, _input) = self.begin(request)?;
        self.finish(connection)
    }

    /// Sends an errand its input, until it takes no more, and waits for its end.
    ///
    /// # Errors
    /// The outer of what ended all, the inner of reading the input.
    pub(super) fn feed(
        &self,
        request: RunRequest,
        mut from: impl io::Read,
    ) -> Result<io::Result<()>, Failure> {
        let (connection, mut input) = self.begin(RunRequest { stdin: true, ..request })?;
        let mut buffer = vec![0; limits::CHUNK_MAX];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => break drop(input.end()),
                // Why it takes no more is said in its report.
                Ok(length) if input.send(&buffer[..length]).is_err() => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    connection.close();
                    return Ok(Err(error));
                }
            }
        }
        self.finish(connection).map(|_| Ok(()))
    }

    /// Passes the output of an errand on, piece by piece, and waits for its end.
    ///
    /// # Errors
    /// The outer of what ended all, the inner of where the output goes.
    pub(super) fn drain(
        &self,
        request: RunRequest,
        mut to: impl io::Write,
    ) -> Result<io::Result<()>, Failure> {
        let (mut connection, _input) = self.begin(RunRequest { stream: true, ..request })?;
        let mut complaint = Vec::new();
        loop {
            match self.next(&mut connection)? {
                Event::Stdout(piece) => {
                    if let Err(error) = to.write_all(&piece) {
                        connection.close();
                        return Ok(Err(error));
                    }
                }
                Event::Stderr(piece) => {
                    complaint.extend(piece);
                    complaint.truncate(COMPLAINT_MAX);
                }
                Event::Exited(report) => {
                    self.check(&report, &String::from_utf8_lossy(&complaint))?;
                    return Ok(Ok(()));
                }
                _ => return Err(self.failed(ClientError::Unexpected)),
            }
        }
    }

    /// Reads to the report of an errand that ended well.
    fn finish(&self, mut connection: Connection) -> Result<(ExitReport, Vec<CollectedFile>), Failure> {
        let mut collected = Vec::new();
        loop {
            match self.next(&mut connection)? {
                Event::File(file) => collected.push(file),
                Event::Exited(report) => {
                    self.check(&report, report.stderr.as_deref().unwrap_or_default())?;
                    return Ok((*report, collected));
                }
                _ => return Err(self.failed(ClientError::Unexpected)),
            }
        }
    }

    /// The next event that says more than how far it is.
    fn next(&self, connection: &mut Connection) -> Result<Event, Failure> {
        loop {
            match connection.next_event().map_err(|error| self.failed(error))? {
                Event::Queued { .. } | Event::Started { .. } => {}
                event => return Ok(event),
            }
        }
    }

    fn begin(&self, request: RunRequest) -> Result<(Connection, blocking::Stdin), Failure> {
        blocking::run(self.socket, CLIENT, request).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: ClientError) -> Failure {
        Failure::of_client(self.what, self.socket, error)
    }

    /// An errand that did not end well has said why on its standard error, or its report does.
    fn check(&self, report: &ExitReport, complaint: &str) -> Result<(), Failure> {
        let own = matches!(report.ended_by, EndedBy::Exit | EndedBy::Signal);
        let cause = match explanation::of_report(report) {
            None if report.ended_by == EndedBy::Exit && report.exit_code == Some(0) => return Ok(()),
            Some(line) => line,
            None if own && !complaint.trim().is_empty() => complaint.trim().to_owned(),
            None => "it ended without a reason".to_owned(),
        };
        let name = self.name;
        let most = self.most.as_ref().map(|most| format!(", of at most {most} (named_workspace)"));
        let next = format!(
            "`cordon workspace show {name}` says how much it holds{}; `cordon run --workspace {name} -c 'ls -la'` what is there",
            most.unwrap_or_default()
        );
        Err(Failure::new(self.what, cause, next))
    }
}

/// Most that is kept of what an errand complains about, bytes.
const COMPLAINT_MAX: usize = 4 << 10;
