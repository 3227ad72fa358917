"""The pages of a shop for a person with a browser: plain HTML with forms, no script and nothing from elsewhere.

A visit is an episode: the same turns, pages and reward as an agent has. Its id is random and is part of the address, so
another site cannot guess it. All text is escaped.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape

from heedful.envs.common import Raised, format_reply, guarded_call, harmless
from heedful.serving import ROOT, Html, Refusal
from heedful.types import Step
from heedful_envs.shop.environment import Shop, ShopEpisode
from heedful_envs.shop.pages import Page
from heedful_envs.shop.reward import Terms, terms

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222;
  background: #fff; }
h1 { font-size: 1.3rem; } form { display: inline; } ul { list-style: none; padding: 0; }
div { margin: .6rem 0; }
button { font: inherit; padding: .2rem .7rem; margin: .1rem; border: 1px solid #789; border-radius: .3rem;
  background: #eef3f7; cursor: pointer; }
button.chosen { background: #14532d; color: #fff; } button.buy { background: #1d4ed8; color: #fff; }
input { font: inherit; padding: .2rem .4rem; } .wanted { background: #fff7db; padding: .5rem .8rem; }
.told { color: #9a3412; } table { border-collapse: collapse; } td, th { text-align: left; padding: .2rem .8rem;
  border-bottom: 1px solid #ccc; } li { padding: .2rem 0; border-bottom: 1px solid #eee; }
"""


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
        if typed.strip() and not (typed.strip().isascii() and typed.strip().isdigit() and len(typed.strip()) < 16):
            raise Refusal(400, "Expected the number of a task, or nothing.")
        seed = int(typed) if typed.strip() else random.SystemRandom().randrange(10**6)
        with self._changing:
            now = self._clock()
            for id in [id for id, visit in self._visits.items() if now - visit.used > self._idle]:
                del self._visits[id]
            if len(self._visits) >= self._most:
                raise Refusal(429, f"All {self._most} visits are in use. Try again later.")
        episode = self._env.episode()
        begun = guarded_call(lambda: episode.start(self._env.task(seed), 0))
        if isinstance(begun, Raised):
            raise Refusal(500, f"The shop raised {begun}.")
        id = secrets.token_hex(12)
        with self._changing:
            self._visits[id] = _Open(episode, seed, self._clock())
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
        page = episode.visit.shown()
        parts = [f"<p class='wanted'>{escape(page.instruction)}</p>"]
        if step is not None and step.ending is not None:
            parts.append(_bought(episode, step) if "purchase" in step.rewards else _NO_PURCHASE)
            parts.append(f"<p>Task {visit.seed}. <a href='/{ROOT}'>Another visit</a></p>")
            return _page("The end of the visit", "".join(parts))
        parts.append(f"<p>Turns left: {episode.turns_left}</p>")
        if step is not None and ("refused" in step.effect or not step.valid):
            parts.append(f"<p class='told'>{escape(step.observation.text.splitlines()[0])}</p>")
        parts.append(
            _content(
                page,
                f"<form method='post' action='/{ROOT}/{id}'><input type='hidden' name='turn' value='{episode.turn}'>",
            )
        )
        return _page(f"Shop, {page.name} page", "".join(parts))


def _content(page: Page, form: str) -> str:
    """The open page. `form`: how every form begins."""

    def button(text: str, kind: str = "") -> str:
        return f"{form}<button name='click' value='{escape(text)}' class='{kind}'>{escape(text)}</button></form>"

    if page.name == "search":
        return f"{form}<input name='search' size='40' autofocus required> <button>Search</button></form>"
    parts = [f"<div>{''.join(button(text, 'buy' if text == 'Buy Now' else '') for text in page.buttons)}</div>"]
    if page.name == "results":
        parts.append(f"<p>Page {page.number} of {page.pages}, results in all: {page.found}</p><ul>")
        parts += [f"<li>{button(one.id)} {escape(one.title)}, {escape(one.price)}</li>" for one in page.listed]
        return "".join([*parts, "</ul>"])
    if page.item is not None:
        parts.append(f"<h2>{escape(page.item.title)}</h2><p>Price: {escape(page.item.price)}</p>")
    for option in page.options:
        chosen = option.chosen if page.tells_chosen else ""
        values = "".join(button(value, "chosen" if value == chosen else "") for value in option.values)
        parts.append(f"<div>{escape(option.name)}: {values}</div>")
    parts += [f"<p>{escape(text)}</p>" for text in page.body]
    if page.name != "item" and not page.body:
        parts.append(f"<p>No {page.name}.</p>")
    return "".join(parts)


_NO_PURCHASE = "<h2>No purchase</h2><p>The turns are over and nothing was bought, so the reward is 0.</p>"


def _bought(episode: ShopEpisode, step: Step) -> str:
    """The reward of a purchase, term by term."""
    visit = episode.visit
    assert visit.product is not None
    goal = visit.goal
    paid = terms(visit.product, goal, list(visit.chosen.values()))
    asked = [one if isinstance(one, str) else f"{one[0]}: {one[1]}" for one in goal.options]
    limit = "none" if paid.in_limit and goal.limit >= 1e6 else f"at most {goal.limit:g}"
    rows = [
        *((f"attribute {name}", name in paid.attributes) for name in goal.attributes),
        *((f"option {name}", name in paid.options) for name in asked),
        (f"price {visit.product.price:g}, {limit}", paid.in_limit),
    ]
    listed = "".join(f"<tr><td>{escape(what)}</td><td>{'yes' if fits else 'no'}</td></tr>" for what, fits in rows)
    found = sum(fits for _, fits in rows)
    return (
        f"<h2>You bought {escape(harmless(visit.product.title))}</h2>"
        f"<table><tr><th>asked for</th><th>fits</th></tr>{listed}</table>"
        f"<p>Type: factor {paid.kind:g} ({_why(paid)}).</p>"
        f"<p><b>Reward {step.outcome or 0:.3f}</b> = {paid.kind:g} x {found} of {len(rows)}</p>"
    )


def _why(paid: Terms) -> str:
    shared = f"{paid.shared_nouns:.0%} of the wanted title's nouns are in the title"
    same = ["the query is the same"] if paid.same_query else []
    same += ["two parts of the category are the same"] if paid.same_category else []
    return ", ".join([*(same or ["neither query nor category is the same"]), shared])


def _page(title: str, body: str) -> str:
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )
