"""The studies that heedful declares itself, as functions. `heedful study NAME --print` shows every setting of one."""

from __future__ import annotations

from heedful.studies.catalogue.collapse import detector, filter_on_collapse, planted
from heedful.studies.catalogue.one_arm import several_seeds
from heedful.studies.catalogue.paper import (
    algorithms,
    gradients,
    matrix,
    natural,
    noise,
    quartiles,
    quartiles_sokoban,
    regularised,
    selection,
    selection_sokoban,
    shaped,
    sizes,
)
from heedful.studies.catalogue.pictures import visual
from heedful.studies.catalogue.pretrained_models import pretrained
from heedful.studies.catalogue.quick import smoke

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
