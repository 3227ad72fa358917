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
from research.catalogue.paper.published_table import algorithms, matrix, sizes
from research.catalogue.paper.regularisers import regularised
from research.catalogue.paper.shaped_rewards import shaped
from research.catalogue.paper.slips import noise
from research.catalogue.pretrained_models import pretrained, visual
from research.catalogue.treatments import budgets_causes

STUDIES: Mapping[str, Callable[[], Study]] = {
    declare.__name__: declare
    for declare in (
        *(planted, detector, attribution_causes, filter_on_collapse),
        *(algorithms, regularised, matrix, sizes, selection, selection_sokoban, shaped, noise),
        *(natural, natural_repeated, natural_causes, early_warning, quartiles, quartiles_sokoban, gradients),
        *(fork_causes, null_terms, cut, pretrained, visual, budgets, budgets_beds, budgets_causes),
    )
}
"""What `python -m research NAME` runs."""
