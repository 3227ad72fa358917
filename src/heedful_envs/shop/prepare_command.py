"""`heedful prepare-shop`: WebShop's files as a folder that the environment shop plays."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Annotated

from heedful.boundary import CommandLine, Natural, Positional, complain, in_home, settings, tell
from heedful_envs.shop.prepare import MODEL, Sources, Way, find_sources, prepare

_TOLD_EVERY = 20_000


@dataclass(frozen=True, slots=True)
class PrepareWords:
    """Prepare a catalogue once, for the environment shop.

    The folder of a WebShop download holds items_*.json, and may hold items_ins*.json (synthetic goals) and
    items_human_ins.json (human goals). Files are streamed. Bad rows are left out and named. docs/shop.md says more.

      heedful prepare-shop webshop/data --out shops/webshop
      heedful play shop --env.catalogue shops/webshop
    """

    download: Annotated[str, Positional("FOLDER", example="webshop/data")]
    """The folder with WebShop's files."""


@settings(kw_only=True)
class PrepareSettings:
    """Settings of a catalogue."""

    out: str = "shop"
    """The new folder of the catalogue."""
    nouns: Way = "spacy"
    """How nouns of titles are found. `spacy`: as in WebShop, with the extra `webshop` and spaCy's model. `words`: every
    word but stop words, which pays otherwise for some purchases."""
    most: Natural = 0
    """The first products only. 0 = all."""
    items: str = ""
    """The file of products, where the folder holds several."""
    attributes: str = ""
    """The file of attributes and synthetic instructions, where the folder holds several."""
    human: str = ""
    """The file of human instructions, where the folder holds several."""


def main(argv: list[str]) -> int:
    """prepare a catalogue for the environment shop, once"""
    line = CommandLine(PrepareWords, argv, "heedful prepare-shop")
    settings = line.settings(PrepareSettings, PrepareSettings())
    folder, out = in_home(line.words.download), in_home(settings.out)
    if not folder.is_dir():
        raise ValueError(f"Expected the folder of a WebShop download at {folder}, found none.")
    typed = {name: in_home(file) for name in ("items", "attributes", "human") if (file := getattr(settings, name))}
    for name, path in typed.items():
        if not path.is_file():
            raise ValueError(f"Expected the file of --{name} at {path}, found none.")
    sources = Sources(**typed) if "items" in typed else replace(find_sources(folder), **typed)
    began = time.perf_counter()

    def progress(products: int) -> None:
        if products % _TOLD_EVERY == 0:
            complain(f"{products:,} products, {time.perf_counter() - began:.0f} s")

    count = prepare(sources, out, settings.nouns, settings.most, progress)
    for named in count.named:
        complain(f"left out {named}")
    for why, times in sorted(count.left_out.items()):
        complain(f"left out {times:,}: {why}")
    goals = [f"{count.met[kind]:,} of {times:,} {kind} goals can be met" for kind, times in count.goals.items()]
    complain(f"{count.products:,} products; {', '.join(goals) or 'no goals'}")
    if settings.nouns == "words":
        complain(f"nouns are all words but stop words; with spaCy and {MODEL} they are WebShop's")
    tell(str(out))
    return 0
