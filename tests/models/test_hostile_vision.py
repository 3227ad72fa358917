"""Processors of pictures that strangers wrote: refused in a sentence, without much memory, time or code of theirs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")

from heedful.models.folders import write_pretrained  # noqa: E402
from heedful.models.load import load_model  # noqa: E402
from patience import within_cpu_seconds  # noqa: E402
from seeing_models import seeing  # noqa: E402


def changed(**settings: Any) -> Callable[[dict[str, Any]], object]:
    return lambda tree: {**tree, **settings}


HOSTILE: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "a picture of 10^12 pixels": (
        "idefics3",
        changed(size={"longest_edge": 10**6}, max_image_size={"longest_edge": 10**6}),
    ),
    "a side below 0": ("idefics3", changed(size={"longest_edge": -5})),
    "a side of 10^400": ("idefics3", changed(size={"longest_edge": 10**400})),
    "a side in words": ("idefics3", changed(size={"longest_edge": "long"})),
    "sides in a list": ("idefics3", changed(size=[[[3]]])),
    "tiles of one pixel": ("idefics3_tiles", changed(size={"longest_edge": 4000}, max_image_size={"longest_edge": 1})),
    "pictures enlarged to 10^9 pixels": ("qwen2_vl", changed(size={"shortest_edge": 10**9, "longest_edge": 10**9})),
    "patches of one pixel": ("qwen2_vl", changed(patch_size=1, size={"shortest_edge": 10**7, "longest_edge": 10**7})),
    "patches of no pixel": ("qwen2_vl", changed(patch_size=0)),
    "patches below 0": ("qwen2_vl", changed(patch_size=-14)),
    "a merge of 0": ("qwen2_vl", changed(merge_size=0)),
    "10^6 tiles to choose from": ("internvl", changed(crop_to_patches=True, max_patches=10**6)),
    "a mean of words": ("idefics3", changed(image_mean="red")),
    "a mean that is no number": ("idefics3", changed(image_mean=[float("nan")] * 3)),
    "no deviation": ("idefics3", changed(image_std=[0.0] * 3)),
    "a class of transformers that is no processor": ("idefics3", changed(image_processor_type="AutoModelForCausalLM")),
    "a class from elsewhere": ("idefics3", changed(image_processor_type="os.system")),
    "code of its own": (
        "idefics3",
        changed(image_processor_type="Evil", auto_map={"AutoImageProcessor": "evil.Evil"}),
    ),
    "a list": ("idefics3", lambda tree: [tree]),
    "nothing": ("idefics3", lambda tree: None),
}


REASONS = {
    "a picture of 10^12 pixels": "1000000}, expected at most 4,096",
    "a side below 0": "its processor names a size of",
    "a side of 10^400": "its processor names a size of",
    "tiles of one pixel": "its processor cuts a picture into more than 1,024 parts of 1 pixels",
    "pictures enlarged to 10^9 pixels": "its processor names a size of",
    "patches of one pixel": "its processor cuts a picture into more than 131,072 patches of 1 pixels",
    "10^6 tiles to choose from": "its processor names 1000000 parts (max_patches)",
}
"""What is refused before any picture is made, since it would take memory or time without end."""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_settings_of_pictures_end_in_a_sentence(name: str, tmp_path: Path) -> None:
    family, damage = HOSTILE[name]
    write_pretrained(tmp_path, *seeing(family))
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: ...\n")
    with (
        within_cpu_seconds(60),
        pytest.raises(ValueError, match=r"^Expected a model that sees in .* could not be loaded: ") as raised,
    ):
        load_model(str(tmp_path), torch.device("cpu"))
    assert REASONS.get(name, "") in str(raised.value)
    assert not (tmp_path / "ran").exists()
