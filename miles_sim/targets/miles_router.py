"""Sessions as states before April 2026 have them: routes of miles' own router. Standard library and miles only."""

import importlib
import json
from argparse import Namespace
from typing import Any

PATCH = "sglang: token ids in logprobs.content"
"""An engine that miles had patched told them there; no release of SGLang does, and what it does tell is put there."""
ROUTER = "miles.router.router"
_CHAT = "v1/chat/completions"


def find_router() -> Any:
    """The class of the router, where sessions are among its routes; None: they are not, or there is none."""
    try:
        module = importlib.import_module(ROUTER)
    except ImportError:
        return None
    return module.MilesRouter if hasattr(module, "setup_session_routes") else None


class RouterSessions:
    """A router before one engine; `app` serves sessions."""

    def __init__(self, router: Any, args: Namespace, engine_url: str) -> None:
        own = router(args)
        own.worker_request_counts[engine_url] = 0
        own.worker_failure_counts[engine_url] = 0
        send = own._do_proxy

        async def patched(request: Any, path: str, body: bytes | None = None, headers: Any = None) -> Any:
            if path != _CHAT or body is None:
                return await send(request, path)
            asked = json.loads(body)
            result = await send(request, path, body=json.dumps({**asked, "return_meta_info": True}).encode())
            return _with_token_ids(result) if result["status_code"] == 200 and asked.get("logprobs") else result

        own._do_proxy = patched
        self.app = own.app


def settings(session_url: str) -> dict[str, Any]:
    """What the router looks at, beside what all states do; driver and agents reach sessions through it."""
    host, _, port = session_url.removeprefix("http://").partition(":")
    return {
        "sglang_router_ip": host,
        "sglang_router_port": int(port),
        "miles_router_max_connections": 1024,
        "miles_router_enable_token_input_for_chat_completions": False,
        "miles_router_health_check_failure_threshold": 3,
        "rollout_health_check_interval": 3600.0,
    }


def _with_token_ids(result: dict[str, Any]) -> dict[str, Any]:
    """The proxy's result with each sampled id beside its logprob, and the prompt's under both of its names."""
    document = json.loads(result["response_body"])
    for choice in document["choices"]:
        sampled = choice["meta_info"]["output_token_logprobs"]
        for item, (_, token, *_) in zip(choice["logprobs"]["content"], sampled, strict=True):
            item["token_id"] = token
        if "prompt_token_ids" in choice:
            choice.setdefault("input_token_ids", choice["prompt_token_ids"])
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    headers = {name: value for name, value in result["headers"].items() if name.lower() != "content-length"}
    return {**result, "response_body": text, "headers": {**headers, "content-length": str(len(text))}}
