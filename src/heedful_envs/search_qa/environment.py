"""SearchQA: the agent searches in passages and answers a question. The paper's environment of that name.

Deviations from the published code, which counts an answer as success from F1 0.3 on: the outcome is an exact match
alone, and F1 is progress. So a list of candidates is no success. Text that is no action is a fault, not a final answer.
The last turn is told as such. A search that fails, as without its server, is an error of the environment and never an
observation. Questions of a file are split, where the published code validates on training questions.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from annotated_types import Interval

from heedful.boundary import NamesSecret, Seconds, Share
from heedful.envs.common import (
    BaseEpisode,
    Played,
    ToolEnvironment,
    Turns,
    answer_fault_line,
    check_range,
    cut_at_word,
    format_reply,
    free_text_rules,
    harmless,
    played_through,
    task_of,
    template_thought,
    text_tool,
)
from heedful.types import Ending, Task, Tool
from heedful_envs.replies import read_action
from heedful_envs.search_qa.encyclopaedia import MOST_HOPS, NAMES, SCHOOLS, Drawn, Names, Thought, draw, drawn_index
from heedful_envs.search_qa.files import check_place, open_questions, searcher_of
from heedful_envs.search_qa.passages import Searcher
from heedful_envs.search_qa.questions import FiledQuestion
from heedful_envs.search_qa.scores import exact_match, f1
from heedful_envs.search_qa.server import Protocol

_LONGEST_TEXT = 500
"""Characters of a query or an answer."""

_QUOTED = 60
"""Characters of an action in an effect."""

BLIND_ANSWERS = 24
"""Candidate answers for the best player that does not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQA(ToolEnvironment):
    """Answer a question by searching in passages.

    First observation of seed 0 under `instructions="brief"`, and a demonstrated reply:

    ```
    turns 4 moves 1
    ask fir : Y > _ > _ = _
    ```
    ```
    <think>fir</think><answer>search[fir]</answer>
    ```

    Without `questions` they are drawn, with the encyclopaedia that answers them: registers of schools, in which each
    person has a teacher and a number. Replies are `search[words]` or `finish[answer]`. Reward components: `solved` (+1
    for an answer that equals a right one after normalisation), `partial` (that share of F1 for another answer) and
    `format`. Outcome: 1 if solved, else 0. Progress: F1 of the final answer. There is no noise.
    """

    name: ClassVar[str] = "search_qa"
    declared: ClassVar[tuple[Tool, ...]] = (
        text_tool("search", "Search in the passages.", "query", "Words to search for.", "search[{}]"),
        text_tool("finish", "Give the final answer.", "answer", "The answer alone.", "finish[{}]"),
    )

    turns: Turns = 4
    """Searches and the answer. In the last turn only an answer counts."""
    questions: str = ""
    """Questions of your own in place of drawn ones: a .parquet, .jsonl or .json file in the form of Search-R1,
    FlashRAG, RAGEN, HotpotQA, 2WikiMultihopQA or MuSiQue. They take one of `corpus`, `index` and `url`."""
    corpus: str = ""
    """A file of up to 100,000 passages, indexed in memory: .jsonl, .jsonl.gz or .json. `questions`: the passages that
    come with the questions."""
    index: str = ""
    """The folder of an index that `heedful index` has built."""
    url: str = ""
    """A retrieval server in place of an index."""
    protocol: Protocol = "search_r1"
    """What the server speaks: `search_r1` (also verl's) or `ragen` (also rLLM's)."""
    timeout: Seconds = 9.0
    """Seconds for one answer of the server, which is asked three times. A step may take 30 s under check-env, and
    `--env-timeout` under `--env-workers`."""
    patience: Seconds = 120.0
    """Seconds for which a search waits for a server that is away or busy. Then the episode ends as an error."""
    key_env: Annotated[str, NamesSecret()] = ""
    """The environment variable with the server's key or token, if it wants one."""
    skip_faulty: bool = False
    """Leave out the rows of a file that hold no question or no answer, instead of refusing the file."""
    characters: Annotated[int, Interval(ge=20, le=100_000)] = 400
    """Files: most characters of a passage that is shown, cut at a word."""
    results: Annotated[int, Interval(ge=1, le=100)] = 3
    """Most passages that a search shows."""
    typography: bool = True
    """Compare answers without regard to typography: curly quotes, kinds of dashes, how an accent is composed. False =
    letter by letter, as the published scores do."""
    partial: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """Reward for a wrong answer, times its F1. Below 1, or a list of candidates would be worth more than an answer."""
    least_hops: Annotated[int, Interval(ge=0, le=MOST_HOPS)] = 1
    """Drawn questions: fewest links from the person of the question to the one whose number is wanted."""
    most_hops: int = 3
    """Drawn questions: most links. The number of a question is drawn uniformly."""
    least_people: int = 4
    """Drawn questions: fewest people of a school."""
    most_people: int = 6
    """Drawn questions: most people of a school."""
    distractors: Annotated[int, Interval(ge=0, le=len(SCHOOLS) - 1)] = 2
    """Drawn questions: schools beside the one that is asked about."""
    values: Annotated[int, Interval(ge=2, le=1000)] = 10
    """Drawn questions: the numbers of people are 0 to one less than this."""
    people_passages: bool = False
    """Drawn questions: the question does not name the school. A passage on each person does, and is found first."""
    names: Names = "letters"
    """Drawn questions: names of people, `letters` or short `words`."""
    thought: Thought = "walk"
    """Demonstrations: `walk` names the people on the way, `A > K = 5`. `scan` goes through the whole register for each
    of them, so that every value is found by its place. It is longer, and learned by smaller models."""
    imperfect: Share = 0.0
    """Demonstrations: chance of each link, and of the number, that a random one takes the place of the right one. The
    walk goes on from it. Of a file's question, that the answer is another question's."""
    template: Share = 0.0
    """Demonstrations: share of turns whose thought is a fluent sentence that ignores the prompt. Their answer is right,
    but there is no way to it."""

    def check(self) -> None:
        check_place(self)
        check_range(self.name, "most_hops", self.most_hops, self.least_hops, MOST_HOPS)
        check_range(self.name, "least_people", self.least_people, self.most_hops + 1)
        check_range(self.name, "most_people", self.most_people, self.least_people)
        needed, names = (1 + self.distractors) * self.most_people, len(NAMES[self.names])
        if needed > names:
            raise ValueError(
                f"search_qa: {1 + self.distractors} schools of up to {self.most_people} people need {needed} names, "
                f"and there are {names} {self.names}. Choose fewer people or distractors, or names words."
            )

    @property
    def summary(self) -> str:
        if self.questions:
            return f"Answer the questions of {self.questions} by searching for passages."
        hops = f"{self.least_hops}" if self.least_hops == self.most_hops else f"{self.least_hops} to {self.most_hops}"
        return f"Answer questions of {hops} links about {1 + self.distractors} registers, by searching for passages."

    def drawn(self, seed: int) -> Drawn:
        """The encyclopaedia and question that a seed draws."""
        return draw(self, seed)

    def filed(self, seed: int) -> FiledQuestion:
        """The question of a file that a seed draws. Raises ValueError if the file cannot be read."""
        questions = open_questions(self.questions, self.skip_faulty)
        return questions[_number(seed, len(questions))]

    def question(self, seed: int) -> str:
        """What a seed asks."""
        return harmless(self.filed(seed).text) if self.questions else self.drawn(seed).question(self.brief)

    def golds(self, seed: int) -> tuple[str, ...]:
        """The right answers of a seed's question."""
        return self.filed(seed).golds if self.questions else (self.drawn(seed).gold,)

    def searcher(self, seed: int) -> Searcher:
        """What answers the searches for a seed's question."""
        return searcher_of(self) if self.questions else drawn_index(self, seed, self.brief)

    def task(self, seed: int) -> Task:
        if not self.questions:
            drawn = self.drawn(seed)
            return task_of(self.name, drawn.line, seed, (f"{drawn.hops} hops", "drawn"))
        questions = open_questions(self.questions, self.skip_faulty)
        number = _number(seed, len(questions))
        found = questions[number]
        drawn_task = task_of(self.name, "\n".join([found.text, *found.golds]), seed)
        tags = (f"{found.hops} hops", found.source) if found.hops else (found.source,)
        return replace(drawn_task, split=questions.split(number), tags=tags)

    def episode(self) -> SearchEpisode:
        return SearchEpisode(self)

    def random_answer(self, task: Task, rng: random.Random) -> str:
        """A search for the question, or as often an answer of the right form: of a file, another question's."""
        if rng.random() < 0.5:
            return _action("search", self.question(task.seed))
        if self.questions:
            return _action("finish", self.golds(rng.randrange(1 << 30))[0])
        return _action("finish", str(rng.randrange(self.values)))

    def blind_answers(self, tasks: Sequence[Task]) -> Sequence[str]:
        """The commonest right answers of `tasks`."""
        counted = Counter(self.golds(task.seed)[0] for task in tasks)
        return [_action("finish", gold) for gold, _ in counted.most_common(BLIND_ANSWERS)]

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode: find the register, follow the links in the thought, answer."""
        return played_through(self.episode(), task, lambda episode: self._demonstrated(task.seed, episode, rng))

    def _demonstrated(self, seed: int, episode: SearchEpisode, rng: random.Random) -> str:
        vague = rng.random() < self.template
        imperfect = 0.0 if vague else self.imperfect
        searches = self.filed(seed).searches if self.questions else self.drawn(seed).searches
        searched = searches[episode.turn : self.turns - 1]
        if searched:
            verb, text, thought = "search", searched[0], searched[0]
        elif self.questions:
            wrong = rng.random() < imperfect
            text = self.golds(rng.randrange(1 << 30) if wrong else seed)[0]
            verb, thought = "finish", f"it is {text}"
        else:
            people, number = self.drawn(seed).walk(imperfect, rng)
            verb, text, thought = "finish", str(number), self.drawn(seed).thought(people, number)
        return format_reply([_action(verb, text)], template_thought(rng) if vague else thought)

    def full_rules(self) -> str:
        form = (
            "The answer is search[words], which shows passages on these words, or finish[answer], which is your final "
            "answer. Your last turn must be finish[answer], and the answer as short as can be."
        )
        if self.tools:
            form = (
                "search shows passages on words, and finish gives your final answer. Your last turn must call finish, "
                "and the answer must be as short as can be."
            )
        rules = free_text_rules(form, "search[words]", self.turns, self.tools)
        return f"Answer the question. Search for passages that help.\n{rules}"


class SearchEpisode(BaseEpisode[SearchQA]):
    """One episode of `SearchQA`."""

    __slots__ = ("question", "searches", "seed")

    seed: int
    question: str
    searches: int

    def begin(self, task: Task, member: int) -> str:
        self.seed = task.seed
        self.question = self.env.question(task.seed)
        self.searches = 0
        return self._show("")

    def play(self, response: str) -> Played:
        action = read_action(response, ("search", "finish"), _LONGEST_TEXT + len("finish[]"), self.env.tools)
        if action.verb == "finish":
            golds, typography = self.env.golds(self.seed), self.env.typography
            solved, share = exact_match(action.text, golds, typography), f1(action.text, golds, typography)
            paid = self.env.partial * share
            return Played(
                rewards={"solved": 1.0} if solved else {"partial": paid} if paid else {},
                ending=Ending.SOLVED if solved else Ending.FAILED,
                progress=1.0 if solved else share,
                actions=(action.read.text,),
                effect=_one_line(f"finish, {'right' if solved else f'wrong with F1 {share:.2f}'}: {action.text}"),
                state=self._state("solved" if solved else "failed"),
            )
        over = not self.turns_left
        shown = ""
        if action.verb == "search" and not over:
            self.searches += 1
            shown = self._found(action.text)
        return Played(
            fault=action.read.fault,
            ending=Ending.OUT_OF_TURNS if over else None,
            progress=0.0,
            actions=(action.read.text,) if action.verb else (),
            note=answer_fault_line(action.read, self.env.brief),
            shown="" if over else self._show(shown),
            effect=action.read.fault or _one_line(f"{action.verb}: {action.text}"),
            state=self._state("out of turns" if over else "not answered"),
        )

    def _found(self, query: str) -> str:
        """The passages that a search finds, as the agent reads them."""
        env = self.env
        found = env.searcher(self.seed).search(query, env.results)
        if not found:
            return "none\n" if env.brief else "Nothing was found.\n"
        lines = []
        for place, passage in enumerate(found, 1):
            title, text = passage.title, passage.text
            if env.questions:  # of drawn ones the passages are our own
                title, text = harmless(title), cut_at_word(harmless(text), env.characters)
            if title:
                text = f"{title} : {text}" if env.brief else f"{title}: {text}"
            lines.append(text.strip() if env.brief else f"[{place}] {text}")
        return "\n".join(lines) + "\n"

    def _show(self, found: str) -> str:
        last = self.turns_left == 1
        if self.env.brief:
            return f"{self.limits()}\n{found}ask {self.question}"
        told = "This is your last turn: only finish[answer] counts." if last else ""
        return f"{self.limits(told=told)}\n{found}Question: {self.question}"

    def _state(self, word: str) -> str:
        return f"turn {self.turn} of {self.env.turns}, {self.searches} searches, {word}"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED]}..."


def _action(verb: str, text: str) -> str:
    """An action with a text that may be foreign or long: on one line, cut to what a reply may hold."""
    return f"{verb}[{cut_at_word(harmless(text), _LONGEST_TEXT - len(' ...')).removesuffix(' ...')}]"


def _number(seed: int, count: int) -> int:
    """The question of a file that a seed draws."""
    return random.Random(f"search_qa:{seed}").randrange(count)
