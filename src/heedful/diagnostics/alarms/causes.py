"""Likely causes of alarms, as data: what may lie behind each alarm, what tells it apart, and what to try.

No alarm proves a cause. Causes are ranked by what else was raised and when: those of the alarm that came first lead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

SLACK = 20
"""Steps after an alarm in which another one is still evidence for its cause, since some are found later than others."""
ALWAYS = 10**9
LATER: Mapping[str, int] = {
    **dict.fromkeys(("success_drop", "validation_drop", "train_validation_gap"), SLACK),
    **dict.fromkeys(("gradient_spike", "length_rise", "outgrown"), ALWAYS),
    "stalled": -ALWAYS,
}
"""Steps by which an alarm yields to others. A fall of success is an effect. A notice may be harmless. Why a run stands
still is asked first."""


class Reading(NamedTuple):
    """A metric is above a limit, or (not `above`) at or below it."""

    metric: str
    above: bool
    limit: float


@dataclass(frozen=True, slots=True)
class Row:
    """A cause that an alarm may have."""

    cause: str
    """A key of `CAUSES`."""
    after: tuple[str, ...] = ()
    """Alarms of which one, raised before this alarm or at most `SLACK` steps after it, makes the cause likely."""
    readings: tuple[Reading, ...] = ()
    """Readings of which one makes it likely, too."""
    look: str = ""
    """What tells the cause apart, for a person."""
    alone: bool = False
    """It is likely without such an alarm or reading, too. So is a cause that asks for none."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A likely cause in a run."""

    name: str
    """A key of `CAUSES`."""
    alarm: str
    words: str
    remedy: str
    shown: str
    """The alarm or reading that makes it likely. Empty: nothing but the alarm itself."""
    look: str
    """What to log or to look at, to know more."""

    def sentence(self) -> str:
        why = f" ({self.shown})" if self.shown else f" (to know more: {self.look})" if self.look else ""
        return f"{self.alarm}: {self.words}{why}. Try: {self.remedy}."


# fmt: off
CAUSES: Mapping[str, tuple[str, str]] = {
    "batch": ("one batch was unusual",
        "look at the lengths and rewards of that batch, and clip the gradient norm"),
    "bonus": ("the entropy bonus outweighs the reward",
        "lower the bonus or switch it off. If more exploration is wanted, wait for success"),
    "dead_signal": ("few groups teach, so regularisers alone move the policy",
        "keep groups without spread out of the loss (`--filter top_p`), and lower the entropy bonus"),
    "easy": ("the tasks are too easy", "use harder tasks, and leave out those that are always solved"),
    "empty": ("the loss of a batch whose groups were all dropped", "skip the update when no token is left"),
    "ended": ("the trainer has ended or hangs",
        "read the last lines of its own log, and look whether its process is alive. Do not restart it unasked"),
    "format": ("a right format earns too little", "read replies that could not be executed, and pay for the format"),
    "gamed": ("the reward can be gamed",
        "read the ten best-paid replies, grade some by hand, and add a second grader"),
    "hard": ("the tasks are too hard (or, where success is not logged, too easy)",
        "use easier tasks first, hints, demonstrations, or partial credit"),
    "kl_low": ("the KL coefficient is too small", "raise it (to .001), and go back to a checkpoint before the growth"),
    "limit": ("the token limit cuts replies", "raise the limit, or reward shorter replies"),
    "long": ("nothing in reward or loss holds the length of replies",
        "divide the loss by a constant length, or reward shorter replies. Read some of the longest"),
    "memory": ("training tasks are learnt by heart", "train on new tasks of the same kind, and look for leaks"),
    "narrow": ("updates only make likely tokens likelier",
        "raise the upper clip limit, add a KL penalty or a small entropy bonus, and go back to a checkpoint before"),
    "one_action": ("one first action is right for most tasks", "nothing, if success holds. Otherwise mix the tasks"),
    "overflow": ("a number overflows", "use bf16 in place of fp16, clip the gradient norm, lower the learning rate"),
    "parser": ("the parser does not find the answers", "read replies that earned nothing, and show or pay the format"),
    "rate": ("the learning rate is too high", "halve it, and go back to a checkpoint before the first alarm"),
    "reference": ("the KL term has the wrong reference or sign", "check that KL is near 0 at the first step"),
    "reward_blind": ("the reward does not pay a right episode", "mend the verifier, and do not train on these tasks"),
    "reward_value": ("a reward is no finite number", "let the verifier return a number always"),
    "sampler": ("the engine that samples is not the policy that learns",
        "compare weights, precision, template and temperature of both. Correct by importance weights meanwhile"),
    "schedule": ("the schedule, or a resume, set a higher learning rate",
        "compare it with the schedule that was meant, and go back to a checkpoint before the jump"),
    "service": ("a tool or search service fails", "test the service, and count its errors as such"),
    "shaping": ("a part of the reward that is not success, such as a cost per step, decides the update",
        "leave groups with one outcome out (`--filter drop_constant --filter.on outcome`), or do not standardise "
        "(`--algorithm.advantage.no-standardize`)"),
    "stale": ("samples are older than the weights", "lower the lag, or mask tokens with a large ratio"),
    "text_same": ("the text of the prompt says what the picture shows", "leave it out, or accept it"),
    "turns_free": ("turns that lead nowhere cost nothing", "add a cost per step"),
    "unneeded": ("the tasks do not need what thoughts say",
        "nothing, if success holds. Otherwise filter by reward variance, lower the entropy bonus, and go back to a "
        "checkpoint before"),
    "unread": ("the model does not read the task yet",
        "check that the observation is in the prompt. Then a better warm start, or easier tasks"),
    "updates": ("too many updates per batch", "use fewer epochs per batch, or a lower learning rate"),
    "verifier": ("the verifier refuses right answers", "score a known right answer, and grade 20 replies by hand"),
    "waiting": ("the trainer waits for an engine, a tool or the disk", "test them, and free disk space"),
}
"""Name -> the cause in words, and what to try."""

_SIGNAL = Reading("signal/mixed", False, 0.25), Reading("trainer/zero_std", True, 0.75)
_CLIPPED = tuple(Reading(name, True, 0.2) for name in ("trainer/clip_share", "policy/clip_fraction"))
_UNREADABLE = tuple(Reading(name, False, 0.5) for name in ("format/closed_rate", "format/valid_rate"))
_COEFFICIENT = (Reading("policy/entropy_coefficient", True, 0.0),)
_STALE = (Reading("signal/stale", True, 0.5),)
_APART = (Reading("policy/kl_to_sampler", True, 0.01),)
_SAMPLER = Row("sampler", ("sampler_mismatch",), _APART, look="the divergence of sampler and learner")
_SCHEDULE = Row("schedule", ("rate_jump",), look="the learning rate of each step")
_RATE_SHOWN = Row("rate", ("gradient_spike", "kl_runaway"), look="gradient norm and KL to the reference")
_RATE = Row("rate", look="the learning rate, the gradient norm and the clip share")
_BONUS_SHOWN = Row("bonus", ("entropy_rise", "noise_collapse"), look="the entropy, and its coefficient")
_BONUS = Row("bonus", readings=_COEFFICIENT, look="the coefficient of the bonus", alone=True)
_LIMIT = Row("limit", ("truncation",), (Reading("trainer/truncated", True, 0.25),), look="the share of cut replies")
_GAMED = Row("gamed", ("train_validation_gap",), look="success on held-out tasks")
_SHAPING = Row("shaping", ("shaping_dominates",), look="the parts of the reward beside success")
_DEAD = Row("dead_signal", ("starvation", "outgrown"), _SIGNAL, look="the share of groups with spread")
_UNNEEDED = Row("unneeded", look="success, and some thoughts beside their prompts")

TABLE: Mapping[str, tuple[Row, ...]] = {
    "stalled": (
        Row("ended", look="the process, and the last lines of the trainer's log"),
        Row("waiting", look="the engine, the tools and the free disk space"),
    ),
    "rate_jump": (Row("schedule", look="whether a resume came before it"),),
    "sampler_mismatch": (
        Row("stale", readings=_STALE, look="the age of samples: divergence grows with it"),
        Row("sampler", look="whether it rose at once (a setting) or grows with length (kernels)"),
    ),
    "not_finite": (
        Row("empty", readings=(Reading("trainer/zero_std", True, 0.99), Reading("filter/kept_ratio", False, 0.0)),
            look="whether all groups of that step were dropped"),
        Row("overflow", ("gradient_spike", "rate_jump"), look="the precision, and the norm before it", alone=True),
        Row("reward_value", look="the rewards of that step"),
    ),
    "kl_runaway": (
        _SCHEDULE, _GAMED, _RATE, Row("kl_low", look="the coefficient, and success on held-out tasks"),
        Row("reference", look="whether KL grows from the first step on"),
    ),
    "gradient_spike": (
        _SCHEDULE, _SAMPLER, Row("batch", look="the batch of that step"),
        Row("rate", look="whether spikes repeat"),
    ),
    "truncation": (
        Row("long", ("length_rise",), look="the mean length of replies"), _BONUS_SHOWN,
        Row("limit", look="the limit beside the mean length"),
    ),
    "length_rise": (_BONUS_SHOWN, Row("long", look="some of the longest replies")),
    "reward_blind": (Row("reward_blind", look="what episodes earned that got all the way"),),
    "unpaid_tasks": (Row("reward_blind", look="what the solver's episode of such a task earns"),),
    "shaping_dominates": (Row("shaping", look="the parts of the reward beside success"),),
    "starvation": (
        Row("parser", ("format_collapse",), _UNREADABLE, look="the share of replies with a closed, valid format"),
        _LIMIT, Row("reward_blind", ("reward_blind",), look="progress of episodes that earned nothing"),
        Row("hard", look="success"), Row("verifier", look="the score of a known right answer"),
    ),
    "outgrown": (_GAMED, Row("easy", look="success on held-out tasks")),
    "entropy_rise": (_SAMPLER, _SCHEDULE, _DEAD, _BONUS, _RATE),
    "noise_collapse": (_SAMPLER, _SCHEDULE, _DEAD, _BONUS, _RATE),
    "low_entropy_collapse": (
        _SCHEDULE, Row("easy", ("outgrown",), look="the share of solved groups"),
        Row("updates", readings=_CLIPPED, look="the share of clipped tokens"),
        Row("narrow", look="the clip limits, and the KL coefficient"), _RATE,
    ),
    "template_collapse": (_SHAPING, _DEAD, _BONUS, _UNNEEDED),
    "words_uninformed": (
        _SHAPING, _DEAD, _BONUS,
        Row("unneeded", look="a model (`--model`, `--server`), since words are no proof; and some thoughts"),
    ),
    "format_collapse": (_LIMIT, _BONUS_SHOWN, _SCHEDULE, _RATE_SHOWN, Row("format", look="replies that failed")),
    "entropy_gaming": (_BONUS,),
    "input_blind": (Row("unread", look="whether it is so from the first step on"), _UNNEEDED),
    "thought_bypassed": (_SHAPING, _UNNEEDED),
    "action_uninformed": (Row("one_action", look="success, and the first actions"), _RATE),
    "picture_ignored": (_DEAD, Row("text_same", look="the scopes image and text"), _UNNEEDED),
    "oscillation": (_SHAPING, Row("turns_free", look="some trajectories")),
    "train_validation_gap": (
        Row("gamed", look="the best-paid replies: the gap is there on new tasks of the same kind, too"),
        Row("memory", look="success on repeated and on new tasks: the gap is on repeated ones alone"),
    ),
    "success_drop": (
        _SAMPLER, _SCHEDULE,
        Row("rate", ("gradient_spike", "kl_runaway"), alone=True,
            look="learning rate, gradient norm, KL, entropy, and the divergence of sampler and learner"),
        _BONUS_SHOWN, _LIMIT, _GAMED, _SHAPING,
        Row("narrow", ("low_entropy_collapse",), look="the entropy"),
        Row("format", ("format_collapse",), look="the share of valid replies"),
        Row("service", look="the errors of tools and of a search service"),
    ),
    "validation_drop": (
        _SCHEDULE, _RATE_SHOWN, _DEAD, _GAMED, _LIMIT, _SHAPING, Row("memory", look="success on repeated tasks"),
        Row("service", look="the errors of tools and of a search service"),
    ),
}
"""Alarm -> its causes, the more likely ones first. Of alarms raised at the same step, the upper one leads."""
# fmt: on


def likely(raised: Mapping[str, int], readings: Mapping[str, float] | None = None) -> tuple[Cause, ...]:
    """The likely causes of what was raised, the likeliest first, each once.

    They are ranked alarm by alarm, from the earliest on. Where other alarms or readings show a cause of an alarm, its
    other causes come last of all. So do causes whose evidence is missing: it may only not have been logged. Causes that
    a reading speaks against are left out.

    Args:
        raised: alarm -> the step at which it was raised first. Alarms without a row are passed over.
        readings: metric -> its value when the first alarm was raised.
    """
    known, found = readings or {}, list[tuple[tuple[float, ...], Cause]]()
    for place, (alarm, rows) in enumerate(TABLE.items()):
        of_alarm = []
        for number, row in enumerate(rows if alarm in raised else ()):
            others = [name for name in row.after if name in raised and raised[name] <= raised[alarm] + SLACK]
            read = [(each, known[each.metric]) for each in row.readings if each.metric in known]
            held = [f"{each.metric} is {value:.3g}" for each, value in read if (value > each.limit) == each.above]
            shown = "; ".join([*(f"{name} at step {raised[name]}" for name in others), *held])
            if read and not shown:
                continue
            of_alarm.append((number, row, shown))
        explained = any(shown for *_, shown in of_alarm)
        for number, row, shown in of_alarm:
            last = not shown and (explained or (bool(row.after or row.readings) and not row.alone))
            order = last, raised[alarm] + LATER.get(alarm, 0), place, number
            found.append((order, Cause(row.cause, alarm, *CAUSES[row.cause], shown, row.look)))
    ranked = dict[str, Cause]()
    for _, cause in sorted(found, key=lambda each: each[0]):
        ranked.setdefault(cause.name, cause)
    return tuple(ranked.values())


READ = frozenset(reading.metric for rows in TABLE.values() for row in rows for reading in row.readings)
"""The metrics that tell causes apart."""


def lists_of_causes() -> list[str]:
    """Two lists of Markdown: the causes of each alarm, and each cause with its usual evidence and a remedy."""

    def evidence(row: Row) -> str:
        sides = {True: "above", False: "at most"}
        shown = [*row.after, *(f"{each.metric} {sides[each.above]} {each.limit:g}" for each in row.readings)]
        return ", ".join([*shown, *(["or nothing"] if row.alone else [])])

    found = {
        name: Counter(evidence(row) for rows in TABLE.values() for row in rows if row.cause == name) for name in CAUSES
    }
    usual = {name: counted.most_common(1)[0][0] for name, counted in found.items()}

    def cell(row: Row) -> str:
        own = evidence(row)
        return row.cause if own == usual[row.cause] else f"{row.cause} ({own or 'nothing'})"

    return [
        *(f"- `{alarm}`: {', '.join(map(cell, rows))}" for alarm, rows in TABLE.items()),
        *("", "Causes, and what to try:", ""),
        *(
            f"- {name}: {words}{f' ({usual[name]})' if usual[name] else ''}. Try: {remedy}."
            for name, (words, remedy) in CAUSES.items()
        ),
    ]
