"""The exchange of thoughts between prompts: which thoughts, which prompts, and which actions a model is asked about.

Nothing is tokenised or decoded. An action is a run of sampled ids that begins after the thought and ends with the id
that tells it from all other actions of the batch. No action's ids begin another's, so their probabilities add.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from heedful.types import Group, Task, Trajectory

Ids = tuple[int, ...]

FOREIGN = 3
"""Fewest prompts of others that a thought is read under: with three of them every reading has an interval."""

MOST_SPELLINGS = 64
"""More different ways to write a first action than this are no list to choose from."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """M first-turn thoughts, the N distinct prompts they were sampled under, and S spellings of first actions.

    The model is asked for log p(spelling s | prompt j, thought i), for the j of `under(i)` and the s of `asked(i)`.
    """

    prompts_N: tuple[Ids, ...] = ()
    """Token ids of the whole context up to the first id of the thought."""
    thoughts_M: tuple[Ids, ...] = ()
    """Token ids of each thought, its end included."""
    own_M: tuple[int, ...] = ()
    spellings_S: tuple[Ids, ...] = ()
    """Sampled ids that follow a thought and settle the first action. None of them begins another, unless `free`."""
    action_S: tuple[int, ...] = ()
    """Number of the action that each spelling writes, from 0."""
    taken_M: tuple[int, ...] = ()
    """The spelling that followed each thought when it was sampled."""
    tasks_N: tuple[Task, ...] = ()
    """The first task of each prompt."""
    foreign: int = FOREIGN
    """Fewest prompts of others that each thought is read under, if there are so many. Prompts are read in blocks."""
    names_A: tuple[str, ...] = ()
    """The actions as the environment names them; of whole answers a reply with each. Of free text each spelling counts
    as an action, without a name."""
    counts_NA: tuple[tuple[int, ...], ...] = ()
    """How many replies to each prompt, exchanged or not, took each action first. Empty for free text."""
    free: str = ""
    """Why the spellings are no list of actions to choose from (free text). Empty if they are one."""
    why: str = ""
    """Why there is nothing to ask."""

    @property
    def actions(self) -> int:
        """How many different actions the spellings write."""
        return len(set(self.action_S))

    def under(self, row: int) -> list[int]:
        """Prompts to read thought `row` under: those of its own prompt's block. Of free text its own prompt alone."""
        own = self.own_M[row]
        return [own] if self.free else block(own, len(self.prompts_N), self.foreign)

    def asked(self, row: int) -> Sequence[int]:
        """Spellings to score behind thought `row`: all; of free text those that answer the thought's own prompt."""
        if not self.free:
            return range(len(self.spellings_S))
        own = self.own_M[row]
        return sorted({taken for taken, other in zip(self.taken_M, self.own_M, strict=True) if other == own})


def block(own: int, count: int, foreign: int) -> list[int]:
    """The block of `own` among `count` places, in blocks of `foreign` + 1 or a few more each."""
    blocks = max(1, count // (foreign + 1))
    return [place for place in range(count) if place * blocks // count == own * blocks // count]


@dataclass(frozen=True, slots=True)
class Acted:
    """A turn with a thought behind which an action was executed."""

    task: Task
    prompt: Ids
    thought: Ids
    after: Ids
    """What was sampled behind the thought, to the end of the reply."""
    answer: int
    """Where in `after` the answer begins; 0 if it is not known."""
    answered: int
    """Where in `after` the answer ends; the whole length if it is not known."""
    action: str

    @classmethod
    def of(cls, trajectory: Trajectory, number: int = 0, written: bool = False) -> Acted | None:
        """That of the turn with this number, from 0. `None` where it has no thought or no executed action.

        `written`: the action is the whole answer as it was written, executed or not.
        """
        if not trajectory.turns[number:]:
            return None
        turn = trajectory.turns[number]
        reply = turn.reply
        after = reply.ids[reply.thought.end :]
        if not (len(reply.thought) and (turn.actions or written) and after):
            return None
        prompt = (*trajectory.context_ids(number), *reply.ids[: reply.thought.start])
        thought = reply.ids[reply.thought.start : reply.thought.end]
        begin, end = 0, len(after)
        if len(reply.answer):
            begin, end = (max(0, place - reply.thought.end) for place in (reply.answer.start, reply.answer.end))
        action = " ".join(map(str, after[begin:end])) if written else turn.actions[0]
        return cls(trajectory.task, prompt, thought, after, begin, end, action)


def exchange(groups: Sequence[Group], rows: int = 32, columns: int = 16, foreign: int = FOREIGN) -> Exchange:
    """What to ask about the first turns of the first `columns` prompts, with `rows` thoughts in all, shared evenly.

    At most `rows` / 2 prompts, so that a prompt has two thoughts where two were sampled.
    Groups and members are exchangeable, so the first ones are as good a sample as any. Left out: first turns without
    a thought, without an executed action, and the rare reply that ends before its tokens tell the action. The spellings
    are those of the whole batch. Groups with equal prompts share a column; the groups must be of one environment.
    Thoughts are exchanged within blocks of prompts, of `foreign` + 1 or a few more each.
    """
    acted = [found for group in groups for one in group.trajectories if (found := Acted.of(one)) is not None]
    spelled = spelled_actions(acted, "first turn")
    if spelled.why:
        return Exchange(why=spelled.why)
    chosen = replace(_chosen(spelled.clear, spelled.action_S, rows, columns), free=spelled.free, foreign=foreign)
    if spelled.free:
        return chosen
    counts = Counter((one.prompt, one.action) for one, _ in spelled.clear)
    counts_NA = tuple(tuple(counts[prompt, action] for action in spelled.names_A) for prompt in chosen.prompts_N)
    return replace(chosen, names_A=spelled.names_A, counts_NA=counts_NA)


def exchange_answers(groups: Sequence[Group], rows: int = 32, columns: int = 16) -> Exchange:
    """As `exchange`, with whole answers in the place of first actions. Their names are replies that hold them.

    An answer is what was written to its end, executed or not. Of many the 64 that were written most often are asked
    about. Thoughts count whether or not anything was executed behind them.
    """
    members = [trajectory for group in groups for trajectory in group.trajectories]
    written = [
        (found, one.turns[0].reply.text) for one in members if (found := Acted.of(one, written=True)) is not None
    ]
    if len({one.action for one, _ in written}) < 2:
        few = "all first answers are the same: there is nothing to tell apart"
        return Exchange(why=few if written else "no first turn has a thought and an answer")
    often = dict(Counter(one.action for one, _ in written).most_common(MOST_SPELLINGS))
    acted, answers = [one for one, _ in written], [one.action for one, _ in written]
    spelled = spell([one.after for one in acted], answers, [one.answered for one in acted])
    replies: dict[str, str] = {}
    spellings: dict[Ids, int] = {}
    clear = []
    for (one, text), ids in zip(written, spelled, strict=True):
        if ids is not None and one.action in often:
            replies.setdefault(one.action, text)
            spellings.setdefault(ids, list(replies).index(one.action))
            clear.append((one, ids))
    chosen = _chosen(clear, spellings, rows, columns)
    return replace(chosen, names_A=tuple(replies.values()))


@dataclass(frozen=True, slots=True)
class Spelled:
    """How the turns of a batch write their first actions."""

    clear: tuple[tuple[Acted, Ids], ...] = ()
    """Each turn whose tokens tell its action, with the spelling. Of free text all turns, with their answers."""
    names_A: tuple[str, ...] = ()
    action_S: Mapping[Ids, int] = field(default_factory=dict)
    """Spelling -> the number of the action that it writes. Empty for free text."""
    free: str = ""
    why: str = ""
    """Why there is nothing to ask."""


def spelled_actions(acted: Sequence[Acted], kind: str) -> Spelled:
    """The spellings of first actions. `kind`: the turns in words."""
    if not acted:
        return Spelled(why=f"no {kind} has a thought and an executed action")
    if len({one.action for one in acted}) == 1:
        return Spelled(why="all first actions are the same: there is nothing to tell apart")
    # Only tags and manners can differ before the first id in which the answers of the batch differ.
    answers = [one.after[one.answer : one.answered] for one in acted]
    common = 0
    while len({ids[common : common + 1] for ids in answers}) == 1 and answers[0][common:]:
        common += 1
    told_from = [min(one.answer + common + 1, one.answered) for one in acted]
    spelled = spell([one.after for one in acted], [one.action for one in acted], told_from)
    clear = [(one, ids) for one, ids in zip(acted, spelled, strict=True) if ids is not None]
    if not clear:
        return Spelled(why="the tokens of the replies do not tell their first actions apart")
    if free := _free_text([ids for _, ids in clear]):
        return Spelled(tuple((one, one.after[: one.answered]) for one in acted), free=free)
    names: dict[str, int] = {}
    action_S = {ids: names.setdefault(one.action, len(names)) for one, ids in clear}
    return Spelled(tuple(clear), tuple(names), action_S)


def spell(after_M: Sequence[Ids], actions_M: Sequence[str], least_M: Sequence[int]) -> list[Ids | None]:
    """The beginning of each row's ids that settles its action: no row with another action begins with it.

    At least `least_M` ids long. None of the results begins another. `None` where a row's ids end before they differ
    from those of a row with another action.
    """
    settled: list[Ids | None] = [None] * len(after_M)
    pending = [(0, list(range(len(after_M))))]
    while pending:
        depth, rows = pending.pop()
        if len({actions_M[row] for row in rows}) == 1:
            for row in rows:
                settled[row] = after_M[row][: max(depth, least_M[row])]
            continue
        branches: dict[int, list[int]] = {}
        for row in rows:
            if depth < len(after_M[row]):
                branches.setdefault(after_M[row][depth], []).append(row)
        pending += [(depth + 1, branch) for branch in branches.values()]
    known = {ids for ids in settled if ids is not None}
    # The shortest beginning that is an answer of the batch.
    return [
        None if ids is None else next(ids[:length] for length in range(len(ids) + 1) if ids[:length] in known)
        for ids in settled
    ]


def mostly_alone(taken: Sequence[object]) -> int:
    """How many were taken once only, if that is more than half: what nobody else does is text, not a choice. Else 0."""
    alone = sum(count == 1 for count in Counter(taken).values())
    return alone if 2 * alone > len(taken) else 0


def _free_text(spelled: Sequence[Ids]) -> str:
    alone, different = mostly_alone(spelled), len(set(spelled))
    if alone:
        return f"free text: {alone} of {len(spelled)} replies go on behind the thought as no other does"
    if different > MOST_SPELLINGS:
        return f"free text: {different} different ways to go on behind the thought, more than {MOST_SPELLINGS}"
    return ""


def _chosen(clear: Sequence[tuple[Acted, Ids]], actions: Mapping[Ids, int], rows: int, columns: int) -> Exchange:
    """The first thoughts of the first prompts. Without `actions` every spelling counts as an action of its own."""
    place: dict[Ids, int] = {}
    tasks: dict[Ids, Task] = {}
    for one, _ in clear:
        tasks.setdefault(one.prompt, one.task)
        if len(place) < min(columns, max(1, rows // 2)):
            place.setdefault(one.prompt, len(place))
    most = max(1, rows // len(place))
    seen: Counter[Ids] = Counter()
    chosen = []
    for one, ids in clear:
        if one.prompt in place and seen[one.prompt] < most:
            seen[one.prompt] += 1
            chosen.append((one, ids))
    spellings = actions or {ids: number for number, ids in enumerate(dict.fromkeys(ids for _, ids in chosen))}
    number = {ids: place for place, ids in enumerate(spellings)}
    return Exchange(
        prompts_N=tuple(place),
        thoughts_M=tuple(one.thought for one, _ in chosen),
        own_M=tuple(place[one.prompt] for one, _ in chosen),
        tasks_N=tuple(tasks[prompt] for prompt in place),
        spellings_S=tuple(spellings),
        action_S=tuple(spellings.values()),
        taken_M=tuple(number[ids] for _, ids in chosen),
    )
