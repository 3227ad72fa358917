"""What is read from the log-probabilities of thoughts under other prompts."""

from heedful.diagnostics.cross_scores.information import information
from heedful.diagnostics.cross_scores.pointwise import pointwise_information
from heedful.diagnostics.cross_scores.retrieval import retrieval
from heedful.diagnostics.cross_scores.score_matrix import ScoreMatrix, score_matrix, select_rows
from heedful.diagnostics.cross_scores.thoughts import (
    Thoughts,
    ThoughtTags,
    any_turn_thoughts,
    first_turn_thoughts,
    swapped_observations,
)

__all__ = [
    "ScoreMatrix",
    "ThoughtTags",
    "Thoughts",
    "any_turn_thoughts",
    "first_turn_thoughts",
    "information",
    "pointwise_information",
    "retrieval",
    "score_matrix",
    "select_rows",
    "swapped_observations",
]
