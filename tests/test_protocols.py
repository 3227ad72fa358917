"""What an environment offers beyond the contract, asked for by `isinstance`."""

from __future__ import annotations

import random
from typing import Any

import pytest

from heedful import envs
from heedful.envs.toys.echo import Echo
from heedful.protocols import (
    AnswersBlindly,
    AnswersFreely,
    Demonstrates,
    Environment,
    ListsActions,
    OffersTools,
)
from heedful.rollout.baselines import random_reply
from heedful.rollout.workers import isolated
from heedful.types import Task
from perilous import Perilous

OFFERS = (
    OffersTools,
    ListsActions,
    AnswersFreely,
    AnswersBlindly,
    Demonstrates,
)


def offered(env: object) -> set[str]:
    return {offer.__name__ for offer in OFFERS if isinstance(env, offer)}


@pytest.mark.parametrize(
    ("name", "offers"),
    [
        ("echo", {"ListsActions", "Demonstrates"}),
        ("countdown", {"AnswersFreely", "AnswersBlindly", "Demonstrates"}),
        ("textarena", {"AnswersFreely", "AnswersBlindly"}),
        ("code", {"AnswersFreely", "AnswersBlindly", "Demonstrates", "OffersTools"}),
    ],
)
def test_an_environment_offers_what_its_class_has(name: str, offers: set[str]) -> None:
    env = envs.ENVIRONMENTS.get_class(name)()
    assert isinstance(env, Environment)
    assert offered(env) == offers


def test_the_bare_contract_offers_nothing_more() -> None:
    assert isinstance(Perilous(), Environment)
    assert offered(Perilous()) == set()
    with pytest.raises(ValueError, match="has neither `actions` and `actions_per_turn` nor `random_answer`"):
        random_reply(Perilous(), Perilous().task(0), random.Random(0))


class Wrapper:
    """Finds everything through `__getattr__`, as a served environment does."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_an_offer_that_is_found_through_getattr_counts() -> None:
    assert isinstance(Wrapper(Echo()), Environment)
    assert offered(Wrapper(Echo())) == offered(Echo())
    assert not isinstance(Wrapper(object()), Environment)
    with isolated(Echo(), workers=1) as elsewhere:
        assert offered(elsewhere) == offered(Echo())


def test_an_offer_without_the_contract_is_none() -> None:
    class Solver:
        def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
            return []

    assert not isinstance(Solver(), Demonstrates)


def test_a_class_that_names_its_offer_is_asked_as_any_class() -> None:
    class Named(Echo, Demonstrates):
        pass

    assert isinstance(Named(), Named)
    assert isinstance(Named(), Demonstrates)
    assert not isinstance(Echo(), Named)


def test_a_property_that_raises_is_nothing_that_is_offered() -> None:
    class Broken(Echo):
        @property
        def actions(self) -> tuple[str, ...]:
            raise KeyError("no list")

    assert not isinstance(Broken(), ListsActions)
