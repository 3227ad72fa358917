"""A sampler or a policy of the user that fails is named, and its answers are checked before they are trained on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from heedful.guarded import OwnPartFailed
from heedful.policies import Sampling
from heedful.policies.scripted import ScriptedPolicy
from heedful.policies.source import handed_over, opened, policy_of, sampling_of
from heedful.types import Conversation


class Wrong:
    """A sampler, a source and a policy of a user: `answer` is called wherever heedful asks."""

    temperature, version = 1.0, 0

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.sampling = self.open = self.weights_changed = self.policy = self.respond = lambda *_, **__: answer()


def fails() -> Any:
    raise SystemExit(0)


WEIGHTS: Any = None
PAIR = [Conversation("a", ()), Conversation("b", ())]
REPLY = ScriptedPolicy(lambda _: "x").respond([Conversation("k", ())])[0]


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: sampling_of(Wrong(fails), Sampling()), r"the sampler Wrong at sampling\(\), found .* SystemExit: 0"),
        (lambda: sampling_of(Wrong(lambda: None), Sampling()), r"from sampling\(\) of the sampler Wrong, found None"),
        (lambda: opened(Wrong(fails)).__enter__(), r"the sampler Wrong at open\(\), found .* SystemExit: 0"),
        (
            lambda: opened(Wrong(lambda: 3)).__enter__(),
            r"the sampler Wrong at open\(\), found .*int' object",
        ),
        (lambda: handed_over(Wrong(lambda: None), WEIGHTS), r"at weights_changed\(\), found .*not iterable"),
        (
            lambda: policy_of(Wrong(fails), WEIGHTS, Sampling(), 0),
            r"the sampler Wrong at policy\(\), found .*Exit",
        ),
    ],
)
def test_a_sampler_or_a_policy_of_the_user_that_fails_is_named(call: Any, found: str) -> None:
    with pytest.raises(OwnPartFailed, match=found):
        call()
