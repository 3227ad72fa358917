"""The pages of a shop for a person with a browser: plain HTML with forms, no script and nothing from elsewhere.

A visit is an episode: the same turns, pages and reward as an agent has. Its id is random and is part of the address, so
another site cannot guess it. All text is escaped.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape

from heedful.envs.common import Raised, format_reply, guarded_call
from heedful.serving import ROOT, Html, Refusal
from heedful.types import Step
from heedful_envs.shop.environment import Shop, ShopEpisode
from heedful_envs.shop.pages import in_english
from heedful_envs.shop.visit import Visit

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } form { display: inline; } div { margin: .6rem 0; }
button, input { font: inherit; padding: .2rem .5rem; } .wanted { background: #fff7db; padding: .5rem .8rem; }
.told { color: #9a3412; }
"""

_BUTTON = re.compile(r"\[([^\]]*)\]")
"""Foreign text has no square brackets here, so all that a page writes in them is a button."""


@dataclass(slots=True)
class _Open:
    """A visit in a browser."""

    episode: ShopEpisode
    seed: int
    used: float
    step: Step | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class ShopPages:
    """Answers a browser's requests below `/page`. At most `most` visits are open, idle ones are closed."""

    def __init__(self, env: Shop, most: int, idle: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._env, self._most, self._idle, self._clock = env, most, idle, clock
        self._visits: dict[str, _Open] = {}
        self._changing = threading.Lock()

    def answer(self, method: str, path: str, form: Mapping[str, str]) -> Html:
        """The answer to one request. Raises Refusal."""
        words = [word for word in path.split("?")[0].split("/") if word]
        if words == [ROOT] and method == "GET":
            return Html(200, self._start())
        if words == [ROOT] and method == "POST":
            return Html(303, location=f"/{ROOT}/{self._begin(form.get('seed', ''))}")
        if len(words) == 2 and method in ("GET", "POST"):
            visit = self._visit(words[1])
            with visit.lock:
                if method == "POST":
                    self._act(visit, form)
                    return Html(303, location=f"/{ROOT}/{words[1]}")
                return Html(200, self._shown(words[1], visit))
        raise Refusal(404, f"There is no page at {method} {path[:60]}. The first page is /{ROOT}.")

    def refused(self, sentence: str) -> str:
        """The page of a refusal."""
        return _page("Not possible", f"<p class='told'>{escape(sentence)}</p>")

    def _begin(self, typed: str) -> str:
        """The id of a new visit. Without a seed it is drawn."""
        typed = typed.strip()
        if typed and not (typed.isascii() and typed.isdigit() and len(typed) < 16):
            raise Refusal(400, "Expected the number of a task, or nothing.")
        seed = int(typed) if typed else secrets.randbelow(10**6)
        episode = self._env.episode()
        begun = guarded_call(lambda: episode.start(self._env.task(seed), 0))
        if isinstance(begun, Raised):
            raise Refusal(500, f"The shop raised {begun}.")
        id, now = secrets.token_hex(12), self._clock()
        with self._changing:
            self._visits = {each: visit for each, visit in self._visits.items() if now - visit.used <= self._idle}
            if len(self._visits) >= self._most:
                raise Refusal(429, f"All {self._most} visits are in use. Try again later.")
            self._visits[id] = _Open(episode, seed, now)
        return id

    def _visit(self, id: str) -> _Open:
        with self._changing:
            visit = self._visits.get(id)
            if visit is None:
                raise Refusal(404, f"There is no such visit: it was closed, or the server was restarted. See /{ROOT}.")
            visit.used = self._clock()
            return visit

    def _act(self, visit: _Open, form: Mapping[str, str]) -> None:
        """One turn. The number of the turn is part of the form, so a form that is sent again does nothing."""
        over = visit.step is not None and visit.step.ending is not None
        if over or form.get("turn") != str(visit.episode.turn):
            return
        action = f"search[{form['search']}]" if "search" in form else f"click[{form.get('click', '')}]"
        answer = guarded_call(lambda: visit.episode.step(format_reply([action], "")))
        if isinstance(answer, Raised):
            raise Refusal(500, f"The shop raised {answer}.")
        visit.step = answer.value

    def _start(self) -> str:
        return _page(
            "Shop",
            f"<p>{escape(self._env.summary)}</p>"
            f"<form method='post' action='/{ROOT}'><label>Task <input name='seed' inputmode='numeric' size='10' "
            "placeholder='any'></label> <button>Start a visit</button></form>",
        )

    def _shown(self, id: str, visit: _Open) -> str:
        episode, step = visit.episode, visit.step
        parts = [f"<p class='wanted'>{escape(episode.visit.instruction)}</p>"]
        if step is not None and step.ending is not None:
            ended = step.effect if "purchase" in step.rewards else "The turns are over and nothing was bought"
            parts.append(f"<p>{escape(ended)}.</p><p><b>Reward {step.outcome or 0:.3f}</b></p>")
            parts.append(f"<p>Task {visit.seed}. <a href='/{ROOT}'>Another visit</a></p>")
            return _page("The end of the visit", "".join(parts))
        parts.append(f"<p>Turns left: {episode.turns_left}</p>")
        if step is not None and ("refused" in step.effect or not step.valid):
            parts.append(f"<p class='told'>{escape(step.observation.text.splitlines()[0])}</p>")
        form = f"<form method='post' action='/{ROOT}/{id}'><input type='hidden' name='turn' value='{episode.turn}'>"
        return _page(f"Shop, {episode.visit.page} page", "".join([*parts, _content(episode.visit, form)]))


def _content(visit: Visit, form: str) -> str:
    """The open page. `form`: how every form begins."""
    if visit.page == "search":
        return f"{form}<input name='search' size='40' autofocus required> <button>Search</button></form>"
    button = rf"{form}<button name='click' value='\1'>\1</button></form>"
    _, *lines = in_english(visit).split("\n")
    return "".join(f"<div>{_BUTTON.sub(button, escape(line))}</div>" for line in lines)


def _page(title: str, body: str) -> str:
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )
