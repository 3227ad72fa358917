"""Policies over thoughts that are all listed: what a push does to the information, and what shared weights make of it.

`python -m research templates` runs the simulation and writes its figures. docs/why_templates.md tells what they say.
Dimensions: S seeds, N prompts, Z thoughts, K members of a group.

The page's theorem: an update that changes log p_i(z) by e_i(z) = d_i(z) - E_i d_i changes the gap G by

    dG = sum_ij w_i w_ij ( Cov_i(d_i, log p_i/p_j)  +  E_j d_j - E_i d_j )

and the information I by dI = sum_i w_i Cov_i(d_i, log p_i/m). Proof: dp_i = p_i e_i, so KL(p_i, p_j) changes by

    sum_z p_i e_i (log p_i - log p_j)  +  sum_z p_i (e_i - e_j)

The first sum is the covariance, because e_i has mean 0 under p_i. For the same reason the second sum is
-E_i e_j = E_j d_j - E_i d_j. Sum over the pairs. For I, the change of log p_i adds E_i e_i = 0, and the change of
log m adds sum_z dm(z) = 0, since m stays a distribution. The covariance is left.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from heedful.boundary import to_json
from heedful.report.drawing.standalone import standalone
from heedful.report.templates import chart_style
from heedful.storage import write_whole
from heedful.studies.figures import Line, Place, figure
from heedful.studies.paired import mean_over

Floats = npt.NDArray[np.float64]
Sharing = Literal["none", "thoughts", "ways"]
SHARINGS: dict[Sharing, str] = {
    "none": "nothing shared",
    "thoughts": "thoughts shared",
    "ways": "thoughts and ways shared",
}
WRONG, TEMPLATES, MEMBERS = 3, 4, 8
"""Wrong thoughts of each prompt, beside one right one; templates of all prompts; episodes of a group."""


def log_softmax(logits: Floats) -> Floats:
    """Over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    found: Floats = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return found


def gap(logp_NZ: Floats, shares_N: Floats) -> Floats:
    """Sum over pairs of shares x KL(p_i, p_j), with omega_ij = w_j / (1 - w_i): nats. Leading axes stay."""
    p_NZ = np.exp(logp_NZ)
    own = (p_NZ * logp_NZ).sum(-1)
    foreign_NN = p_NZ @ np.swapaxes(logp_NZ, -1, -2)
    pairs_NN = _pairs(shares_N)
    found: Floats = (pairs_NN * (own[..., None] - foreign_NN)).sum((-1, -2))
    return found


def mutual_information(logp_NZ: Floats, shares_N: Floats) -> Floats:
    """Sum over prompts of w_i E_i[log p_i / m], with m the mixture: nats."""
    p_NZ = np.exp(logp_NZ)
    mixture_Z = (shares_N[:, None] * p_NZ).sum(-2)
    found: Floats = (shares_N[:, None] * p_NZ * (logp_NZ - np.log(mixture_Z))).sum((-1, -2))
    return found


def predicted(logp_NZ: Floats, push_NZ: Floats, shares_N: Floats) -> tuple[float, float]:
    """dG and dI of the theorem, where the update changes log p_i(z) by d_i(z) - E_i d_i. `push_NZ`: d."""
    p_NZ = np.exp(logp_NZ)
    mean_NN = p_NZ @ push_NZ.T
    """E_i d_j at [i, j]."""
    centred_NZ = push_NZ - np.diag(mean_NN)[:, None]
    ratio_NNZ = logp_NZ[:, None] - logp_NZ[None]
    covariance_NN = (p_NZ[:, None] * centred_NZ[:, None] * ratio_NNZ).sum(-1)
    path_NN = np.diag(mean_NN)[None] - mean_NN
    mixture_Z = shares_N @ p_NZ
    own_N = (p_NZ * centred_NZ * (logp_NZ - np.log(mixture_Z))).sum(-1)
    return float((_pairs(shares_N) * (covariance_NN + path_NN)).sum()), float(shares_N @ own_N)


def _pairs(shares_N: Floats) -> Floats:
    pairs_NN: Floats = shares_N[:, None] * shares_N[None] / (1 - shares_N[:, None])
    np.fill_diagonal(pairs_NN, 0.0)
    return pairs_NN


@dataclass(frozen=True, slots=True)
class Setting:
    """One simulation: what is paid, and which weights prompts share."""

    sharing: Sharing
    prompts: int = 16
    noise: float = 1.0
    """Deviation of a reward that says nothing."""
    prose: float = 0.1
    """Paid for a template, whatever the prompt."""
    solved: float = 0.0
    """Share of the prompts on which the right thought earns 1."""
    steps: int = 400
    rate: float = 1 / 32
    """Of the sum over prompts: so what a prompt does to its own weights does not depend on their number."""
    seeds: int = 16


def simulate(setting: Setting) -> dict[str, list[float]]:
    """Share of templates, gap and share of right thoughts after the last step, one value per seed.

    Logits of a prompt are those of its own weights, of each thought (`thoughts`), and of each kind of thought (`ways`:
    right, wrong, template). GRPO: advantages (R - mean) / deviation of 8 members, plain gradient ascent.
    """
    rng = np.random.default_rng(0)
    size, seeds = setting.prompts, setting.seeds
    own = 1 + WRONG
    thoughts = size * own + TEMPLATES
    kind_NZ = np.full((size, thoughts), 3)  # 0 right, 1 wrong, 2 template, 3 another prompt's thought
    for prompt in range(size):
        kind_NZ[prompt, prompt * own] = 0
        kind_NZ[prompt, prompt * own + 1 : (prompt + 1) * own] = 1
    kind_NZ[:, size * own :] = 2
    one_hot_NZK = np.eye(4)[kind_NZ]
    start_NZ = np.choose(kind_NZ, [5.0, 5.0, 5.0 - np.log(3.0), 0.0])  # a quarter of what is not foreign are templates
    paid_NZ = setting.prose * (kind_NZ == 2)
    paid_NZ[: round(setting.solved * size)] += (kind_NZ == 0)[: round(setting.solved * size)]
    own_SNZ = np.zeros((seeds, size, thoughts))
    shared_SZ, ways_SK = np.zeros((seeds, thoughts)), np.zeros((seeds, 4))
    weight = {"none": (0.0, 0.0), "thoughts": (1.0, 0.0), "ways": (1.0, 1.0)}[setting.sharing]
    place_SN = np.arange(seeds)[:, None, None], np.arange(size)[None, :, None]
    for step in range(setting.steps + 1):
        logits = start_NZ + own_SNZ + weight[0] * shared_SZ[:, None] + weight[1] * (ways_SK[:, kind_NZ])
        logp_SNZ = log_softmax(logits)
        if step == setting.steps:
            break
        p_SNZ = np.exp(logp_SNZ)
        drawn_SNK = (p_SNZ.cumsum(-1)[..., None, :] < rng.random((seeds, size, MEMBERS, 1))).sum(-1)
        drawn_SNK = np.minimum(drawn_SNK, thoughts - 1)
        rewards = paid_NZ[place_SN[1], drawn_SNK] + setting.noise * rng.standard_normal(drawn_SNK.shape)
        deviation = rewards.std(-1, ddof=1, keepdims=True)
        advantages = (rewards - rewards.mean(-1, keepdims=True)) / np.where(deviation > 1e-9, deviation, np.inf)
        gradient = np.zeros_like(own_SNZ)
        np.add.at(gradient, (*place_SN, drawn_SNK), advantages / MEMBERS)
        gradient -= p_SNZ * gradient.sum(-1, keepdims=True)
        own_SNZ += setting.rate * gradient
        shared_SZ += setting.rate * gradient.sum(1)
        ways_SK += setting.rate * np.einsum("snz,nzk->sk", gradient, one_hot_NZK)
    p_SNZ = np.exp(logp_SNZ)
    even_N = np.full(size, 1 / size)
    return {
        "templates": (p_SNZ * (kind_NZ == 2)).sum(-1).mean(-1).tolist(),
        "gap": gap(logp_SNZ, even_N).tolist(),
        "right": (p_SNZ * (kind_NZ == 0)).sum(-1).mean(-1).tolist(),
    }


TERMS: dict[str, dict[str, float]] = {
    "noise alone": {"prose": 0.0},
    "prose .1 alone": {"noise": 0.0},
    "prose .1 under the noise": {},
    "task on a quarter, under the noise": {"prose": 0.0, "solved": 0.25},
    "task on a quarter, and prose, under the noise": {"solved": 0.25},
}
"""What is paid -> the settings that differ."""
SIZES = (2, 4, 8, 16, 32)
"""Prompts in a batch."""
COURSE = (0, 50, 100, 200, 300, 400)
"""Steps after which a simulation is read."""


def write_templates(folder: Path, small: bool = False) -> Path:
    """Simulate all settings, write `templates.json` and two pictures, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    steps, seeds = (20, 3) if small else (400, 16)
    found: dict[str, dict[str, dict[str, object]]] = {}
    for name, changes in TERMS.items():
        for sharing in SHARINGS:
            values = simulate(Setting(sharing, steps=steps, seeds=seeds, **changes))  # type: ignore[arg-type]
            found.setdefault(name, {})[sharing] = {key: to_json(mean_over(key, each)) for key, each in values.items()}
    for name, title, x_title, sizes, changed in (
        ("prompts", "Templates after training under noise", "prompts in a batch", SIZES, "prompts"),
        ("course", "Templates in training under noise", "steps", COURSE, "steps"),
    ):
        lines = []
        for hue, (sharing, label) in enumerate(SHARINGS.items(), start=1):
            places = []
            for size in sizes:
                values = simulate(replace(Setting(sharing, steps=steps, seeds=seeds), **{changed: size}))  # type: ignore[arg-type]
                mean = mean_over("templates", values["templates"])
                found.setdefault(name, {})[f"{sharing}, {size}"] = to_json(mean)
                places.append(Place(float(size), float(mean.value or 0.0), mean.low, mean.high, f"{size} {x_title}"))
            lines.append(Line(label, hue, tuple(places)))
        panel = figure(title, "share", lines, x_title, (0.0, 1.0))
        write_whole(folder / f"why_templates_{name}.svg", standalone(panel, chart_style()))
    write_whole(folder / "templates.json", json.dumps(found, indent=1) + "\n")
    return folder
