"""LoRA on a model in place: only the additions are trained, and the model keeps its class and its interface.

With the additions switched off the model is bit-equal to the original. The saved model is an ordinary model directory
with the additions merged into the weights. Its folder `adapter` has the additions alone, exactly.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors.torch import load_file, save_file

from heedful.models.forward.shared_prompts import SharedPrompts
from heedful.models.forward.token_logits import Over, TokenLogits
from heedful.models.vision import vision_of
from heedful.training.settings import LoraConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FOLDER = "adapter"
"""The folder of the additions within a model directory, in peft's own format."""

_NAME = "default"
_PREFIX = "base_model.model."
"""The prefix that peft puts before the names of a model's parameters."""
_WRAPPED = re.compile(r"(?:\.base_layer)+\.")
"""What peft puts into the names of wrapped weights. The experts of a layer are two weights, and are wrapped twice."""


class Adapters:
    """The additions to one model: `W + (alpha / rank) B A` for every chosen linear layer, A random and B zero.

    A vision tower gets none. It stays as it is.
    """

    def __init__(self, model: PreTrainedModel, config: LoraConfig, seed: int) -> None:
        """Put them into `model`, in float32, and freeze everything else. `seed` decides A.

        Raises ImportError without peft, and ValueError where no layer has a requested name.
        """
        try:
            import peft
            from peft.tuners.tuners_utils import BaseTunerLayer
        except ImportError as error:
            raise ImportError(
                "LoRA (--lora.rank) needs peft, which is not installed; run: pip install 'heedful[lora]'"
            ) from error
        everything = config.targets == ("all-linear",)
        self._config = peft.LoraConfig(
            r=config.rank,
            lora_alpha=config.scaled_by,
            lora_dropout=0.0,
            target_modules="all-linear" if everything else list(config.targets),
            exclude_modules=_left_out(model) or None,
            task_type="CAUSAL_LM",
        )
        with torch.random.fork_rng(devices=[]):  # peft draws A from the global generator. It is replaced below
            try:
                peft.inject_adapter_in_model(self._config, cast(torch.nn.Module, model), _NAME)
            except ValueError as error:
                raise ValueError(
                    f"Expected lora.targets ({', '.join(config.targets)}) to name linear layers of "
                    f"{type(model).__name__}, but peft found: {str(error).splitlines()[0]}"
                ) from error
        self.model = model
        self._weights: dict[str, torch.Tensor] | None = None
        self._layers: list[tuple[str, Any]] = [
            (name, module) for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)
        ]
        table: Any = model.get_input_embeddings()
        shared = table.get_base_layer().weight if hasattr(table, "get_base_layer") else table.weight
        for name, layer in self._layers:
            if getattr(layer.get_base_layer(), "weight", None) is shared:
                raise ValueError(
                    f"Expected lora.targets ({', '.join(config.targets)}) to name linear layers with weights of their "
                    f"own, found {name}, which is the table of embeddings or shares its weights (tied embeddings). "
                    "Leave it out, or train all weights (--lora.rank 0)."
                )
        self._additions: dict[str, torch.nn.Parameter] = {}
        """By the names that peft writes, which are without the adapter's own."""
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(".lora_" in name)
            if ".lora_" in name:
                parameter.data = parameter.data.float()
                self._additions[_PREFIX + name.replace(f".{_NAME}.", ".")] = parameter
            if ".lora_A." in name:
                drawn = torch.empty(parameter.shape)
                torch.nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=generator)
                parameter.data.copy_(drawn)

    @contextmanager
    def off(self) -> Iterator[None]:
        """A context in which the model is the original one, without the additions."""
        for _, layer in self._layers:
            layer.enable_adapters(False)
        try:
            yield
        finally:
            for _, layer in self._layers:
                layer.enable_adapters(True)

    def without(self, rows: TokenLogits) -> TokenLogits:
        """`rows` of the model without the additions: the reference of a KL penalty, without a second model."""

        def reference(
            ids_BT: torch.Tensor,
            trained_BT: torch.Tensor,
            prompts: SharedPrompts | None = None,
            over: Over | None = None,
        ) -> torch.Tensor:
            with self.off():
                return rows(ids_BT, trained_BT, prompts, over)

        return reference

    def over(self, weights: dict[str, torch.Tensor]) -> Adapters:
        """The same additions where the model is sharded, to be saved with these whole weights (`Sharded.weights`)."""
        found = copy(self)
        found._weights = weights
        return found

    @torch.no_grad()
    def merged(self) -> dict[str, torch.Tensor]:
        """The weights of the model by their own names, the additions added in float32 and rounded once."""
        own = self.model.state_dict() if self._weights is None else self._weights
        weights = {_WRAPPED.sub(".", name): tensor for name, tensor in own.items() if ".lora_" not in name}
        for wrapped, layer in self._layers:
            name = _WRAPPED.sub(".", f"{wrapped}.{getattr(layer, 'parameter_name', 'weight')}")
            weight, added = weights[name], layer.get_delta_weight(_NAME).float()
            weights[name] = (weight.float() + added.to(weight.device)).to(weight.dtype)
        return weights

    def save_pretrained(self, folder: Path) -> None:
        """An ordinary model directory with the merged weights, and the additions alone in its folder `adapter`."""
        self.model.save_pretrained(folder, state_dict=self.merged())
        (folder / FOLDER).mkdir()
        self.save_additions(folder / FOLDER)

    def save_additions(self, folder: Path) -> None:
        """The additions alone, in peft's own format, which inference servers load as well."""
        # The resolved targets are a set, and its order differs between processes. The file must not.
        resolved = {**self._config.to_dict(), "inference_mode": True}
        text = json.dumps(resolved, indent=2, sort_keys=True, default=lambda value: sorted(value))
        (folder / "adapter_config.json").write_text(text + "\n")
        tensors = {name: parameter.detach().cpu().contiguous() for name, parameter in self._additions.items()}
        save_file(tensors, folder / "adapter_model.safetensors")

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """Load the additions of a model directory that `save_pretrained` wrote.

        Raises ValueError where there are none, or where they do not fit this model.
        """
        path = folder / FOLDER / "adapter_model.safetensors"
        tensors = load_file(path) if path.exists() else {}
        shapes = {name: parameter.shape for name, parameter in self._additions.items()}
        if shapes != {name: tensor.shape for name, tensor in tensors.items()}:
            raise ValueError(
                f"Expected the additions of a LoRA run in {path} that fit the model and lora.rank of this run, found "
                f"{f'{len(tensors)} others' if tensors else 'no such file'}. Leave out --lora.rank if you typed it. If "
                f"not, delete the folder {folder} to continue from the one before it."
            )
        for name, parameter in self._additions.items():
            parameter.copy_(tensors[name])


def _left_out(model: PreTrainedModel) -> list[str]:
    """The layers of a vision tower, which `all-linear` and names such as `q_proj` would reach, and layers that are no
    plain product with their weight: the routers of Llama 4 and Phi MoE, and grouped layers of DeepSeek V4."""
    vision = vision_of(model)
    tower = set() if vision is None else {id(weight) for weight in vision.tower}
    layers = [one for one in cast(torch.nn.Module, model).named_modules() if isinstance(one[1], torch.nn.Linear)]
    return [name for name, one in layers if id(one.weight) in tower or re.search("Router|Grouped", type(one).__name__)]
