"""Where a thought concludes: its words coloured by how right the first action is when the thought ends there.

One block for a page, with its own few rules. It uses the page's colours where there are any.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from heedful.storage import EarlyAnswer, RunFolder, read_early

MOST_CHARACTERS = 1500
"""Of a thought's words on a page."""
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 400, 120, 34, 8, 98
_STYLE = Markup(
    "<style>.early { margin: 0 0 1.5rem; } .early .words { white-space: pre-wrap; line-height: 1.9; }"
    " .early .words span { background: color-mix(in srgb, var(--c1, #2f6fbf) calc(var(--tint, 1) * var(--right) * 55%),"
    " transparent); border-right: 1px solid var(--line, #bbb); padding: 2px 1px; }"
    " .early svg { width: 100%; max-width: 34rem; height: auto; }"
    " .early .line { fill: none; stroke: var(--c1, #2f6fbf); stroke-width: 2; }"
    " .early .dot { fill: var(--c1, #2f6fbf); } .early .grid { stroke: var(--line, #bbb); stroke-width: 0.5; }"
    " .early text { font-size: 10px; fill: currentColor; }"
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
    """One thought: a sentence, the coloured words, and the curve over the thought."""
    return Markup('<figure class="early"><figcaption>{}</figcaption><p class="words">{}</p>{}</figure>').format(
        sentence(answer), _words(answer), _curve(answer)
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


def _words(answer: EarlyAnswer) -> Markup:
    """The stretches between the cuts, each with the probability at its end."""
    parts, characters = [], 0
    for (begin, end), right in zip(pairwise(answer.cuts_C), answer.right_C[1:], strict=True):
        text = "".join(answer.pieces_T[begin:end])
        if characters + len(text) > MOST_CHARACTERS:
            parts.append(Markup(" ..."))
            break
        characters += len(text)
        parts.append(Markup('<span style="--right: {:.2f}" title="{:.2f}">{}</span>').format(right, right, text))
    return Markup("").join(parts)


def _curve(answer: EarlyAnswer) -> Markup:
    """The probability over the share of the thought that is left."""
    tokens = max(1, answer.cuts_C[-1])

    def x(cut: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - 8) * cut / tokens

    def y(right: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * right

    points: Sequence[tuple[float, float]] = [
        (x(cut), y(right)) for cut, right in zip(answer.cuts_C, answer.right_C, strict=True)
    ]
    parts = [Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(_WIDTH, _HEIGHT, sentence(answer))]
    for value in (0, 0.5, 1):
        row = Markup('<path class="grid" d="M{} {:.1f}H{}"/><text x="{}" y="{:.1f}" text-anchor="end">{:g}</text>')
        parts.append(row.format(_LEFT, y(value), _WIDTH - 8, _LEFT - 5, y(value) + 3, value))
    for share, anchor in ((0, "start"), (50, "middle"), (100, "end")):
        at = _LEFT + (_WIDTH - _LEFT - 8) * share / 100
        text = Markup('<text x="{:.1f}" y="{}" text-anchor="{}">{}%</text>')
        parts.append(text.format(at, _HEIGHT - 6, anchor, share))
    line = "L".join(f"{left:.1f} {top:.1f}" for left, top in points)
    parts.append(Markup('<path class="line" d="M{}"/>').format(line))
    for (left, top), right, name in zip(points, answer.right_C, answer.likeliest_C, strict=True):
        dot = Markup('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="3"><title>{:.2f}, likeliest {}</title></circle>')
        parts.append(dot.format(left, top, right, name))
    return Markup("").join([*parts, Markup("</svg>")])
