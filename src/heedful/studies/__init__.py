"""Declared studies: arms x seeds, run as resumable processes, ending in tables with intervals and a page.

Promise: a study is data: its runs, comparisons and measures are declared before the first run. A changed declaration
never continues old runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from heedful.studies.catalogue.quick import smoke
from heedful.studies.declaration import Study, read_study
from research.catalogue.collapse import detector, filter_on_collapse, planted
from research.catalogue.paper.anatomy import gradients
from research.catalogue.paper.early_warning import early_warning
from research.catalogue.paper.filters import selection, selection_sokoban
from research.catalogue.paper.hunt import natural, natural_causes, natural_repeated
from research.catalogue.paper.parts_of_a_pool import quartiles, quartiles_sokoban
from research.catalogue.paper.published_table import matrix, sizes
from research.catalogue.paper.regularisers import regularised
from research.catalogue.paper.shaped_rewards import shaped
from research.catalogue.paper.slips import noise
from research.catalogue.paper.table_of_algorithms import algorithms
from research.catalogue.pictures import visual
from research.catalogue.pretrained_models import pretrained

STUDIES: Mapping[str, Callable[[], Study]] = {
    "planted": planted,
    "detector": detector,
    "filter_on_collapse": filter_on_collapse,
    "algorithms": algorithms,
    "regularised": regularised,
    "matrix": matrix,
    "sizes": sizes,
    "selection": selection,
    "selection_sokoban": selection_sokoban,
    "shaped": shaped,
    "noise": noise,
    "natural": natural,
    "natural_repeated": natural_repeated,
    "natural_causes": natural_causes,
    "early_warning": early_warning,
    "quartiles": quartiles,
    "quartiles_sokoban": quartiles_sokoban,
    "gradients": gradients,
    "pretrained": pretrained,
    "visual": visual,
    "smoke": smoke,
}
"""What `heedful study NAME` runs."""


def find_study(name: str) -> Study:
    """The study of this name, or the one declared in the JSON file of this name.

    Raises:
        ValueError: there is neither, or the file cannot be understood.
    """
    if name in STUDIES:
        return STUDIES[name]()
    if name.endswith(".json"):
        return read_study(Path(name))
    raise ValueError(
        f"There is no study named {name!r}; known are {', '.join(STUDIES)}, or your own as a JSON file "
        "(docs/studies.md)."
    )


__all__ = ["STUDIES", "Study", "find_study", "read_study"]
