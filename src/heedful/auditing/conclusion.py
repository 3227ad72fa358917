"""The conclusion of an audit in words: do thoughts depend on their prompts, and less than at the start of the log?

Every sentence is based on metrics of the audit. What was not measured is reported as unknown, with the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from heedful.diagnostics.actions.rightness import carriers
from heedful.diagnostics.catalogue import legend_of, mark_of
from heedful.report.outcome import JOIN, WORDS, words_not_judged
from heedful.storage import StepMetrics
from heedful.types import Metric

LEVEL = 0.05
"""Of the permutation test."""
COLLAPSE = "alarm/template_collapse"
LOST = (
    "not decided. {}, so thought and answer cannot be told apart: the special token may have been lost in decoding, "
    "and an answer that depends on the prompt hides a thought that does not. Ways out: `--tags OPEN,CLOSE` if thoughts "
    "end otherwise, a log that keeps token ids or special tokens, or heedful's own record of the run (docs/trl.md, "
    "docs/verl.md)."
)
_UNKNOWN = Metric("", None, None)
_GROUNDED = re.compile(r"grounding(@[^/]+)?/(?:[^/]+/)?(?=(right|agreed)$)")
_TEST = re.compile(r"retrieval(@[^/]+)?/(first_turn(?:/[^/]+)?)/p_value")


class Answer(NamedTuple):
    """An answer to the question."""

    short: str
    """In a few words."""
    sentences: list[str]
    shown: list[Metric]
    """The metrics in the sentences."""


def conclusion(lines: Sequence[StepMetrics], lost: str = "") -> list[str]:
    """The sentences, the answer first. `lost`: why thoughts cannot be told apart: then whole replies were read as
    thoughts, and what depends on the prompt may be the answer alone."""
    names = dict.fromkeys(name for line in lines for name in line.metrics)
    tests = [test for name in names if (test := _TEST.fullmatch(name))]
    what = "reply" if lost else "thought"
    answers = [answer for test in tests if (answer := _scored(lines, test[1] or "", test[2], what))]
    if not answers and (worded := _worded(lines, what)):
        unscored = [f"The model does not decide: {_why_not(lines, tests[0][0])}"] if tests else []
        answers = [worded._replace(sentences=[*worded.sentences, *unscored])]
    if not answers and not lost:
        return [f"Template collapse: not measured. {_why_not(lines, tests[0][0] if tests else '')}"]
    raised = [(step, metric.why) for step, metric in _readings(lines, COLLAPSE) if metric.value]
    short = "; ".join(dict.fromkeys(answer.short for answer in answers))
    alarm = f"alarm at step {raised[0][0]}. {raised[0][1]}" if raised else ""
    sentences = [f"Template collapse: {LOST.format(lost) if lost else _ended(alarm or short)}"]
    sentences += [f"Of whole replies: {_ended(alarm)}"] if lost and alarm else []
    sentences += [sentence for answer in answers for sentence in answer.sentences]
    carried = _carried(lines, names)
    sentences += [sentence for sentence, _ in carried]
    legend = legend_of([*(metric for answer in answers for metric in answer.shown), *(by for _, by in carried)])
    return [*sentences, legend] if legend else sentences


def _scored(lines: Sequence[StepMetrics], at: str, scope: str, what: str) -> Answer | None:
    """By log-probabilities. `at`: `@` and the scorer, empty for the policy itself. `what`: thought or reply.
    `None` where nothing was scored."""
    many = "thoughts" if what == "thought" else "replies"
    accuracies = dict(_readings(lines, f"retrieval{at}/{scope}/accuracy"))
    chances = dict(_readings(lines, f"retrieval{at}/{scope}/chance"))
    tests = _readings(lines, f"retrieval{at}/{scope}/p_value")
    tests = [(step, test) for step, test in tests if step in accuracies and step in chances]
    if not tests:
        return None
    step, test = tests[-1]
    environment = scope.partition("/")[2]
    found = accuracies[step]
    reader = f"{f' of {environment}' if environment else ''}{f', as {at[1:]} reads them' if at else ''}"
    evidence = (
        f"the own prompt is found for {_shown(found)} of the {many}, chance {_shown(chances[step])}, "
        f"p = {_number(test):.3g}"
    )
    if _number(test) > LEVEL:
        sentences = [f"At step {step} nothing shows that {many} depend on their prompts{reader}: {evidence}."]
        earlier = [before for before, each in tests if _number(each) <= LEVEL]
        if earlier:
            return Answer(f"likely at step {step}", [*sentences, f"They did at step {earlier[-1]}."], [found])
        sentences += ["They did at no earlier step of this log."] if len(tests) > 1 else []
        return Answer(f"not excluded at step {step}", sentences, [found])
    sentences = [f"At step {step} {many} depend on their prompts{reader}: {evidence}."]
    gaps = _readings(lines, f"information{at}/{scope}/gap")
    if len(gaps) < 2:
        return Answer(f"not seen at step {step}", sentences, [found])
    (first, before), (last, after) = gaps[0], gaps[-1]
    fallen = before.low is not None and after.high is not None and after.high < before.low
    sentences.append(
        f"A {what} tells {_shown(before)} nats more under its own prompt than under others at step {first}, and "
        f"{_shown(after)} at step {last}: {'a fall' if fallen else 'no clear fall'}."
    )
    return Answer("less information than at the start" if fallen else "not seen", sentences, [found, before, after])


def _carried(lines: Sequence[StepMetrics], names: Iterable[str]) -> list[tuple[str, Metric]]:
    """Where right first actions come from at the last step that says it, for each scorer, and the thought's part."""
    heads = dict.fromkeys(match[0] for name in names if (match := _GROUNDED.match(name)))
    found = []
    for head in heads:
        told = [(line.step, *each) for line in lines if (each := carriers(line.metrics, head))]
        if told:
            step, sentence, by = told[-1]
            at = head.partition("/")[0].partition("@")[2]
            found.append((f"{sentence} (step {step}{f', as {at} reads them' if at else ''}).", by))
    return found


def _worded(lines: Sequence[StepMetrics], what: str) -> Answer | None:
    """By the words of thoughts, without a model."""
    among_8 = _readings(lines, WORDS)
    readings = among_8 or _readings(lines, "text/judge_accuracy")
    if not readings:
        return None
    (first, before), (last, after) = readings[0], readings[-1]
    ways = "among 8" if among_8 else "among all"
    chance = 1 / 8 if among_8 else _number(dict(_readings(lines, "text/judge_chance")).get(last, _UNKNOWN))
    better = after.low is not None and after.low > chance
    sentences = [
        f"A judge of words names the prompt of a {what} {ways} in {_shown(after)} of cases at step {last}, chance "
        f"{chance:.3f}{f' ({_shown(before)} at step {first})' if first != last else ''}."
    ]
    if better:
        sentences.append(
            "Words that repeat the prompt count, too. `--model CHECKPOINT` asks the trained model instead."
        )
    elif after.low is None:
        why = after.why or "no interval was stored"
        sentences.append(f"This is not compared with chance. {_ended(f'{why[:1].upper()}{why[1:]}')} {JOIN}")
    else:
        sentences.append(
            f"That is not clearly above chance. The words may be templates, or the prompts of a step too few. {JOIN}"
        )
    if not among_8:
        sentences += [words_not_judged(line.metrics[WORDS].why) for line in lines if WORDS in line.metrics][-1:]
    return Answer(f"not {'seen in the words' if better else 'excluded'} at step {last}", sentences, [after])


def _why_not(lines: Sequence[StepMetrics], test: str) -> str:
    """The reason that the last step gives, and what to do. `test`: the model's test, empty without a model."""
    name = test or "text/judge_accuracy"
    why = next((line.metrics[name].why for line in reversed(lines) if name in line.metrics), "no thought was read")
    advice = [JOIN] if "prompts" in why else []
    advice += [] if test else ["`--model CHECKPOINT` measures whether thoughts depend on their prompts."]
    return " ".join([_ended(f"{why[:1].upper()}{why[1:]}"), *advice])


def _ended(text: str) -> str:
    """A reason may be a phrase or whole sentences. It ends with one full stop."""
    return f"{text.removesuffix('.')}."


def _readings(lines: Sequence[StepMetrics], name: str) -> list[tuple[int, Metric]]:
    """Of one metric, by step: those that have a number."""
    found = ((line.step, line.metrics[name]) for line in lines if name in line.metrics)
    return sorted((read for read in found if read[1].number is not None), key=lambda read: read[0])


def _number(metric: Metric) -> float:
    return math.nan if metric.number is None else metric.number


def _shown(metric: Metric) -> str:
    interval = "" if metric.low is None else f" [{metric.low:.3f}, {metric.high:.3f}]{mark_of(metric)}"
    return f"{_number(metric):.3f}{interval}"
