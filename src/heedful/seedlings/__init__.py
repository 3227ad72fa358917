"""Small models that are trained from scratch on an environment's demonstrations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.seedlings.grow import load_seedling
    from heedful.seedlings.recipe import Seedling, nano

__all__ = ["Seedling", "load_seedling", "nano"]

__getattr__ = lazily(
    __name__,
    {
        "Seedling": "heedful.seedlings.recipe",
        "load_seedling": "heedful.seedlings.grow",
        "nano": "heedful.seedlings.recipe",
    },
)
