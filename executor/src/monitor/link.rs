//! Messages between monitor and server: fixed-size, over a SEQPACKET pair, descriptors beside them.
//!
//! Fixed-size so that the root half parses nothing: a field stands at its offset or the message is
//! refused whole. Nothing that a client wrote is in them but a profile's name; what is to be run travels
//! in a sealed memfd that the monitor forwards unread. `docs/architecture.md` has the table of which
//! message is allowed when.

use cordon_protocol::{CgroupMode, EndedBy, LimitName, NamespaceName, NetworkMode, limits};

/// Bytes of every message in both directions.
pub const MESSAGE_LEN: usize = 512;
/// A message as it travels.
pub type Message = [u8; MESSAGE_LEN];

/// Number of a connection, given by the monitor when it accepts; never reused.
pub type ConnectionId = u64;
/// Number of a command, unique over restarts; `id` in the report is its sixteen hexadecimal digits.
pub type JobId = u64;

/// A message that is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed link message")]
pub struct Malformed;

/// Limits as a request asks for them; none is the profile's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AskedLimits {
    /// Milliseconds.
    pub wall_ms: Option<u64>,
    /// Milliseconds.
    pub cpu_time_ms: Option<u64>,
    /// Bytes.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Percent of one processor.
    pub cpu_percent: Option<u64>,
    /// Bytes; the server counts, the monitor only checks the ceiling.
    pub output_bytes: Option<u64>,
    /// Bytes; as `output_bytes`.
    pub capture_bytes: Option<u64>,
}

/// Server to monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToMonitor {
    /// Launch a command for this connection's peer. One descriptor: the sealed request.
    Launch {
        /// Whose.
        connection: ConnectionId,
        /// Name of the profile.
        profile: String,
        /// True: standard input is a pipe; false: `/dev/null`.
        stdin: bool,
        /// What the request asks for.
        limits: AskedLimits,
    },
    /// End this connection's own command: the client went away, or asked.
    Cancel(ConnectionId),
    /// End this connection's own command: it produced more than it may.
    OutputExceeded(ConnectionId),
    /// End the command of that number, if it is the connection's peer's own.
    KillJob {
        /// Who asks.
        connection: ConnectionId,
        /// Which.
        job: JobId,
    },
    /// The output of an ended command has been read to its end, or the grace is over.
    Drained(ConnectionId),
    /// The connection is closed; its number is free of duties.
    Closed(ConnectionId),
    /// Answer to `Ping`.
    Pong,
}

/// Monitor to server.
#[derive(Debug, Clone, PartialEq)]
pub enum ToServer {
    /// A peer has connected. One descriptor: its socket.
    Connection {
        /// Its number.
        connection: ConnectionId,
        /// The peer's uid, from the kernel.
        uid: u32,
    },
    /// The launch was accepted. Descriptors: standard output, standard error, and standard input when it
    /// was asked for: the server's ends of the pipes.
    Launched {
        /// Whose.
        connection: ConnectionId,
        /// Its number.
        job: JobId,
        /// What the profile and the request come to, for the server to count by.
        output_bytes: u64,
        /// As above.
        capture_bytes: u64,
    },
    /// The command's program has been executed.
    Executed(ConnectionId),
    /// The command's process has ended (or never started); what is left in the pipes is all there is.
    Ended {
        /// Whose.
        connection: ConnectionId,
        /// How.
        outcome: Outcome,
    },
    /// The launch was refused; nothing was started.
    LaunchRefused {
        /// Whose.
        connection: ConnectionId,
        /// Why.
        refusal: LaunchRefusal,
    },
    /// Answer to `KillJob`.
    KillAnswer {
        /// Who asked.
        connection: ConnectionId,
        /// There was such a command and it has been told to end.
        found: bool,
    },
    /// Take no more requests; the executor is ending.
    Drain,
    /// Are you there?
    Ping,
}

/// Why the monitor refuses a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchRefusal {
    /// The connection is not one that may launch now.
    OutOfOrder,
    /// No such profile, or not for this peer.
    UnknownProfile,
    /// Above the ceiling.
    AboveCeiling {
        /// Which limit.
        limit: LimitField,
        /// Asked for.
        value: u64,
        /// Most.
        ceiling: u64,
    },
    /// Zero, or below what a command needs to start.
    BelowFloor {
        /// Which limit.
        limit: LimitField,
        /// Asked for.
        value: u64,
        /// Least.
        floor: u64,
    },
    /// The request is not a sealed memfd of allowed size.
    BadRequestFile,
    /// The peer has as many commands as it may.
    Busy {
        /// Commands of one peer at once.
        concurrency: u32,
    },
    /// The executor is ending.
    ShuttingDown,
}

/// The limits a request can name, in the order of the manual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitField {
    /// `wall`, milliseconds.
    Wall,
    /// `cpu_time`, milliseconds.
    CpuTime,
    /// `memory`, bytes.
    Memory,
    /// `pids`.
    Pids,
    /// `cpu`, percent.
    Cpu,
    /// `capture`, bytes.
    Capture,
    /// `output`, bytes.
    Output,
}

impl LimitField {
    /// Every limit, in the order of the manual; the index is its number on the link.
    pub const ALL: [Self; 7] =
        [Self::Wall, Self::CpuTime, Self::Memory, Self::Pids, Self::Cpu, Self::Capture, Self::Output];

    /// The name in configuration and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::CpuTime => "cpu_time",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::Capture => "capture",
            Self::Output => "output",
        }
    }

    /// A value of this limit as people write it.
    pub fn show(self, value: u64) -> String {
        match self {
            Self::Wall | Self::CpuTime => cordon_protocol::Millis(value).to_string(),
            Self::Memory | Self::Capture | Self::Output => cordon_protocol::Bytes(value).to_string(),
            Self::Pids => value.to_string(),
            Self::Cpu => format!("{value}%"),
        }
    }
}

/// How a command ended, as the monitor saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Cause recorded first.
    pub ended_by: EndedBy,
    /// Exit status, where it exited or could not be executed.
    pub exit_code: Option<i32>,
    /// Signal number.
    pub signal: Option<i32>,
    /// Launch step that failed.
    pub step: Option<String>,
    /// errno of that step; 0 where there is none.
    pub errno: i32,
    /// What the step says about it (a path), cut to fit; from the command's own process: not to be trusted.
    pub detail: String,
    /// Microseconds by the clock.
    pub wall_us: u64,
    /// Microseconds of processor time.
    pub cpu_us: u64,
    /// Bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Limits that were reached.
    pub limits_hit: Vec<LimitName>,
    /// What held.
    pub enforced: OutcomeEnforced,
}

/// What held while a command ran, in numbers; `capabilities` is a bit set as in `/proc/PID/status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeEnforced {
    /// Uid of the command.
    pub uid: u32,
    /// Mode.
    pub cgroup: CgroupMode,
    /// ABI; 0 is none.
    pub landlock_abi: u32,
    /// Filter loaded.
    pub seccomp: bool,
    /// Namespaces of its own.
    pub namespaces: Vec<NamespaceName>,
    /// What of the network it reached.
    pub network: NetworkMode,
    /// Union of all sets.
    pub capabilities: u64,
}

const STEP_LEN: usize = 32;
const DETAIL_LEN: usize = 256;
const UNSET: u64 = u64::MAX;
/// The values of each enumeration by their number on the link.
const ENDED_BY: [EndedBy; 9] = [
    EndedBy::Exit,
    EndedBy::Signal,
    EndedBy::WallTimeout,
    EndedBy::CpuTimeout,
    EndedBy::OutOfMemory,
    EndedBy::OutputLimit,
    EndedBy::DiskLimit,
    EndedBy::Cancelled,
    EndedBy::LaunchFailed,
];
const LIMIT_NAMES: [LimitName; 7] = [
    LimitName::Memory,
    LimitName::Pids,
    LimitName::CpuTime,
    LimitName::Wall,
    LimitName::Output,
    LimitName::Disk,
    LimitName::FileSize,
];
const NAMESPACES: [NamespaceName; 5] =
    [NamespaceName::Pid, NamespaceName::Mount, NamespaceName::Ipc, NamespaceName::Uts, NamespaceName::Net];
const CGROUPS: [CgroupMode; 3] = [CgroupMode::V2, CgroupMode::Sampled, CgroupMode::None];
const NETWORKS: [NetworkMode; 3] = [NetworkMode::None, NetworkMode::Services, NetworkMode::Host];

/// Writes fields one after the other; a message is far larger than what is ever written.
struct Writer {
    message: Message,
    at: usize,
}

impl Writer {
    fn new(kind: u64) -> Self {
        let mut writer = Self { message: [0; MESSAGE_LEN], at: 0 };
        writer.number(kind);
        writer
    }

    fn number(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes(), 8);
    }

    fn optional(&mut self, value: Option<u64>) {
        self.number(value.unwrap_or(UNSET));
    }

    /// A signed 32-bit value or none.
    fn optional_i32(&mut self, value: Option<i32>) {
        self.optional(value.map(|v| u64::from(u32::from_le_bytes(v.to_le_bytes()))));
    }

    /// The first `room` bytes of `bytes`, padded with zeros.
    fn bytes(&mut self, bytes: &[u8], room: usize) {
        let taken = bytes.len().min(room);
        if let Some(target) = self.message.get_mut(self.at..self.at + taken) {
            target.copy_from_slice(&bytes[..taken]);
        }
        self.at += room;
    }

    /// Text cut to `room` bytes at a character's boundary.
    fn text(&mut self, text: &str, room: usize) {
        let mut end = text.len().min(room);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes(&text.as_bytes()[..end], room);
    }

    fn index<T: PartialEq>(&mut self, values: &[T], value: &T) {
        self.optional(values.iter().position(|v| v == value).map(|i| i as u64));
    }

    fn set<T: PartialEq>(&mut self, values: &[T], members: &[T]) {
        let bit = |(i, v): (usize, &T)| u64::from(members.contains(v)) << i;
        self.number(values.iter().enumerate().map(bit).sum());
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (field, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(field)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.bytes(8)?.try_into().map_err(|_| Malformed)?))
    }

    fn optional(&mut self) -> Result<Option<u64>, Malformed> {
        Ok(Some(self.number()?).filter(|v| *v != UNSET))
    }

    fn number_u32(&mut self) -> Result<u32, Malformed> {
        self.number()?.try_into().map_err(|_| Malformed)
    }

    fn optional_i32(&mut self) -> Result<Option<i32>, Malformed> {
        let value = self.optional()?.map(u32::try_from).transpose().map_err(|_| Malformed)?;
        Ok(value.map(|v| i32::from_le_bytes(v.to_le_bytes())))
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    fn text(&mut self, room: usize) -> Result<String, Malformed> {
        let field = self.bytes(room)?;
        let end = field.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        String::from_utf8(field[..end].to_vec()).map_err(|_| Malformed)
    }

    fn index<T: Copy>(&mut self, values: &[T]) -> Result<T, Malformed> {
        let index = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        values.get(index).copied().ok_or(Malformed)
    }

    fn set<T: Copy>(&mut self, values: &[T]) -> Result<Vec<T>, Malformed> {
        let bits = self.number()?;
        if bits >> values.len() != 0 {
            return Err(Malformed);
        }
        let member = |(i, v): (usize, &T)| (bits >> i & 1 == 1).then_some(*v);
        Ok(values.iter().enumerate().filter_map(member).collect())
    }

    /// The rest must be zero, so that a message means one thing only.
    fn end(self) -> Result<(), Malformed> {
        if self.rest.iter().all(|b| *b == 0) { Ok(()) } else { Err(Malformed) }
    }
}

impl AskedLimits {
    /// The value asked for a limit.
    pub fn get(&self, field: LimitField) -> Option<u64> {
        match field {
            LimitField::Wall => self.wall_ms,
            LimitField::CpuTime => self.cpu_time_ms,
            LimitField::Memory => self.memory_bytes,
            LimitField::Pids => self.pids,
            LimitField::Cpu => self.cpu_percent,
            LimitField::Capture => self.capture_bytes,
            LimitField::Output => self.output_bytes,
        }
    }

    fn write(&self, writer: &mut Writer) {
        for field in LimitField::ALL {
            writer.optional(self.get(field));
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            wall_ms: reader.optional()?,
            cpu_time_ms: reader.optional()?,
            memory_bytes: reader.optional()?,
            pids: reader.optional()?,
            cpu_percent: reader.optional()?,
            capture_bytes: reader.optional()?,
            output_bytes: reader.optional()?,
        })
    }
}

impl ToMonitor {
    /// The message's bytes.
    pub fn encode(&self) -> Message {
        let simple = |kind, connection: ConnectionId| {
            let mut writer = Writer::new(kind);
            writer.number(connection);
            writer.message
        };
        match self {
            Self::Launch { connection, profile, stdin, limits } => {
                let mut writer = Writer::new(1);
                writer.number(*connection);
                writer.text(profile, limits::NAME_MAX_BYTES);
                writer.number(u64::from(*stdin));
                limits.write(&mut writer);
                writer.message
            }
            Self::Cancel(connection) => simple(2, *connection),
            Self::OutputExceeded(connection) => simple(3, *connection),
            Self::KillJob { connection, job } => {
                let mut writer = Writer::new(4);
                writer.number(*connection);
                writer.number(*job);
                writer.message
            }
            Self::Drained(connection) => simple(5, *connection),
            Self::Closed(connection) => simple(6, *connection),
            Self::Pong => Writer::new(7).message,
        }
    }

    /// The message in these bytes.
    ///
    /// # Errors
    /// When they are not exactly one.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let message: &Message = bytes.try_into().map_err(|_| Malformed)?;
        let mut reader = Reader { rest: message };
        let decoded = match reader.number()? {
            1 => Self::Launch {
                connection: reader.number()?,
                profile: reader.text(limits::NAME_MAX_BYTES)?,
                stdin: reader.flag()?,
                limits: AskedLimits::read(&mut reader)?,
            },
            2 => Self::Cancel(reader.number()?),
            3 => Self::OutputExceeded(reader.number()?),
            4 => Self::KillJob { connection: reader.number()?, job: reader.number()? },
            5 => Self::Drained(reader.number()?),
            6 => Self::Closed(reader.number()?),
            7 => Self::Pong,
            _ => return Err(Malformed),
        };
        reader.end()?;
        Ok(decoded)
    }
}

impl ToServer {
    /// The message's bytes.
    pub fn encode(&self) -> Message {
        let mut writer;
        match self {
            Self::Connection { connection, uid } => {
                writer = Writer::new(1);
                writer.number(*connection);
                writer.number(u64::from(*uid));
            }
            Self::Launched { connection, job, output_bytes, capture_bytes } => {
                writer = Writer::new(2);
                for number in [*connection, *job, *output_bytes, *capture_bytes] {
                    writer.number(number);
                }
            }
            Self::Executed(connection) => {
                writer = Writer::new(3);
                writer.number(*connection);
            }
            Self::Ended { connection, outcome } => {
                writer = Writer::new(4);
                writer.number(*connection);
                outcome.write(&mut writer);
            }
            Self::LaunchRefused { connection, refusal } => {
                writer = Writer::new(5);
                writer.number(*connection);
                refusal.write(&mut writer);
            }
            Self::KillAnswer { connection, found } => {
                writer = Writer::new(6);
                writer.number(*connection);
                writer.number(u64::from(*found));
            }
            Self::Drain => writer = Writer::new(7),
            Self::Ping => writer = Writer::new(8),
        }
        writer.message
    }

    /// The message in these bytes.
    ///
    /// # Errors
    /// When they are not exactly one.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let message: &Message = bytes.try_into().map_err(|_| Malformed)?;
        let mut reader = Reader { rest: message };
        let decoded = match reader.number()? {
            1 => Self::Connection { connection: reader.number()?, uid: reader.number_u32()? },
            2 => Self::Launched {
                connection: reader.number()?,
                job: reader.number()?,
                output_bytes: reader.number()?,
                capture_bytes: reader.number()?,
            },
            3 => Self::Executed(reader.number()?),
            4 => Self::Ended { connection: reader.number()?, outcome: Outcome::read(&mut reader)? },
            5 => {
                let connection = reader.number()?;
                Self::LaunchRefused { connection, refusal: LaunchRefusal::read(&mut reader)? }
            }
            6 => Self::KillAnswer { connection: reader.number()?, found: reader.flag()? },
            7 => Self::Drain,
            8 => Self::Ping,
            _ => return Err(Malformed),
        };
        reader.end()?;
        Ok(decoded)
    }
}

impl LaunchRefusal {
    fn write(&self, writer: &mut Writer) {
        let limit = |writer: &mut Writer, kind, limit: &LimitField, value, bound| {
            writer.number(kind);
            writer.index(&LimitField::ALL, limit);
            writer.number(value);
            writer.number(bound);
        };
        match self {
            Self::OutOfOrder => writer.number(1),
            Self::UnknownProfile => writer.number(2),
            Self::AboveCeiling { limit: field, value, ceiling } => limit(writer, 3, field, *value, *ceiling),
            Self::BelowFloor { limit: field, value, floor } => limit(writer, 4, field, *value, *floor),
            Self::BadRequestFile => writer.number(5),
            Self::Busy { concurrency } => {
                writer.number(6);
                writer.number(u64::from(*concurrency));
            }
            Self::ShuttingDown => writer.number(7),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match reader.number()? {
            1 => Self::OutOfOrder,
            2 => Self::UnknownProfile,
            3 => Self::AboveCeiling {
                limit: reader.index(&LimitField::ALL)?,
                value: reader.number()?,
                ceiling: reader.number()?,
            },
            4 => Self::BelowFloor {
                limit: reader.index(&LimitField::ALL)?,
                value: reader.number()?,
                floor: reader.number()?,
            },
            5 => Self::BadRequestFile,
            6 => Self::Busy { concurrency: reader.number_u32()? },
            7 => Self::ShuttingDown,
            _ => return Err(Malformed),
        })
    }
}

impl Outcome {
    fn write(&self, writer: &mut Writer) {
        writer.index(&ENDED_BY, &self.ended_by);
        writer.optional_i32(self.exit_code);
        writer.optional_i32(self.signal);
        writer.text(self.step.as_deref().unwrap_or_default(), STEP_LEN);
        writer.optional_i32(Some(self.errno));
        writer.text(&self.detail, DETAIL_LEN);
        writer.number(self.wall_us);
        writer.number(self.cpu_us);
        writer.optional(self.peak_memory_bytes);
        writer.set(&LIMIT_NAMES, &self.limits_hit);
        let enforced = &self.enforced;
        writer.number(u64::from(enforced.uid));
        writer.index(&CGROUPS, &enforced.cgroup);
        writer.number(u64::from(enforced.landlock_abi));
        writer.number(u64::from(enforced.seccomp));
        writer.set(&NAMESPACES, &enforced.namespaces);
        writer.index(&NETWORKS, &enforced.network);
        writer.number(enforced.capabilities);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            ended_by: reader.index(&ENDED_BY)?,
            exit_code: reader.optional_i32()?,
            signal: reader.optional_i32()?,
            step: Some(reader.text(STEP_LEN)?).filter(|s| !s.is_empty()),
            errno: reader.optional_i32()?.ok_or(Malformed)?,
            detail: reader.text(DETAIL_LEN)?,
            wall_us: reader.number()?,
            cpu_us: reader.number()?,
            peak_memory_bytes: reader.optional()?,
            limits_hit: reader.set(&LIMIT_NAMES)?,
            enforced: OutcomeEnforced {
                uid: reader.number_u32()?,
                cgroup: reader.index(&CGROUPS)?,
                landlock_abi: reader.number_u32()?,
                seccomp: reader.flag()?,
                namespaces: reader.set(&NAMESPACES)?,
                network: reader.index(&NETWORKS)?,
                capabilities: reader.number()?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        Outcome {
            ended_by: EndedBy::LaunchFailed,
            exit_code: Some(-3),
            signal: None,
            step: Some("exec".into()),
            errno: 2,
            detail: "/no/such".into(),
            wall_us: 1,
            cpu_us: 2,
            peak_memory_bytes: None,
            limits_hit: vec![LimitName::Pids, LimitName::FileSize],
            enforced: OutcomeEnforced {
                uid: 999,
                cgroup: CgroupMode::Sampled,
                landlock_abi: 7,
                seccomp: true,
                namespaces: NAMESPACES.to_vec(),
                network: NetworkMode::None,
                capabilities: 0,
            },
        }
    }

    #[test]
    fn every_message_round_trips() {
        let limits = AskedLimits { wall_ms: Some(5), pids: Some(7), ..AskedLimits::default() };
        let launch = ToMonitor::Launch { connection: 4, profile: "default".into(), stdin: true, limits };
        let kill = ToMonitor::KillJob { connection: 1, job: 9 };
        let more =
            [ToMonitor::Cancel(1), ToMonitor::OutputExceeded(2), ToMonitor::Drained(3), ToMonitor::Pong];
        for message in [launch, kill, ToMonitor::Closed(8)].into_iter().chain(more) {
            assert_eq!(ToMonitor::decode(&message.encode()), Ok(message));
        }
        let above = LaunchRefusal::AboveCeiling { limit: LimitField::Memory, value: 9, ceiling: 8 };
        for message in [
            ToServer::Connection { connection: 1, uid: 1000 },
            ToServer::Launched { connection: 1, job: 2, output_bytes: 3, capture_bytes: 4 },
            ToServer::Executed(3),
            ToServer::Ended { connection: 1, outcome: outcome() },
            ToServer::LaunchRefused { connection: 1, refusal: above },
            ToServer::LaunchRefused { connection: 1, refusal: LaunchRefusal::Busy { concurrency: 32 } },
            ToServer::KillAnswer { connection: 1, found: true },
            ToServer::Drain,
            ToServer::Ping,
        ] {
            assert_eq!(ToServer::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn other_lengths_kinds_and_trailing_bytes_are_refused() {
        let message = ToMonitor::Cancel(1).encode();
        assert_eq!(ToMonitor::decode(&message[1..]), Err(Malformed));
        assert_eq!(ToMonitor::decode(&[0; MESSAGE_LEN]), Err(Malformed));
        let mut trailing = message;
        trailing[MESSAGE_LEN - 1] = 1;
        assert_eq!(ToMonitor::decode(&trailing), Err(Malformed));
    }

    #[test]
    fn text_is_cut_between_characters_and_the_largest_message_fits() {
        let long = Outcome { detail: "ä".repeat(300), step: Some("s".repeat(99)), ..outcome() };
        let message = ToServer::Ended { connection: u64::MAX, outcome: long };
        let ToServer::Ended { outcome, .. } = ToServer::decode(&message.encode()).unwrap() else { panic!() };
        assert_eq!(outcome.detail, "ä".repeat(DETAIL_LEN / 2));
        assert_eq!(outcome.step.unwrap().len(), STEP_LEN);
        assert_eq!(outcome.enforced.namespaces.len(), 5);
    }
}
