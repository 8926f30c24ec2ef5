//! Requests from the HTTP API, and their answers.
//!
//! API Gateway has matched the route when a function is called, so its route key is the router:
//!
//! ```
//! # use platform::http::{Problem, Request, Response};
//! # struct State;
//! # async fn time(_: &State) -> Result<Response, Problem> { Response::json(200, &1) }
//! async fn handle(state: &State, request: Request) -> Result<Response, Problem> {
//!     match request.route() {
//!         "GET /api/seckill/time" => time(state).await,
//!         _ => Err(Problem::not_found()),
//!     }
//! }
//! ```
//!
//! An answer that is no success is a [`Problem`]: `application/problem+json` (RFC 9457) with a code for programs and a sentence
//! for people, in the language they asked for. What went wrong inside goes to the log and never to the client. CORS headers are
//! the gateway's, which adds them to every answer.

mod problem;
mod request;
mod response;

use lambda_http::{Body, service_fn};

pub use kernel::text::{Language, Text};
pub use problem::Problem;
pub use request::Request;
pub use response::Response;

use crate::boot::Error;
use crate::telemetry::Stopwatch;

/// Serves requests until Lambda ends the process; `state` lives as long.
pub async fn serve<S, F, A>(state: S, handle: F) -> Result<(), Error>
where
    S: Send + Sync + 'static,
    F: Fn(&'static S, Request) -> A + Copy + Send + Sync + 'static,
    A: Future<Output = Result<Response, Problem>> + Send,
{
    let state: &'static S = Box::leak(Box::new(state));
    lambda_http::run(service_fn(move |request: lambda_http::Request| async move {
        let response = answer(request.into(), |request| handle(state, request)).await;
        Ok::<_, Error>(lambda_http::Response::<Body>::try_from(response)?)
    }))
    .await
}

/// Calls the handler, renders its answer, and writes one line about it: no path, no query, no header, since any of them may
/// hold what must not be logged.
async fn answer<A>(request: Request, handle: impl FnOnce(Request) -> A) -> Response
where
    A: Future<Output = Result<Response, Problem>>,
{
    let stopwatch = Stopwatch::start();
    let (id, route, language) = (request.id().to_owned(), request.route().to_owned(), request.language());
    let (response, code) = match handle(request).await {
        Ok(response) => (response, "OK"),
        Err(problem) => {
            if let Some(cause) = problem.cause() {
                tracing::error!(gatewayRequestId = id, route, code = problem.code(), cause, "failed");
            }
            (problem.render(language, &id), problem.code())
        }
    };
    tracing::info!(gatewayRequestId = id, route, status = response.status(), code, ms = stopwatch.millis(), "answered");
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(accept_language: &str) -> Request {
        let event = serde_json::json!({
            "headers": {"accept-language": accept_language},
            "requestContext": {"requestId": "gw-1", "routeKey": "GET /thing", "http": {"method": "GET"}},
        });
        serde_json::from_value(event).unwrap()
    }

    #[tokio::test]
    async fn a_problem_is_rendered_in_the_callers_language_with_the_gateways_request_id() {
        let handle = async |request: Request| match request.route() {
            "GET /other" => Response::json(200, &1),
            _ => Err(Problem::not_found()),
        };
        for (header, language) in [("zh-CN", "zh"), ("en", "en")] {
            let response = answer(request(header), handle).await;
            assert_eq!((response.status(), response.get_header("content-language")), (404, Some(language)));
            let body: serde_json::Value = serde_json::from_str(response.body()).unwrap();
            assert_eq!(body["requestId"], "gw-1");
        }
    }
}
