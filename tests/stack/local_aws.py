"""Starts ministack, the local AWS, with a few of its corners put right. Its settings come by environment (see stack.py)."""

import asyncio
import socketserver
from contextvars import ContextVar
from types import SimpleNamespace

# A function's answer and the next event cross the Runtime API in small writes: with Nagle's algorithm each waits 40 ms for an acknowledgement.
socketserver.StreamRequestHandler.disable_nagle_algorithm = True

from ministack.app import main  # noqa: E402  (the class above must be patched before its users are defined)
from ministack.core import iam_actions  # noqa: E402
from ministack.services import apigateway, lambda_svc  # noqa: E402

_concurrency = lambda_svc._sqs_esm_concurrency
_cors_headers = apigateway._cors_response_headers
_cors_preflight = apigateway._cors_preflight_response
_iam_action = iam_actions.extract_iam_action
_invoke_ws_lambda = apigateway._invoke_ws_lambda

# Goodbyes that are told to `$disconnect` at once. Each is a process, nobody waits for it, and a client that dies says thousands in one moment.
GOODBYES = 4


def concurrency(mapping: dict, *rest) -> int:
    """A template's Number parameter arrives as text, and the poller compares it with a count."""
    scaling = mapping.get("ScalingConfig") or {}
    if "MaximumConcurrency" in scaling:
        mapping = {**mapping, "ScalingConfig": {**scaling, "MaximumConcurrency": int(scaling["MaximumConcurrency"])}}
    return _concurrency(mapping, *rest)


def cors(configuration: dict | None) -> dict:
    """A template's CorsConfiguration keeps its capital letters, and a list parameter in it is one text: the gateway then finds nothing to allow."""
    listed = ("Origins", "Methods", "Headers")
    return {
        name[0].lower() + name[1:]: value.split(",") if name.endswith(listed) and isinstance(value, str) else value
        for name, value in (configuration or {}).items()
    }


def iam_action(*request) -> str | None:
    """On AWS a batch call of SQS is permitted by the action of the single call, and has none of its own."""
    action = _iam_action(*request)
    return action.removesuffix("Batch") if action and action.startswith("sqs:") else action


_outbox: ContextVar[asyncio.Queue] = ContextVar("outbox")
_goodbyes = asyncio.Semaphore(GOODBYES)


class Outbox(asyncio.Queue):
    """What is to be sent over one socket."""

    def __init__(self):
        super().__init__()
        _outbox.set(self)


class Closing(asyncio.Event):
    """Set when the same socket closes. It then ends the outbox, which otherwise asks twice a second whether it is over: with thousands of open sockets the gateway would do little else."""

    def __init__(self):
        super().__init__()
        self._outbox = _outbox.get()

    def set(self):
        super().set()
        self._outbox.put_nowait(None)


async def invoke_ws_lambda(api_id, account_id, region, route, stage, connection_id, event_type, *rest, **more):
    invoke = _invoke_ws_lambda(api_id, account_id, region, route, stage, connection_id, event_type, *rest, **more)
    if event_type != "DISCONNECT":
        return await invoke
    async with _goodbyes:
        return await invoke


lambda_svc._sqs_esm_concurrency = concurrency
iam_actions.extract_iam_action = iam_action
apigateway._cors_response_headers = lambda configuration, origin: _cors_headers(cors(configuration), origin)
apigateway._cors_preflight_response = lambda configuration, origin: _cors_preflight(cors(configuration), origin)
apigateway._invoke_ws_lambda = invoke_ws_lambda
apigateway.asyncio = SimpleNamespace(**{**vars(asyncio), "Queue": Outbox, "Event": Closing, "wait_for": lambda item, timeout: item})

if __name__ == "__main__":
    main()
