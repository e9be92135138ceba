//! `GET /healthz`: whether the gateway lives, and whether it can reach the executor.
//!
//! The status is 200 as long as the gateway answers at all, so that a supervisor does not restart it for the
//! executor's absence; `executor` in the body says whether commands can run. It needs no token, so that it
//! tells nothing else and asks the executor at most once a second, however often it is called.

use super::{Gateway, answer::Json};
use crate::{error::ErrorBody, executor::Executor};
use axum::extract::State;
use serde::Serialize;
use std::time::Duration;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use utoipa::ToSchema;

/// Time after which the executor is asked again.
const FRESH: Duration = Duration::from_secs(1);
/// Time within which a working executor answers.
const ANSWER: Duration = Duration::from_secs(1);

/// The gateway's state.
#[derive(Debug, Serialize, ToSchema)]
pub struct HealthBody {
    /// Always `ok`: the gateway answers.
    #[schema(example = "ok")]
    status: &'static str,
    /// The gateway's version.
    version: &'static str,
    /// Whether commands can run.
    executor: Reach,
}

/// Whether the executor answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Reach {
    Ok,
    Unavailable,
}

/// Asks the executor, and remembers the answer for a moment.
#[derive(Debug)]
pub struct Probe {
    executor: Executor,
    last: Mutex<Option<(Instant, Reach)>>,
}

impl Probe {
    /// A probe that has not asked yet.
    pub fn new(executor: Executor) -> Self {
        Self { executor, last: Mutex::new(None) }
    }

    async fn reach(&self) -> Reach {
        // Held while asking: whoever comes meanwhile takes the same answer.
        let mut last = self.last.lock().await;
        if let Some((at, reach)) = *last
            && at.elapsed() < FRESH
        {
            return reach;
        }
        let reach = match timeout(ANSWER, self.executor.check()).await {
            Ok(Ok(())) => Reach::Ok,
            _ => Reach::Unavailable,
        };
        *last = Some((Instant::now(), reach));
        reach
    }
}

/// Whether the gateway lives.
///
/// Always 200 while it does; `executor` says whether commands can run. Needs no token.
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "operation",
    responses(
        (status = 200, description = "The gateway lives", body = HealthBody),
        (status = 403, description = "Host or Origin is not allowed", body = ErrorBody),
    )
)]
pub async fn healthz(State(gateway): State<Gateway>) -> Json<HealthBody> {
    let executor = gateway.probe.reach().await;
    Json(HealthBody { status: "ok", version: env!("CARGO_PKG_VERSION"), executor })
}
