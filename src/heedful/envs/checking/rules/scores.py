"""Rules on the scores of an episode: rewards, outcomes, endings, and that they agree.

They examine every step, also those that answer hostile replies, and report the ranges found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from numbers import Real

from heedful.boundary.limits import LARGEST_REWARD
from heedful.envs.checking.evidence import Evidence
from heedful.envs.checking.play import Bench
from heedful.envs.checking.report import Finding, broken, holds, in_words, shortened, unchecked
from heedful.envs.transport.wire import is_finite
from heedful.types import Ending


def rewards(bench: Bench, evidence: Evidence) -> Finding:
    """Components have names, and values that training takes. Their observed ranges are told."""
    ranges: dict[str, list[float]] = defaultdict(list)
    totals = []
    for played in evidence.episodes:
        total = 0.0
        for turn, exchange in enumerate(played.exchanges):
            for name, value in exchange.step.rewards.items():
                fits = is_finite(value) and abs(value) <= LARGEST_REWARD
                if not isinstance(name, str) or not name or not fits:
                    return broken(
                        "a reward is not a named, finite number",
                        expected=f"Step.rewards maps names (texts) to numbers of at most {LARGEST_REWARD:g} in size",
                        found=f"{name!r}: {in_words(value)}",
                        where=played.where(turn),
                        remedy="leave out what cannot be computed, and catch divisions by zero and logarithms of it",
                    )
                ranges[name].append(float(value))
                total += float(value)
        totals.append(total)
    if not ranges:
        return holds(
            "no reward was given in any episode: advantages will come from nothing; give the outcome as a reward"
        )
    each = ", ".join(f"{shortened(name, len(name))[1:-1]} {_range(values)}" for name, values in sorted(ranges.items()))
    return holds(f"finite; per step {each}; per episode {_range(totals)}")


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def outcome(bench: Bench, evidence: Evidence) -> Finding:
    """There exactly at the end, in [0, 1], and 1 just where the ending says solved."""
    seen: Counter[str] = Counter()
    for played, turn, exchange in evidence.exchanges():
        step = exchange.step
        value = step.outcome
        number = isinstance(value, Real) and not isinstance(value, bool) and 0.0 <= value <= 1.0
        if step.ending is None and value is not None:
            return _outcome_broken(
                "an outcome before the end", f"outcome {value!r} without an ending", played.where(turn)
            )
        if not isinstance(step.ending, Ending) or step.ending is Ending.ERROR:
            continue
        if not number:
            return _outcome_broken(
                "an episode ends without an outcome in [0, 1]", f"outcome {value!r}", played.where(turn)
            )
        if (value == 1.0) != (step.ending is Ending.SOLVED):
            found = f"outcome {value!r} with Ending.{step.ending.name}"
            return _outcome_broken("outcome and ending contradict each other", found, played.where(turn))
        seen[f"{float(value):g}"] += 1  # type: ignore[arg-type]  # it is a number
    if not seen:
        return unchecked("no episode ended: see turns")
    most = sorted(seen, key=float)
    shown = ", ".join(most) if len(most) <= 6 else f"{len(most)} values from {most[0]} to {most[-1]}"
    solved = "1 exactly where it is solved" if "1" in seen else "though none was solved, so 1 was not seen"
    return holds(f"set at the end of each episode and nowhere else, {solved}; seen: {shown}")


def _outcome_broken(sentence: str, found: str, where: str) -> Finding:
    return broken(
        sentence,
        expected="`outcome` is None until the step with the ending, and there a number in [0, 1]; 1 goes with "
        "Ending.SOLVED and with no other",
        found=found,
        where=where,
        remedy="set ending and outcome together, in one place; partial credit stays below 1",
    )


def endings(bench: Bench, evidence: Evidence) -> Finding:
    """Named by the enum, and not an error because of what an agent wrote."""
    seen: Counter[str] = Counter()
    for played, turn, exchange in evidence.exchanges():
        ending = exchange.step.ending
        if ending is None:
            continue
        if not isinstance(ending, Ending) or ending is Ending.ERROR:
            found = in_words(ending) if not isinstance(ending, Ending) else f"Ending.ERROR: {exchange.step.effect}"
            return broken(
                "an episode ends as it must not",
                expected="SOLVED, FAILED or OUT_OF_TURNS of heedful.types.Ending; ERROR is for what breaks without the "
                "agent, and such an episode is never scored",
                found=found,
                where=played.where(turn),
                remedy="end with the member that fits; a reply that cannot be read spends the turn",
            )
        seen[ending.value] += 1
    if not seen:
        return unchecked("no episode ended: see turns")
    return holds("seen: " + ", ".join(f"{name} {count}" for name, count in seen.most_common()))
