//! What crosses Cordon's executor socket: frames, requests, events and the exit report.
//!
//! A client connects to a Unix stream socket, sends [`Request::Hello`] and one more request, and reads
//! [`Event`]s. One connection carries one command or one question; closing it ends the command.
//! `docs/protocol.md` describes the bytes, so that another language can speak them.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("Cordon runs on Linux on x86_64 only: its system-call policy is written for that machine");

#[cfg(feature = "audit")]
pub mod audit;
pub mod client;
pub mod codec;
#[cfg(feature = "configuration")]
pub mod configuration;
pub mod limits;
pub mod report;
pub mod request;
pub mod response;
#[cfg(feature = "audit")]
pub mod sealed;
pub mod supervision;
pub mod units;

pub use report::{
    Captured, CgroupMode, Collected, Encoding, EndedBy, Enforced, ExitReport, FullReport, Hint, LimitName,
    NamespaceName, NetworkMode, ServiceUse,
};
pub use request::{Action, FileIn, Hello, LimitRequest, Request, RunRequest};
pub use response::{
    CollectedFile, Event, Health, JobInfo, LayerReport, LimitInfo, ProfileInfo, Refusal, RefusalCode,
    WorkspaceDetail, WorkspaceInfo,
};
pub use units::{Bytes, Millis, counted};
