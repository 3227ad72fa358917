"""What an audit says of thoughts and prompts, against one pair at a time in float64 with formulas written out here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest
from audit_watching import by_step

from heedful import cli
from heedful.storage import RunFolder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TRL_LOG = Path(__file__).parent / "fixtures" / "trl-1.16.0" / "completions"
STEP = 2
Rows = list[tuple[str, str]]


def logged() -> Rows:
    """(prompt, completion) of one step, read without heedful."""
    table = pyarrow.parquet.read_table(TRL_LOG / f"completions_0000{STEP}.parquet").to_pylist()
    return [(row["prompt"], row["completion"]) for row in table]


def as_trl(folder: Path, rows: Rows) -> Path:
    return TRL_LOG


def as_verl(folder: Path, rows: Rows) -> Path:
    lines = [{"input": prompt, "output": said, "score": 0.0, "step": STEP} for prompt, said in rows]
    return written(folder / f"{STEP}.jsonl", lines)


def as_plain(folder: Path, rows: Rows) -> Path:
    lines = [{"step": STEP, "new_prompt_text": prompt, "reply_text": said, "reward": 0.0} for prompt, said in rows]
    return written(folder / "log.jsonl", lines)


def written(path: Path, lines: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def pair_by_pair(checkpoint: Path, rows: Rows) -> dict[str, float]:
    """Mutual information, gap, entropy (per token) and retrieval of the thoughts under the prompts, all rows."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float64).eval()

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False).input_ids)

    def logprob(prompt: list[int], thought: list[int]) -> float:
        with torch.no_grad():
            logits = model(torch.tensor([prompt + thought])).logits[0].double()
        steps = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
        return sum(float(steps[place, token]) for place, token in enumerate(thought))

    prompts = list(dict.fromkeys(prompt for prompt, _ in rows))
    own = [prompts.index(prompt) for prompt, _ in rows]
    shares = [own.count(column) / len(own) for column in range(len(prompts))]
    told, gaps, surprises, found = [], [], [], []
    for (_, said), mine in zip(rows, own, strict=True):
        thought = ids(said.partition("</think>")[0] + "</think>" if "</think>" in said else said)
        scores = [logprob(ids(prompt), thought) for prompt in prompts]
        mixture = math.log(sum(w * math.exp(score - max(scores)) for w, score in zip(shares, scores, strict=True)))
        others = sum(shares[j] * scores[j] for j in range(len(prompts)) if j != mine) / (1 - shares[mine])
        told.append(scores[mine] - max(scores) - mixture)
        gaps.append((scores[mine] - others) / len(thought))
        surprises.append(-scores[mine] / len(thought))
        found.append(float(max(range(len(scores)), key=scores.__getitem__) == mine))
    return {
        "information@{}/first_turn/mi": sum(told) / len(told),
        "information@{}/first_turn/gap_per_token": sum(gaps) / len(gaps),
        "information@{}/first_turn/entropy_conditional_per_token": sum(surprises) / len(surprises),
        "retrieval@{}/first_turn/accuracy": sum(found) / len(found),
    }


@pytest.mark.parametrize("write", [as_trl, as_verl, as_plain])
def test_an_audit_agrees_with_one_pair_at_a_time_in_float64(
    tmp_path: Path, own_run: Path, write: Callable[[Path, Rows], Path]
) -> None:
    rows = logged()
    checkpoint = RunFolder(own_run).checkpoint(3)
    out = tmp_path / "out"
    log = write(tmp_path, rows)
    assert cli.run(["audit", str(log), "--model", str(checkpoint), "--out", str(out), "--device", "cpu"]) == 0
    measured = by_step(out)[STEP]
    expected = pair_by_pair(checkpoint, rows)
    for name, value in expected.items():
        assert measured[name.format(checkpoint.name)].value == pytest.approx(value, abs=1e-4), name
