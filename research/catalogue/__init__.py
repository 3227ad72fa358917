"""Declared studies, one file a subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from heedful.studies.declaration import Study
from research.catalogue.budgets import budgets, budgets_beds
from research.catalogue.causes import cut, fork_causes, null_terms
from research.catalogue.collapse import attribution_causes, detector, filter_on_collapse, planted
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
from research.catalogue.treatments import budgets_causes

STUDIES: Mapping[str, Callable[[], Study]] = {
    "planted": planted,
    "detector": detector,
    "attribution_causes": attribution_causes,
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
    "fork_causes": fork_causes,
    "null_terms": null_terms,
    "cut": cut,
    "pretrained": pretrained,
    "visual": visual,
    "budgets": budgets,
    "budgets_beds": budgets_beds,
    "budgets_causes": budgets_causes,
}
"""What `python -m research NAME` runs."""
