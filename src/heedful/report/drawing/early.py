"""Where a thought concludes: its words coloured by how right the first action is when the thought ends there.

One block for a page, with its own few rules in the page's colours.
"""

from __future__ import annotations

from itertools import pairwise

from markupsafe import Markup

from heedful.report.drawing.chart import Axis, Curve, Frame, draw_lines
from heedful.report.record import Point, Series
from heedful.storage import EarlyAnswer, RunFolder, read_early
from heedful.types import Metric

MOST_CHARACTERS = 1500
"""Of a thought's words on a page."""
_STYLE = Markup(
    "<style>.early { margin: 0 0 1.5rem; } .early .words { white-space: pre-wrap; line-height: 1.9; }"
    " .early .words span { background: color-mix(in srgb, var(--c1, #2f6fbf) calc(var(--tint, 1) * var(--right) * 55%),"
    " transparent); border-right: 1px solid var(--line, #bbb); padding: 2px 1px; }"
    " .early svg { max-width: 34rem; }"
    "</style>"
)


def early_answers(folder: RunFolder) -> Markup:
    """The early answers of a run's last evaluation that has any, one figure for each thought. Empty without any."""
    steps = folder.early_steps()
    found = read_early(folder.early(steps[-1])) if steps else ()
    if not found:
        return Markup("")
    lead = Markup("<p>Greedy thoughts of the evaluation at step {}. {}</p>").format(
        steps[-1],
        "A stretch of words has the colour of the probability of a right first action when the thought ends behind it. "
        "Pale words do not tell what to do yet.",
    )
    return Markup("").join([_STYLE, lead, *map(figure, found)])


def figure(answer: EarlyAnswer) -> Markup:
    """One thought: a sentence, the words between the cuts with the probability at their end, and the curve over it."""
    stretches, characters = list[Markup](), 0
    behind = zip(pairwise(answer.cuts_C), answer.right_C[1:], answer.likeliest_C[1:], strict=True)
    for (begin, end), right, likeliest in behind:
        text = "".join(answer.pieces_T[begin:end])
        if characters + len(text) > MOST_CHARACTERS:
            stretches.append(Markup(" ..."))
            break
        characters += len(text)
        stretch = Markup('<span style="--right: {:.2f}" title="{:.2f}, likeliest {}">{}</span>')
        stretches.append(stretch.format(right, right, likeliest, text))
    points = (Point(cut, Metric("", right)) for cut, right in zip(answer.cuts_C, answer.right_C, strict=True))
    frame = Frame((0, answer.cuts_C[-1]), foot="tokens of the thought that are left")
    curve = draw_lines([Curve("right", Series("", tuple(points)), 1)], frame, Axis.SHARE, sentence(answer))
    return Markup('<figure class="early"><figcaption>{}</figcaption><p class="words">{}</p>{}</figure>').format(
        sentence(answer), Markup("").join(stretches), curve.svg
    )


def sentence(answer: EarlyAnswer) -> str:
    """What the curve says in words."""
    right_C = answer.right_C
    rises = [after - before for before, after in pairwise(right_C)]
    ends = f"{answer.task}: a right first action has probability {right_C[0]:.2f} without the thought and "
    ends += f"{right_C[-1]:.2f} ({answer.likeliest_C[-1]} is likeliest) with all of it."
    if not rises or max(rises) < 0.05:
        return f"{ends} No stretch of the thought raises it by .05."
    place = rises.index(max(rises))
    words = "".join(answer.pieces_T[answer.cuts_C[place] : answer.cuts_C[place + 1]]).strip()
    return f"{ends} It rises most, by {max(rises):.2f}, with “{words}”."
