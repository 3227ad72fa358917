"""A peer that has ended is told in heedful's sentence, without the stacks that torch's C++ prints before it."""

import os
import subprocess
import sys

import pytest

LOST = """
import sys
from heedful.command_process import prepare_streams
if sys.argv[1] == "quiet":
    prepare_streams()
from datetime import timedelta
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", int(sys.argv[2]), is_master=False, timeout=timedelta(seconds=60))
print("joined", flush=True)
try:
    store.get("never")
except RuntimeError:
    print("lost", flush=True)
"""
SERVER = """
import sys, time
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("how", "stacks"), [("quiet", False), ("loud", True)])
def test_a_lost_peer_leaves_no_stack_of_c(how: str, stacks: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_CPP_LOG_LEVEL"}

    def started(*words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-c", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    server = started(SERVER)
    assert server.stdout is not None
    waiting = started(LOST, how, server.stdout.readline().strip())
    try:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "joined\n"
        server.kill()
        out, err = waiting.communicate(timeout=120)
    finally:
        server.kill()
        waiting.kill()
        server.communicate()
    assert out == "lost\n"
    assert ("frame #" in err) is stacks
