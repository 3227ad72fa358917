"""The main table of RAGEN-2 as presets: prints the rows of the table in docs/results/paper.md.

    PYTHONPATH=src python benchmarks/paper_table.py

Cells are the paper's: validation success in percent without the filter, and the gain from it. Hours and GB are those of
`heedful train PRESET --estimate H200`. Nothing is trained.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from heedful.models.load import without_weights
from heedful.run.forecast import of_whole_run
from heedful.run.presets import SHAPES, preset

TEXT = ("sokoban", "frozen_lake", "metamath", "countdown")
PUBLISHED = {
    "ppo-qwen2.5-3b": (TEXT, "12.9 +16.0, 67.0 +10.9, 92.6 +0.6, 97.9 +0.0"),
    "dapo-qwen2.5-3b": (TEXT, "16.2 +5.1, 66.8 +2.1, 90.8 +2.8, 95.7 +1.6"),
    "grpo-qwen2.5-3b": (TEXT, "12.1 +9.0, 70.9 +2.3, 91.2 +1.2, 95.7 +2.2"),
    "dr_grpo-qwen2.5-3b": (TEXT, "12.1 -0.4, 23.2 +0.6, 91.2 +1.4, 96.5 +1.4"),
    "ppo-qwen2.5-0.5b": (TEXT, "3.3 +22.9, 19.5 +0.0, 10.0 -0.2, 23.0 -0.7"),
    "ppo-qwen2.5-1.5b": (TEXT, "17.0 +6.2, 36.5 +1.6, 80.3 +7.0, 56.6 +1.6"),
    "ppo-qwen2.5-7b": (TEXT, "42.4 +4.9, 85.0 -0.6, 84.0 +11.7, 97.7 +0.3"),
    "ppo-qwen2.5-3b-instruct": (TEXT, "22.5 +14.2, 83.6 +2.3, 91.2 +0.4, 96.3 -0.6"),
    "ppo-llama-3.2-3b-instruct": (TEXT, "24.4 +18.8, 84.6 -0.2, 86.1 +3.7, 99.2 -1.2"),
    "ppo-qwen2.5-vl-3b-instruct": (("sokoban", "frozen_lake"), "53.0 +6.0, 16.0 +53.5"),
    "ppo-qwen2.5-vl-3b-instruct ": (("sokoban_image", "frozen_lake_image"), "65.0 +12.0, 19.5 +59.5"),
}
"""Row -> its environments, and the figures for them in the main table of arXiv:2604.06268."""


def rows() -> Iterator[str]:
    """The lines of the table."""
    yield "| `paper/ENV-` | `sokoban` | `frozen_lake` | `metamath` | `countdown` | hours: boards, others | GB |"
    yield "|---|---|---|---|---|---|---|"
    for row, (columns, published) in PUBLISHED.items():
        model = preset(f"paper/{columns[0]}-{row.strip()}").model
        shape = without_weights(model, "bfloat16", SHAPES[model])
        said = [of_whole_run(preset(f"paper/{column}-{row.strip()}"), shape, "H200") for column in columns]
        hours = dict.fromkeys(f"{_number('hours', one):.0f}" for one in said)
        cells = [*published.split(", "), *["-"] * (4 - len(columns))]
        image = " with `_image`" if columns[0].endswith("_image") else ""
        largest = max(_number("memory", one) for one in said)
        yield f"| `{row.strip()}`{image} | {' | '.join(cells)} | {', '.join(hours)} | {largest:.0f} |"


def _number(name: str, said: str) -> float:
    found = re.search(rf"{name} +([0-9.]+)", said)
    assert found is not None
    return float(found[1])


if __name__ == "__main__":
    print("\n".join(rows()))
