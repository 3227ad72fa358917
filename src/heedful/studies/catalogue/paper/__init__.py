"""The studies that re-test the claims of the paper (docs/results/paper.md), each beside its random control."""

from __future__ import annotations

from heedful.studies.catalogue.paper.anatomy import gradients
from heedful.studies.catalogue.paper.filters import selection, selection_sokoban
from heedful.studies.catalogue.paper.hunt import natural
from heedful.studies.catalogue.paper.parts_of_a_pool import quartiles, quartiles_sokoban
from heedful.studies.catalogue.paper.published_table import matrix, sizes
from heedful.studies.catalogue.paper.regularisers import regularised
from heedful.studies.catalogue.paper.shaped_rewards import shaped
from heedful.studies.catalogue.paper.slips import noise
from heedful.studies.catalogue.paper.table_of_algorithms import algorithms

__all__ = [
    "algorithms",
    "gradients",
    "matrix",
    "natural",
    "noise",
    "quartiles",
    "quartiles_sokoban",
    "regularised",
    "selection",
    "selection_sokoban",
    "shaped",
    "sizes",
]
