//! `/v1/workspaces`: the gateway's named workspaces, what is in one, and its end.

use super::{Gateway, answer::Json};
use crate::{
    error::{ApiError, ErrorBody},
    memory::Client,
};
use axum::{
    extract::{Extension, FromRequestParts, Path, Query, State, rejection::QueryRejection},
    http::{StatusCode, request::Parts},
};
use cordon_protocol::{Action, EndedBy, ExitReport, RunRequest, WorkspaceDetail, WorkspaceInfo, limits};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Every named workspace there is.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorkspaceList {
    /// In the order of their names.
    workspaces: Vec<WorkspaceInfo>,
}

/// How a workspace is looked at.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ShowQuery {
    /// Profile of the process that counts; `default` where none is named.
    profile: Option<String>,
}

/// List the workspaces.
///
/// Workspaces are the gateway's own: all HTTP clients share them, and users of the command line have others. One is
/// made when a command first names it.
#[utoipa::path(
    get,
    path = "/v1/workspaces",
    operation_id = "list_workspaces",
    tag = "workspaces",
    security(("bearer" = []), ("key" = [])),
    responses(
        (status = 200, description = "Those there are", body = WorkspaceList),
        (status = 401, description = "Token missing or wrong", body = ErrorBody),
        (status = 403, description = "Host, Origin or the gateway itself is not allowed", body = ErrorBody),
        (status = 429, description = "Too many at once; see Retry-After", body = ErrorBody),
        (status = 500, description = "Cordon's own failure", body = ErrorBody),
        (status = 503, description = "The executor is away or ending", body = ErrorBody),
    )
)]
pub async fn list(State(gateway): State<Gateway>) -> Result<Json<WorkspaceList>, ApiError> {
    let workspaces = gateway.executor.workspaces().await?;
    Ok(Json(WorkspaceList { workspaces }))
}

/// Show a workspace.
///
/// What it takes is counted by a process that is as confined as a command.
#[utoipa::path(
    get,
    path = "/v1/workspaces/{name}",
    operation_id = "show_workspace",
    tag = "workspaces",
    security(("bearer" = []), ("key" = [])),
    params(("name" = String, Path, description = "Its name"), ShowQuery),
    responses(
        (status = 200, description = "What it takes", body = WorkspaceDetail),
        (status = 400, description = "That is no name, or no profile of the gateway's", body = ErrorBody),
        (status = 401, description = "Token missing or wrong", body = ErrorBody),
        (status = 403, description = "Host, Origin or the gateway itself is not allowed", body = ErrorBody),
        (status = 404, description = "There is none of that name", body = ErrorBody),
        (status = 429, description = "Too many at once; see Retry-After", body = ErrorBody),
        (status = 500, description = "Cordon's own failure", body = ErrorBody),
        (status = 503, description = "The executor is away or ending", body = ErrorBody),
    )
)]
pub async fn show(
    State(gateway): State<Gateway>,
    Extension(client): Extension<Client>,
    Name(name): Name,
    query: Result<Query<ShowQuery>, QueryRejection>,
) -> Result<Json<WorkspaceDetail>, ApiError> {
    let Query(query) = query.map_err(|error| {
        ApiError::bad_request(format!("query: {}", error.body_text())).hint("only `profile` may be given")
    })?;
    // Asked first: a measure would make it.
    let known = gateway.executor.workspaces().await?;
    let workspace = known.into_iter().find(|known| known.name == name).ok_or_else(|| not_found(&name))?;
    let request =
        RunRequest { profile: query.profile, workspace: Some(name), ..RunRequest::new(Action::Measure) };
    let mut run = gateway.executor.run(request, None, ()).await?;
    let first = run.next_event().await?;
    let finished = run.finish(first, &mut gateway.reports.room(client)).await?;
    measured(workspace, &finished.report).map(Json)
}

/// Delete a workspace.
///
/// Refused (`busy`) while a command uses it. Its name is free at once; what was in it is deleted after the answer.
#[utoipa::path(
    delete,
    path = "/v1/workspaces/{name}",
    operation_id = "delete_workspace",
    tag = "workspaces",
    security(("bearer" = []), ("key" = [])),
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 400, description = "That is no name", body = ErrorBody),
        (status = 401, description = "Token missing or wrong", body = ErrorBody),
        (status = 403, description = "Host, Origin or the gateway itself is not allowed", body = ErrorBody),
        (status = 404, description = "There is none of that name", body = ErrorBody),
        (status = 429, description = "A command uses it, or too many at once; see Retry-After", body = ErrorBody),
        (status = 500, description = "Cordon's own failure", body = ErrorBody),
        (status = 503, description = "The executor is away or ending", body = ErrorBody),
    )
)]
pub async fn delete(State(gateway): State<Gateway>, Name(name): Name) -> Result<StatusCode, ApiError> {
    gateway.executor.delete_workspace(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A workspace's name in a path. Checked here: whoever asks for what cannot be there has made a mistake.
#[derive(Debug)]
pub struct Name(String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let name = Path::<String>::from_request_parts(parts, state).await.map(|Path(name)| name);
        name.ok().filter(|name| limits::is_workspace_name(name)).map(Self).ok_or_else(|| {
            ApiError::bad_request("workspace: the last part of the path is not a name")
                .hint(limits::workspace_name_rule())
        })
    }
}

fn not_found(name: &str) -> ApiError {
    let message = format!("workspace: there is none of the name `{name}`");
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
        .hint("GET /v1/workspaces lists those there are; a command that names one makes it")
}

/// The workspace with what was counted in it.
fn measured(workspace: WorkspaceInfo, report: &ExitReport) -> Result<WorkspaceDetail, ApiError> {
    let well = report.ended_by == EndedBy::Exit && report.exit_code == Some(0);
    let answer = report.stdout.as_deref().filter(|_| well);
    answer.and_then(|answer| WorkspaceDetail::measured(workspace, answer)).ok_or_else(|| {
        let error = ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the workspace could not be measured within the profile's limits",
        );
        let hint = report.hint.as_ref().map(|hint| format!("{}; {}", hint.what, hint.remedy));
        let cause = format!("ended by {}, {}", report.ended_by, report.stderr.as_deref().unwrap_or_default());
        error.hint(hint.unwrap_or_else(|| "look at the executor's log".to_owned())).cause(cause)
    })
}
