"""The studies that heedful declares itself, as functions. `heedful study NAME --print` shows every setting of one."""

from __future__ import annotations

from heedful.studies.catalogue.anatomy import gradients
from heedful.studies.catalogue.collapse import detector, filter_on_collapse, planted
from heedful.studies.catalogue.filters import selection, selection_sokoban
from heedful.studies.catalogue.hunt import natural
from heedful.studies.catalogue.one_arm import several_seeds
from heedful.studies.catalogue.parts_of_a_pool import quartiles, quartiles_sokoban
from heedful.studies.catalogue.pictures import visual
from heedful.studies.catalogue.pretrained_models import pretrained
from heedful.studies.catalogue.published_table import matrix, sizes
from heedful.studies.catalogue.quick import smoke
from heedful.studies.catalogue.regularisers import regularised
from heedful.studies.catalogue.shaped_rewards import shaped
from heedful.studies.catalogue.slips import noise
from heedful.studies.catalogue.table_of_algorithms import algorithms

__all__ = [
    "algorithms",
    "detector",
    "filter_on_collapse",
    "gradients",
    "matrix",
    "natural",
    "noise",
    "planted",
    "pretrained",
    "quartiles",
    "quartiles_sokoban",
    "regularised",
    "selection",
    "selection_sokoban",
    "several_seeds",
    "shaped",
    "sizes",
    "smoke",
    "visual",
]
