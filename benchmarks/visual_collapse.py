"""A planted visual collapse: a share of the thoughts does not read the picture. Which metric tells, and who is warned?

    python -m benchmarks.visual_collapse          # simulates, and writes benchmarks/results/visual_collapse.md
    python -m benchmarks.visual_collapse --runs 5 # fewer models, for a look

The policy is a table, so its log-probabilities are exact. A prompt shows 16 facts, each yes or no, in its picture. A
thought that reads the picture repeats them, each one wrong with probability `flip`. Two kinds of collapse:

- `template`: the text is the same everywhere. A thought that does not read the picture is a template.
- `text`: the text tells the facts as well. A thought that does not read the picture repeats the text.

The readings are those of a full measurement: 16 prompts x 8 thoughts, 8 pictures exchanged among 16 thoughts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from heedful.diagnostics.alarms.watch import Alarms
from heedful.diagnostics.catalogue import Trend
from heedful.diagnostics.cross_scores.picture_ids import picture_ids
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.measuring.diagnostics_config import DiagnosticsConfig
from heedful.measuring.scope_reader import ScopeReader
from heedful.measuring.thought_scores import ThoughtScores
from heedful.studies.paired import clopper_pearson
from heedful.types import CrossScores, Ending, Group, Metric, Prompt, Reply, Span, Task, Trajectory, Turn
from research.detector.roc import Sample, area

Bits = npt.NDArray[np.int64]
STORED = Path(__file__).parent / "results" / "visual_collapse.md"
FACTS, PROMPTS, MEMBERS = 16, 16, 8
VARIETY = 0.3
"""Chance that a word of a template differs from the phrase."""
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
KINDS = ("template", "text")
METRICS: dict[str, Trend] = {
    "information/image/gap": "lower",
    "information/image/mi": "lower",
    "retrieval/image/accuracy": "lower",
    "retrieval/image/p_value": "higher",
    "grounding/image_share": "lower",
    "information/first_turn/gap": "lower",
}
"""Metric -> where the collapse should move it, said before any value was read."""
MEASUREMENTS, COLLAPSE = 14, 7
"""Full measurements of a run, and the first one with the collapse."""


@dataclass(frozen=True)
class Policy:
    """Writes 16 facts for a picture and a text of 16 facts each, and scores such thoughts."""

    kind: str
    share: float
    """Thoughts that do not read the picture."""
    flip: float
    name: str = ""

    def sample(self, picture: Bits, text: Bits, rng: np.random.Generator) -> Bits:
        blind = rng.random() < self.share
        meant = (np.zeros(FACTS, dtype=np.int64) if self.kind == "template" else text) if blind else picture
        chance = VARIETY if blind and self.kind == "template" else self.flip
        wrong: Bits = (rng.random(FACTS) < chance).astype(np.int64)
        return np.concatenate([[int(blind and self.kind == "template")], meant ^ wrong])

    def cross_score(
        self,
        prompts_N: Sequence[Sequence[int]],
        thoughts_M: Sequence[Sequence[int]],
        own_M: Sequence[int],
        temperature: float,
        keep: str = "sums",
    ) -> CrossScores:
        """A template has a mark of its own, so that it is told from a thought that reads."""
        marked_M1 = np.array([ids[0] for ids in thoughts_M])[:, None] == 1
        facts_MT = np.array([ids[1:] for ids in thoughts_M])
        pictures_NT = np.array([facts(-picture_ids(tuple(prompt))[0] - 1) for prompt in prompts_N])
        texts_NT = np.array([prompt[-FACTS:] for prompt in prompts_N])
        with np.errstate(divide="ignore"):
            reads, not_read = np.log(1 - self.share), np.log(self.share)
        reading_MN = reads + _log_chance(facts_MT, pictures_NT, self.flip)
        if self.kind == "template":
            phrase_M1 = not_read + _log_chance(facts_MT, np.zeros((1, FACTS), dtype=np.int64), VARIETY)
            scores_MN = np.where(marked_M1, phrase_M1, reading_MN)
        else:
            scores_MN = np.logaddexp(reading_MN, not_read + _log_chance(facts_MT, texts_NT, self.flip))
        return CrossScores(scores_MN, [len(ids) for ids in thoughts_M], list(own_M))  # type: ignore[arg-type]


def _log_chance(facts_MT: Bits, meant_NT: Bits, flip: float) -> npt.NDArray[np.float64]:
    wrong_MN = (facts_MT[:, None] != meant_NT).sum(axis=2)
    found: npt.NDArray[np.float64] = wrong_MN * np.log(flip) + (FACTS - wrong_MN) * np.log(1 - flip)
    return found


def facts(number: int) -> Bits:
    """The facts of the picture with this number."""
    return (number >> np.arange(FACTS)) & 1


def batch(policy: Policy, rng: np.random.Generator) -> list[Group]:
    """One step's groups: distinct pictures, and texts that say the same or nothing."""
    groups = []
    for number in rng.choice(2**FACTS, size=PROMPTS, replace=False):
        picture = facts(int(number))
        text = picture if policy.kind == "text" else np.zeros(FACTS, dtype=np.int64)
        prompt = Prompt("", (-1 - int(number),) * 4 + tuple(map(int, text)))
        task = Task(f"facts-{int(number)}", int(number), "train")
        episodes = []
        for member in range(MEMBERS):
            ids = tuple(map(int, policy.sample(picture, text, rng)))
            spans = Span(0, len(ids)), Span(len(ids), len(ids))
            reply = Reply(prompt, ids, "", (0.0,) * len(ids), (), *spans, True, False)
            turn = Turn(reply, {}, (), True, "", "")
            episodes.append(Trajectory(task, member, (turn,), Ending.FAILED, 0.0))
        groups.append(Group(task, tuple(episodes)))
    return groups


def measured(policy: Policy, rng: np.random.Generator, step: int = 0) -> dict[str, Metric]:
    """What a full measurement reads of first turns and of their pictures, by the functions that a run calls."""
    asked = ThoughtScores(DiagnosticsConfig(words=0), policy, 0, ThoughtTags(), step, batch(policy, rng), "")
    first = asked.first_turns()
    found = asked.images(first)
    reader = ScopeReader(0)
    metrics = reader.measure(step, "first_turn", first.scored) + reader.measure(step, "image", found.image)
    return {each.name: each for each in [*metrics, found.share(first.scores, first.thoughts, "", "")]}


def model(seed: int) -> tuple[np.random.Generator, float]:
    """The generator of one simulated model, and its chance of a wrong fact: models differ."""
    rng = np.random.default_rng(seed)
    return rng, float(rng.uniform(0.05, 0.2))


def areas(kind: str, runs: int) -> Iterable[str]:
    """Rows of the table of ROC areas: one reading of each of `runs` models, and one of each after its collapse."""
    healthy = [_reading(kind, 0.0, seed) for seed in range(runs)]
    for share in SHARES:
        collapsed = [_reading(kind, share, seed) for seed in range(runs)]
        cells = [_area(collapsed, healthy, name) for name in METRICS]
        yield " | ".join([kind, f"{share:g}", *cells])


def _reading(kind: str, share: float, seed: int) -> dict[str, Metric]:
    _, flip = model(seed)
    return measured(Policy(kind, share, flip), np.random.default_rng([seed, round(100 * share)]))


def _area(collapsed: Sequence[Mapping[str, Metric]], healthy: Sequence[Mapping[str, Metric]], name: str) -> str:
    sides = [_sample(side, name) for side in (collapsed, healthy)]
    if not all(side.values for side in sides):
        return "-"
    found = area(*sides, METRICS[name])
    ends = f" [{found.interval.low:.2f}, {found.interval.high:.2f}]" if found.interval else ""
    return f"{found.value:.3f}{ends}"


def _sample(side: Sequence[Mapping[str, Metric]], name: str) -> Sample:
    """The values of one side. Both sides have the same models."""
    values = {str(run): each[name].value for run, each in enumerate(side)}
    known = {run: float(value) for run, value in values.items() if isinstance(value, int | float)}
    return Sample(tuple(known.values()), tuple(known))


def warnings(kind: str, share: float, runs: int) -> str:
    """A row of the table of alarms: runs of full measurements that collapse in their middle."""
    before, first, others = 0, [], dict[str, int]()
    for seed in range(runs):
        rng, flip = model(seed)
        alarms, raised = Alarms(), dict[str, int]()
        for step in range(MEASUREMENTS):
            policy = Policy(kind, share if step >= COLLAPSE else 0.0, flip)
            for alarm in alarms.observe(step, list(measured(policy, rng, step).values())).raised:
                raised.setdefault(alarm.name, step)
        found = raised.pop("picture_ignored", None)
        before += found is not None and (share == 0 or found < COLLAPSE)
        if found is not None and share and found >= COLLAPSE:
            first.append(found - COLLAPSE + 1)
        for name in raised:
            others[name] = others.get(name, 0) + 1
    false = clopper_pearson(before, runs)
    told = ", ".join(f"{name} {count}" for name, count in sorted(others.items())) or "none"
    delay = f"{median(first):g}" if first else "-"
    cells = kind, f"{share:g}", f"{len(first)} of {runs}", delay, f"{before} of {runs}", f"{false.high:.2f}", told
    return " | ".join(cells)


def table(head: str, rows: Iterable[str]) -> list[str]:
    return [f"| {head} |", "|" + "---|" * (head.count("|") + 1), *(f"| {row} |" for row in rows)]


def page(runs: int) -> str:
    """Both tables with what they are."""
    names = " | ".join(f"`{name}`" for name in METRICS)
    rows = [row for kind in KINDS for row in areas(kind, runs)]
    alarms = [warnings(kind, share, runs) for kind in KINDS for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return "\n".join(
        [
            "# A planted visual collapse",
            "",
            f"Written by `python -m benchmarks.visual_collapse --runs {runs}`, whose docstring says what is simulated.",
            "",
            f"Area under the ROC curve of one full measurement before the collapse and one after it, of {runs} models, "
            "with 95% intervals over models. Models differ: a fact is wrong with a chance drawn from .05 to .2.",
            "",
            *table(f"kind | share that does not read the picture | {names}", rows),
            "",
            f"Runs of {MEASUREMENTS} full measurements, collapsed from number {COLLAPSE + 1} on. `false` counts "
            "`picture_ignored` before, in runs of share 0 at any time, with the upper end of its exact 95% interval. "
            "The delay is the median in measurements, 1 = at once.",
            "",
            *table("kind | share | raised | delay | false | at most | other alarms", alarms),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40, help="simulated models for each cell")
    runs = parser.parse_args().runs
    STORED.write_text(page(runs), encoding="utf-8")
    print(f"Wrote {STORED}.")


if __name__ == "__main__":
    main()
