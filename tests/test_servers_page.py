"""docs/servers.md says what was run: its commands have the flags with which the tests start a real server."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.servers.real_vllm import FLAGS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "servers.md").read_text(encoding="utf-8")


def test_the_page_starts_a_cpu_server_with_the_flags_of_the_tests() -> None:
    (command,) = re.findall(r"VLLM_CPU_OMP_THREADS_BIND=nobind.*?\n\n", PAGE, flags=re.DOTALL)
    words = command.replace("'", "").replace("\\", "").split()
    flags = [word for flag in FLAGS for word in flag.split()]
    assert [flag for flag in flags if flag not in words] == []


def test_every_flag_of_the_command_has_its_reason() -> None:
    table = PAGE.partition("| setting | without it |")[2].partition("\n\n")[0]
    told = set(re.findall(r"--[a-z-]+", table))
    obvious = {"--model", "--served-model-name", "--host", "--port", "--enforce-eager", "--max-num-seqs"}
    flags = {flag for flag in FLAGS if flag.startswith("--")}
    assert flags - told - obvious == {"--kv-cache-memory-bytes"}
    assert "`--kv-cache-memory-bytes`" in PAGE  # in the troubleshooting


def test_the_servers_torch_and_trl_are_those_that_heedful_is_tested_with() -> None:
    pins = [
        (ROOT / name).read_text(encoding="utf-8").splitlines() for name in ("constraints.txt", "constraints-vllm.txt")
    ]
    named = [[line for line in lines if line.startswith(("torch==", "trl=="))] for lines in pins]
    assert named[0] == named[1]
    assert len(named[0]) == 2


def test_tests_of_real_servers_are_not_among_the_ordinary_ones() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert '-m "not proof and not gpu and not servers and not verl"' in makefile
    assert "-m servers" in makefile
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert any(marker.startswith("servers:") for marker in markers["markers"])
    assert "make test-servers" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
