"""A real vLLM server on this machine's CPU, started as a process of the environment that `.ci/vllm-env` makes."""

from __future__ import annotations

import fcntl
import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
PYTHON = "HEEDFUL_VLLM_PYTHON"
"""The variable that names the Python of vLLM's environment. `make test-servers` sets it."""
LOCK = "HEEDFUL_VLLM_LOCK"
"""The variable that names the lock file. One real server runs at a time, because each takes a core and 2 GB."""
PATIENCE = float(os.environ.get("HEEDFUL_VLLM_PATIENCE", "900"))
"""Seconds to wait for a start. It takes 50 CPU seconds, and minutes on a machine that does other work."""
MODEL_NAME = "policy"

FLAGS = (
    *("--dtype", "float32", "--enforce-eager", "--kv-cache-memory-bytes", str(2**28), "--max-num-seqs", "64"),
    *("--logprobs-mode", "processed_logprobs", "--generation-config", "vllm", "--enable-scale-out"),
    # On a CPU, a request with a seed whose prompt is read in pieces ends the engine.
    *("--no-enable-chunked-prefill", "--max-num-batched-tokens", "8192", "--enable-prompt-tokens-details"),
    *("--worker-extension-cls", "heedful.integrations.vllm.worker.Worker"),
    *("--weight-transfer-config", '{"backend": "heedful"}'),
)
"""What docs/servers.md tells users to start with on a CPU, and why."""


def missing() -> str:
    """Why no real server can be started here. Empty if one can."""
    python = os.environ.get(PYTHON, "")
    if not python:
        return f"{PYTHON} is not set: `make test-servers` makes vLLM's environment and sets it"
    return "" if Path(python).exists() else f"{PYTHON} names {python}, where there is no Python"


@dataclass(slots=True)
class RealVllm:
    """One server and its process. `start` and `stop` may alternate: the port stays."""

    model: Path
    log: Path
    flags: Sequence[str] = FLAGS
    environment: dict[str, str] = field(default_factory=dict)
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, patience: float = PATIENCE) -> None:
        """Start the server and wait until it answers. Raises with the end of its log if it does not."""
        self.port = self.port or free_port()
        command = [os.environ[PYTHON], "-m", "vllm.entrypoints.openai.api_server", "--model", str(self.model)]
        command += ["--served-model-name", MODEL_NAME, "--host", "127.0.0.1", "--port", str(self.port), *self.flags]
        settings = {
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(SOURCE),
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **settings, **self.environment},
                start_new_session=True,
            )
        self.wait_until_healthy(patience)

    def wait_until_healthy(self, patience: float = PATIENCE) -> None:
        end = time.monotonic() + patience
        while not self.healthy():
            ended = self.process is None or self.process.poll() is not None
            if ended or time.monotonic() > end:
                tail = self.log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"The server {'ended' if ended else f'did not start in {patience:g} s'}:\n{tail}")
            time.sleep(0.5)

    def healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def said_by_the_engine(self) -> str:
        """The last lines of the engine and its workers. The web server's lines repeat them at length."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if line.startswith(("(EngineCore", "(Worker"))][-60:])

    def stop(self) -> None:
        """End the server and every process that it started."""
        if self.process is None:
            return
        for signum in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, signum)
            except ProcessLookupError:
                break
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                continue
        self.process.wait(20)
        self.process = None


@contextmanager
def running(model: Path, log: Path, flags: Sequence[str] = FLAGS) -> Iterator[RealVllm]:
    """A server with this model, stopped at the end whatever happens."""
    server = RealVllm(model, log, flags)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other test session on this machine runs a real server, and keep the others waiting."""
    path = Path(os.environ.get(LOCK) or Path(tempfile.gettempdir()) / "heedful-vllm.lock")
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
