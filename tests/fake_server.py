"""A fake of a vLLM server for tests: it speaks the dialects, holds weights with a version, and fails on demand.

Replies come from a Hugging Face model, or from a script. A reply is a pure function of ids, seed and weights, as on a
real server. Faults are queued: each one hits the next request whose path it names.
"""

from __future__ import annotations

import contextlib
import copy
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from patience import PATIENCE, comes

FIRST_VERSION = "default"
"""What vLLM calls the weights that it started with."""

Brain = Callable[[Sequence[int], dict[str, Any]], tuple[list[int], list[float]]]
"""(ids, sampling fields) -> sampled ids and their log-probabilities."""

GENERATE = "/inference/v1/generate"


@dataclass
class Fault:
    """One failure of one request.

    `kind`: status (answer `status` with `body`), slow (answer after `seconds`), mute (no answer until the client hangs
    up), drip (a byte every `seconds`), cut (close in the middle), refuse (close without an answer), garbage (no JSON),
    deep (JSON nested without end), large (8 MiB of white space), line (`body` in place of HTTP), restart (lose the
    weights, then answer), version (answer as if sampled by the version `body`, or by none), span (answer as if the
    weights had changed in the middle).
    """

    kind: str
    path: str = GENERATE
    status: int = 500
    body: str = ""
    seconds: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)


def counting(ids: Sequence[int], sampling: dict[str, Any]) -> tuple[list[int], list[float]]:
    """A script: the reply counts up from the sum of ids and seed, modulo 50, to `max_tokens` or a stop id."""
    found: list[int] = []
    start = sum(ids) + (sampling.get("seed") or 0)
    for place in range(sampling["max_tokens"]):
        found.append((start + place) % 50)
        if found[-1] in sampling.get("stop_token_ids", ()):
            break
    return found, [-(1 + token) / 64 for token in found]


class ModelBrain:
    """Replies of a model, which `load` can replace."""

    def __init__(self, model: Any) -> None:
        self.first = self.model = model
        self.raw_logprobs = False
        """Report log-probabilities at temperature 1, as vLLM does by default."""

    def load(self, folder: str) -> None:
        from safetensors.torch import load_file

        # Not `from_pretrained`, which threads must not call at the same time.
        model = copy.deepcopy(self.first)
        unexpected = model.load_state_dict(load_file(f"{folder}/model.safetensors"), strict=False).unexpected_keys
        assert not unexpected
        self.model = model

    def restart(self) -> None:
        self.model = self.first

    def __call__(self, ids: Sequence[int], sampling: dict[str, Any]) -> tuple[list[int], list[float]]:
        import torch

        temperature = sampling["temperature"] or 1.0
        stops, found, logprobs = set(sampling.get("stop_token_ids", ())), list[int](), list[float]()
        generator = torch.Generator().manual_seed(sampling["seed"])
        while len(found) < sampling["max_tokens"] and not (found and found[-1] in stops):
            with torch.inference_mode():
                logits_V = self.model(torch.tensor([[*ids, *found]])).logits[0, -1].float()
            logprobs_V = torch.log_softmax(logits_V / temperature, -1)
            drawn = torch.multinomial(logprobs_V.exp(), 1, generator=generator)
            token = int(logits_V.argmax() if sampling["temperature"] == 0 else drawn)
            reported_V = torch.log_softmax(logits_V, -1) if self.raw_logprobs else logprobs_V
            found.append(token)
            logprobs.append(float(reported_V[token]))
        return found, logprobs

    def scored(self, ids: Sequence[int]) -> list[float]:
        import torch

        with torch.inference_mode():
            logprobs_TV = torch.log_softmax(self.model(torch.tensor([list(ids)])).logits[0].float(), -1)
        return [float(logprobs_TV[at, token]) for at, token in enumerate(ids[1:])]


class FakeServer(ThreadingHTTPServer):
    """Listens from its creation."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, brain: Any = counting, window: int = 1024, key: str = "", port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.brain, self.window, self.key = brain, window, key
        self.version = FIRST_VERSION
        self.dev, self.scale_out = True, True
        self.faults: list[Fault] = []
        self.calls: list[tuple[str, Any]] = []
        """(path, body) of every request, in order of arrival."""
        self.replies = 0
        """Generated replies that were sent to their end."""
        self.at_once = self.most_at_once = 0
        self.delay = 0.0
        self.together = 0
        """So many of the first requests are answered when all of them are there."""
        self.adapters: dict[str, Any] = {}
        self.listed: dict[str, Any] | None = None
        """Name -> window, in place of the models that are there."""
        self.names: list[str] = []
        """The names of models in its answers, in turn. Empty: the one that was asked for."""
        self.refuses: dict[str, Any] = {}
        """Field of a chat request -> the sentence, or the whole answer, with which it is refused (status 400)."""
        self.tokens: list[int] | None = None
        """The answer of /tokenize, which is not there without."""
        self.info: dict[str, Any] = {
            "model_config": {"dtype": "torch.float32", "logprobs_mode": "processed_logprobs", "max_model_len": window}
        }
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def paths(self, start: str = "/") -> list[str]:
        return [path for path, _ in self.calls if path.startswith(start)]

    def bodies(self, path: str = GENERATE) -> list[Any]:
        return [body for called, body in self.calls if called == path]

    def restart(self) -> None:
        """As a server that was killed and started again: with its first weights."""
        self.version = FIRST_VERSION
        self.adapters.clear()
        if hasattr(self.brain, "restart"):
            self.brain.restart()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients go away in these tests


@contextmanager
def fake_server(*given: Any, **named: Any) -> Iterator[FakeServer]:
    """A server in a thread of this process, on a free port."""
    server = FakeServer(*given, **named)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """Head and body of an answer are two packets. The second would wait 40 ms for the client's word about the first."""
    server: FakeServer

    def log_message(self, *given: Any) -> None: ...

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"null"))

    def _serve(self, body: Any) -> None:
        server, path = self.server, urlsplit(self.path).path
        with server.lock:
            server.calls.append((path, body))
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
            fault = next((each for each in server.faults if each.path == path), None)
            if fault is not None:
                server.faults.remove(fault)
        try:
            time.sleep(server.delay)
            if len(server.calls) <= server.together:
                comes(lambda: len(server.calls) >= server.together)
            if server.key and self.headers.get("Authorization") != f"Bearer {server.key}":
                self._send(401, {"error": {"message": f"wrong key {self.headers.get('Authorization')}"}})
            elif fault is None or not self._fail(fault, path, body):
                status, tree = self._answer(path, body)
                self._send(status, tree)
                server.replies += path == GENERATE
        finally:
            with server.lock:
                server.at_once -= 1

    def _fail(self, fault: Fault, path: str, body: Any) -> bool:
        """Whether the fault was all the answer."""
        kind = fault.kind
        if kind == "status":
            self._send(fault.status, {"error": {"message": fault.body}}, fault.headers)
        elif kind == "garbage":
            self._raw(b"<html>it works</html>")
        elif kind == "deep":
            self._raw(b"[" * 100_000)
        elif kind == "large":
            self._raw(b" " * 2**23)
        elif kind == "line":
            self.wfile.write(f"{fault.body}\r\n\r\n".encode())
            self.close_connection = True
        elif kind == "refuse":
            self.close_connection = True
        elif kind == "cut":
            self._raw(json.dumps(self._answer(path, body)[1]).encode(), only=20)
            self.close_connection = True
        elif kind == "drip":
            self._raw(json.dumps(self._answer(path, body)[1]).encode(), pause=fault.seconds)
        elif kind in ("version", "span"):
            tree = self._answer(path, body)[1]
            choice = tree["choices"][0]
            spans = [{"version": fault.body, "start": 0, "end": len(choice["token_ids"])}] if fault.body else []
            choice["weight_versions"] = [*(choice["weight_versions"] if kind == "span" else ()), *spans]
            self._send(200, tree)
        elif kind == "slow":
            time.sleep(fault.seconds)
            return False
        elif kind == "mute":
            self.connection.settimeout(PATIENCE)
            with contextlib.suppress(OSError):
                self.connection.recv(1)
            self.close_connection = True
        elif kind == "restart":
            self.server.restart()
            return False
        return True

    def _send(self, status: int, tree: Any, headers: dict[str, str] | None = None) -> None:
        text = tree if isinstance(tree, str) else "" if tree is None else json.dumps(tree)
        self._raw(text.encode(), status, headers or {})

    def _raw(
        self,
        answer: bytes,
        status: int = 200,
        headers: dict[str, str] | None = None,
        only: int | None = None,
        pause: float = 0.0,
    ) -> None:
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            if not pause:
                self.wfile.write(answer[:only])
                return
            for byte in answer:
                self.wfile.write(bytes([byte]))
                time.sleep(pause)

    def _answer(self, path: str, body: Any) -> tuple[int, Any]:
        server = self.server
        if path == GENERATE:
            return self._generate(body)
        if path == "/v1/completions":
            return self._completions(body)
        if path == "/v1/chat/completions":
            return self._chat(body)
        if path == "/v1/models":
            listed = dict.fromkeys(("policy", *server.adapters), server.window)
            listed = listed if server.listed is None else server.listed
            return 200, {"data": [{"id": name, "max_model_len": window} for name, window in listed.items()]}
        if path == "/health":
            return 200, None
        if path == "/tokenize" and server.tokens is not None:
            return 200, {"tokens": server.tokens}
        if path == "/version":
            return 200, {"version": "0.32.0"}
        if "lora_adapter" in path:
            return self._adapter(path, body)
        return self._weights(path, body) if server.dev else (404, {"detail": "Not Found"})

    def _weights(self, path: str, body: Any) -> tuple[int, Any]:
        server = self.server
        if path == "/server_info":
            return 200, {"vllm_config": server.info}
        if path == "/weight_info":
            return 200, {"weight_version": server.version}
        if path == "/update_weight_version":
            server.version = body["new_version"]
            return 200, {"success": True, "new_version": server.version}
        if path == "/collective_rpc":
            if body["method"] == "reload_weights":
                server.brain.load(body["kwargs"]["weights_path"])
            return 200, {"results": [None]}
        if path == "/reset_prefix_cache":
            return 200, {"success": True}
        return (200, {"status": "ok"}) if path in ("/pause", "/resume") else (404, {"detail": "Not Found"})

    def _adapter(self, path: str, body: Any) -> tuple[int, Any]:
        if path.endswith("/load_lora_adapter"):
            self.server.adapters[body["lora_name"]] = body["lora_path"]
        else:
            if body["lora_name"] not in self.server.adapters:
                return 404, {"error": {"message": f"The lora adapter '{body['lora_name']}' cannot be found."}}
            del self.server.adapters[body["lora_name"]]
        return 200, f"Success: LoRA adapter '{body['lora_name']}' done."

    def _refusal(self, ids: Sequence[int], body: Any) -> tuple[int, Any] | None:
        if body.get("model") not in (None, "policy", *self.server.adapters):
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        if set(body.get("cache_salt", "")) & set("@/\\"):
            return 400, {"error": {"message": "Parameter 'cache_salt' must not contain '@', '/' or a backslash"}}
        if len(ids) >= self.server.window:
            return 400, {"error": {"message": f"the prompt has {len(ids)} tokens, the window {self.server.window}"}}
        return None

    def _generate(self, body: Any) -> tuple[int, Any]:
        server = self.server
        if not server.scale_out:
            return 403, {"error": {"message": "scale-out endpoints are disabled"}}
        if (refused := self._refusal(body["token_ids"], body)) is not None:
            return refused
        version = server.version
        ids, logprobs = server.brain(body["token_ids"], body["sampling_params"])
        # A restart by another request may have taken the weights away in between. vLLM then names both versions.
        versions = dict.fromkeys((version, server.version))
        content = [
            {"token_id": token, "logprob": logprob, "rank": 1, "top_logprobs": []}
            for token, logprob in zip(ids, logprobs, strict=True)
        ]
        choice = {
            "index": 0,
            "token_ids": ids,
            "logprobs": {"content": content},
            "finish_reason": "stop" if ids[-1] in body["sampling_params"].get("stop_token_ids", ()) else "length",
            "weight_versions": [{"version": each, "start": 0, "end": len(ids)} for each in versions],
        }
        return 200, {"choices": [choice], "usage": _usage(body["token_ids"], ids), **self._prompt(body)}

    def _prompt(self, body: Any) -> dict[str, Any]:
        """`prompt_logprobs`, if they were asked for."""
        ids = body.get("token_ids") or body.get("prompt")
        if (body.get("sampling_params") or body).get("prompt_logprobs") is None:
            return {}
        scored = self.server.brain.scored(ids) if hasattr(self.server.brain, "scored") else [-0.5] * (len(ids) - 1)
        rows = [{str(token): {"logprob": value, "rank": 1}} for token, value in zip(ids[1:], scored, strict=True)]
        return {"prompt_logprobs": [None, *rows]}

    def _completions(self, body: Any) -> tuple[int, Any]:
        if (refused := self._refusal(body["prompt"], body)) is not None:
            return refused
        ids, logprobs = self.server.brain(body["prompt"], body)
        stopped = ids[-1] in body.get("stop_token_ids", ())
        choice: dict[str, Any] = {
            "index": 0,
            "text": "",
            "logprobs": {"token_logprobs": logprobs},
            "finish_reason": "stop" if stopped else "length",
            **self._prompt(body),
        }
        if body.get("return_token_ids"):
            choice |= {"token_ids": ids, "prompt_token_ids": body["prompt"]}
        return 200, {"choices": [choice], "usage": _usage(body["prompt"], ids), "model": self._name(body)}

    def _chat(self, body: Any) -> tuple[int, Any]:
        """A script, of a text or a choice: `brain.text(messages)` if there is one, else the last message, shouted."""
        for name in filter(body.__contains__, self.server.refuses):
            said = self.server.refuses[name]
            return 400, said if isinstance(said, dict) else {"error": {"message": said}}
        write = getattr(self.server.brain, "text", lambda messages: messages[-1]["content"].upper())
        text = write(body["messages"])
        choice = text if isinstance(text, dict) else {"message": {"content": text}, "finish_reason": "stop"}
        words = [word for each in body["messages"] for word in each["content"].split()]
        return 200, {
            "choices": [{"index": 0, **choice}],
            "usage": _usage(words, str(text).split()),
            "model": self._name(body),
        }

    def _name(self, body: Any) -> str:
        with self.server.lock:
            names = self.server.names or [body["model"]]
            names.append(names.pop(0))
            return names[-1]


def _usage(prompt: Sequence[Any], sampled: Sequence[Any]) -> dict[str, int]:
    return {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(sampled),
        "total_tokens": len(prompt) + len(sampled),
    }
