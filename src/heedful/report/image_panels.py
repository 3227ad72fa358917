"""The charts of a run whose prompts show pictures: what moves a thought, the picture or the text."""

from __future__ import annotations

from heedful.report.drawing.chart import Axis, Curve
from heedful.report.drawing.panel import Panel, Section, some
from heedful.report.record import RunRecord

LEAD = (
    "Thoughts are read again with other pictures, and with other texts, in place of their own. The picture alone moves "
    "them: they follow the picture. The text alone: they follow the text. In later turns, the newest picture low "
    "and all pictures high means that earlier pictures and replies already say what the newest one shows."
)


def image_sections(run: RunRecord) -> list[Section]:
    """Empty where no picture was exchanged."""
    scopes = ("image", "image_newest", "image_all", "text")
    if not any(run.get(f"information/{scope}/gap").points for scope in scopes):
        return []
    return [
        Section("pictures", "Is the picture read?", LEAD, (_gaps(run), _information(run), _retrieval(run), _share(run)))
    ]


def _gaps(run: RunRecord) -> Panel:
    curves = some(
        run,
        ("picture exchanged", "information/image/gap", 1),
        ("text exchanged", "information/text/gap", 2),
        ("both exchanged", "information/first_turn/gap", 3),
    )
    return Panel("Gap, by what is exchanged", "nats per thought, first turn", curves, Axis.FROM_ZERO)


def _information(run: RunRecord) -> Panel:
    curves = some(
        run,
        ("first turn", "information/image/mi", 1),
        ("newest picture of a later turn", "information/image_newest/mi", 2),
        ("all pictures of a later turn", "information/image_all/mi", 3),
    )
    ceiling = Curve("ceiling, first turn", run.get("information/image/mi_ceiling"), 0, reference=True)
    return Panel("Mutual information, pictures exchanged", "nats", (*curves, ceiling), Axis.FROM_ZERO)


def _retrieval(run: RunRecord) -> Panel:
    curves = some(
        run,
        ("first turn", "retrieval/image/accuracy_2way", 1),
        ("newest picture of a later turn", "retrieval/image_newest/accuracy_2way", 2),
        ("all pictures of a later turn", "retrieval/image_all/accuracy_2way", 3),
    )
    return Panel("Own picture preferred to another one", "share of thoughts, chance .5", curves, Axis.SHARE)


def _share(run: RunRecord) -> Panel:
    curves = some(run, ("gap of the picture / gap of both", "grounding/image_share", 1))
    return Panel("Share of the picture", "1 = the picture alone, 0 = ignored", curves, Axis.FROM_ZERO, optional=True)
