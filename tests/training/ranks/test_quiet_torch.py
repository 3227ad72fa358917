"""A peer that has ended is told in heedful's sentence, without the stacks that torch's C++ prints before it."""

import os
import subprocess
import sys
from pathlib import Path

from patience import PATIENCE
from warm import WarmProcess

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


def test_a_lost_peer_leaves_no_stack_of_c(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_CPP_LOG_LEVEL"}
    server = WarmProcess(["-c", SERVER], tmp_path, environment)
    port = server.stdout.readline().strip()
    peers = {
        how: subprocess.Popen(
            [sys.executable, "-c", LOST, how, port],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for how in ("quiet", "loud")
    }
    try:
        for peer in peers.values():
            assert peer.stdout is not None
            assert peer.stdout.readline() == "joined\n"
        server.kill()
        said = {how: peer.communicate(timeout=PATIENCE) for how, peer in peers.items()}
    finally:
        for process in (server, *peers.values()):
            process.kill()
    assert [out for out, _ in said.values()] == ["lost\n", "lost\n"]
    assert {how: "frame #" in err for how, (_, err) in said.items()} == {"quiet": False, "loud": True}
