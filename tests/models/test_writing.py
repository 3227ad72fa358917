"""The names and shapes of weights on their way out of this process."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file  # noqa: E402

from benchmarks.families.models import built  # noqa: E402
from heedful.models.writing import WholeWeights, whole_tensors, write_weights  # noqa: E402


@pytest.mark.parametrize("kind", ["qwen3_moe", "granitemoehybrid", "nemotron_h", "gemma3_text"])
def test_whole_tensors_are_those_of_a_model_folder_also_where_the_model_names_them_otherwise(
    kind: str, tmp_path: Path
) -> None:
    model = built(kind)
    write_weights(tmp_path, model)
    expected = load_file(tmp_path / "model.safetensors")
    for saveable in (model, WholeWeights(model, model.state_dict())):
        found = whole_tensors(saveable)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
