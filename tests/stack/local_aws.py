"""Starts ministack, the local AWS, with four of its corners put right. Its settings come by environment (see stack.py)."""

import socketserver

# A function's answer and the next event cross the Runtime API in small writes: with Nagle's algorithm each waits 40 ms for an acknowledgement.
socketserver.StreamRequestHandler.disable_nagle_algorithm = True

from ministack.app import main  # noqa: E402  (the class above must be patched before its users are defined)
from ministack.core import iam_actions  # noqa: E402
from ministack.services import apigateway, lambda_svc  # noqa: E402

_concurrency = lambda_svc._sqs_esm_concurrency
_cors_headers = apigateway._cors_response_headers
_cors_preflight = apigateway._cors_preflight_response
_iam_action = iam_actions.extract_iam_action


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


lambda_svc._sqs_esm_concurrency = concurrency
iam_actions.extract_iam_action = iam_action
apigateway._cors_response_headers = lambda configuration, origin: _cors_headers(cors(configuration), origin)
apigateway._cors_preflight_response = lambda configuration, origin: _cors_preflight(cors(configuration), origin)

if __name__ == "__main__":
    main()
