"""A model that sees reads rows of ids with pictures wherever it is called with ids."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from heedful.models.vision.pictures import Layout, Picture, Pictures
from heedful.models.vision.positions import carry_shift, shift_of, shifted
from heedful.models.vision.processing import PictureProcessor
from heedful.pixels import decoded
from heedful.types import Image

MOST_FEATURES = 4096
"""Pictures whose features are kept while the tower does not change."""

_NAME = "heedful_vision"


def vision_of(model: object) -> Vision | None:
    """The vision of a model. `None`: it reads text alone."""
    return cast(Vision | None, getattr(model, _NAME, None))


class Vision:
    """Puts the features of pictures where their ids stand. It is the one place that knows how models see.

    From then on, the decoder and the whole model take rows with negative ids: with KV caches, masks and positions of
    text, in sampling, in packs and with gradients. The model's own state between two calls is not used.

    Each picture is read alone where no gradient is needed, so its features depend on nothing else in the call. They are
    kept until the tower's weights change.

    `attach=False`: the model stays as it is, and reads such rows within `attached` alone.
    """

    def __init__(self, model: PreTrainedModel, processor: PictureProcessor, *, attach: bool = True) -> None:
        self.processor = processor
        self.pictures = Pictures(self._layout)
        self._model = model
        whole: Any = model
        self._base, self._decoder, self._head = whole.model, whole.get_decoder(), whole.get_output_embeddings()
        self._taken = frozenset(inspect.signature(self._base.get_image_features).parameters)
        self._axes = hasattr(self._base, "get_rope_index")
        language = {id(p) for module in (self._decoder, self._head) for p in module.parameters()}
        self.tower: list[nn.Parameter] = [p for p in model.parameters() if id(p) not in language]
        """The weights that see: the vision tower and what connects it to the decoder."""
        self._trains_tower = True
        self._known: OrderedDict[int, list[Tensor]] = OrderedDict()
        self._version: tuple[int, ...] = ()
        self._layouts: dict[tuple[object, ...], Layout] = {}
        self.source: str | Path | None = None
        """The folder or name of the processor. `None`: it was made here."""
        self.own_forward = whole.forward
        self._attached = attach
        if attach:
            whole.forward = self._forward
            self._decoder.register_forward_pre_hook(self._before, with_kwargs=True)
            self.keep()

    def keep(self) -> None:
        """From now on `vision_of` finds it with the model."""
        setattr(self._model, _NAME, self)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Within it the model reads rows with pictures. After it the model is what it was: another trainer's."""
        if self._attached:
            yield
            return
        whole: Any = self._model
        own = vars(whole).get("forward")  # a wrapper that someone put around the method of the class
        self.own_forward = whole.forward
        hook = self._decoder.register_forward_pre_hook(self._before, with_kwargs=True)
        whole.forward, self._attached = self._forward, True
        try:
            yield
        finally:
            hook.remove()
            self._attached = False
            self._known.clear()  # the memory is the other trainer's
            if own is None:
                del whole.forward
            else:
                whole.forward = own

    @property
    def placeholder(self) -> int:
        """The id that the chat template writes for a picture."""
        return self.processor.placeholder

    def show(self, image: Image) -> Picture:
        """The picture as it stands in rows. Only pictures that were shown can be read."""
        return self.pictures.put(image)

    def read(self, image: Image) -> None:
        """Read a picture through the tower, and keep nothing of it. So its time can be taken."""
        self._see(self.processor.made([decoded(image.png)]).values, 1)

    def collapsed(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The ids as the chat template wrote them: one placeholder for each picture. It can be decoded."""
        found: list[int] = []
        run: tuple[int, ...] = ()
        for id in ids:
            found.append(id)
            if id < 0:
                run = self.pictures.of(id).ids
            if run and tuple(found[-len(run) :]) == run:
                found[-len(run) :] = [self.placeholder]
        return tuple(found)

    def copied_decoder(self) -> nn.Module:
        """A copy of the decoder, for a critic: it sees with the model's own tower, and never trains it."""
        shared = (self._model, self._base, self._head, self.processor, *self.tower)
        copied: dict[int, Any] = {id(part): part for part in shared}
        decoder = cast(nn.Module, deepcopy(self._decoder, copied))
        copied[id(self)]._trains_tower = False
        return decoder

    def freeze(self, frozen: bool = True) -> None:
        """Whether the tower's weights stay as they are in training."""
        for parameter in self.tower:
            parameter.requires_grad_(not frozen)

    def _layout(self, pixels: Any) -> Layout:
        """The ids of a picture. Only the tower knows how many features it makes; it is asked once for each shape."""
        made = self.processor.made([pixels])
        if made.shape not in self._layouts:
            with torch.inference_mode(False), torch.no_grad():
                features = self._see(made.values, 1)[0][0]
            self._layouts[made.shape] = self.processor.layout(made, len(features))
        return self._layouts[made.shape]

    def _forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        **options: Any,
    ) -> CausalLMOutputWithPast:
        """The whole model as a causal language model of rows of ids."""
        output = self._decoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            use_cache=use_cache,
            **options,
        )
        states_BTD = output.last_hidden_state[:, -logits_to_keep:] if logits_to_keep else output.last_hidden_state
        return CausalLMOutputWithPast(logits=self._head(states_BTD), past_key_values=output.past_key_values)

    def _before(self, decoder: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any] | None:
        """Runs before the decoder: replaces ids by embeddings, and positions by those of the model."""
        ids_BT, cache = named.get("input_ids"), named.get("past_key_values")
        if ids_BT is None:
            return None
        # A single new column is never a picture: text follows every picture. So decoding waits for no device.
        pictured = ids_BT.shape[1] > 1 and bool((ids_BT < 0).any())
        shift_B = shift_of(cache)
        if not pictured and shift_B is None:
            return None
        changed = dict(named)
        if self._axes:
            changed["position_ids"] = self._positions(ids_BT, named.get("position_ids"), cache, shift_B, pictured)
        if pictured:
            del changed["input_ids"]
            changed.update(self._embedded(ids_BT))
        return args, changed

    def _positions(
        self, ids_BT: Tensor, counts_BT: Tensor | None, cache: Any, shift_B: Tensor | None, pictured: bool
    ) -> Tensor:
        rows, width = ids_BT.shape
        if counts_BT is None:
            before = 0 if cache is None else cache.get_seq_length()
            counts_BT = torch.arange(before, before + width, device=ids_BT.device)[None]
        counts_BT = counts_BT.expand(rows, -1)
        if shift_B is None:
            shift_B = torch.zeros(rows, dtype=torch.long, device=ids_BT.device)
        elif len(shift_B) != rows:
            shift_B = shift_B.repeat_interleave(rows // len(shift_B))  # rows are ordered by their prompts
        if not pictured:
            return (counts_BT + shift_B[:, None])[None].expand(3, -1, -1)
        positions_3BT, after_B = shifted(ids_BT, counts_BT, shift_B, self.grid_of)
        if cache is not None:
            carry_shift(cache, after_B)
        return positions_3BT

    def grid_of(self, own: int) -> tuple[int, int]:
        """Rows and columns of the features of a picture that was shown, for models with three axes."""
        grid = self.pictures.of(own).grid
        assert grid is not None  # for the type checker
        return grid

    def _embedded(self, ids_BT: Tensor) -> dict[str, Any]:
        """The embeddings of a row, features included, and what deeper layers add at the places of pictures."""
        embeds_BTD = self._decoder.get_input_embeddings()(ids_BT.clamp(min=0))
        pictured_BT = ids_BT < 0
        shown = [self.pictures.of(own) for own in ids_BT[pictured_BT].unique().tolist()]
        levels: list[Tensor] = []
        for picture, features in zip(shown, self._features(shown), strict=True):
            own_BT = ids_BT == picture.own
            levels = levels or [embeds_BTD, *(torch.zeros_like(embeds_BTD) for _ in features[1:])]
            times = int(own_BT.sum()) // picture.features
            levels = [
                level.index_put((own_BT,), features_KD.to(level.dtype).repeat(times, 1))
                for level, features_KD in zip(levels, features, strict=True)
            ]
        changed: dict[str, Any] = {"inputs_embeds": levels[0]}
        if len(levels) > 1:
            deeper = [level[pictured_BT] for level in levels[1:]]
            changed |= {"visual_pos_masks": pictured_BT, "deepstack_visual_embeds": deeper}
        return changed

    def _features(self, shown: Sequence[Picture]) -> list[list[Tensor]]:
        """The features `[K, D]` of each picture, and after them what deeper layers add."""
        if self._trains_tower and torch.is_grad_enabled() and any(weight.requires_grad for weight in self.tower):
            return self._together(shown)
        version = tuple(parameter._version for parameter in self.tower)
        if version != self._version:
            self._known.clear()
            self._version = version
        for picture in shown:
            if picture.own not in self._known:
                # Outside of inference mode, since a later pass with gradients may use them.
                with torch.inference_mode(False), torch.no_grad():
                    self._known[picture.own] = self._see(self.processor.made([decoded(picture.image.png)]).values, 1)[0]
            self._known.move_to_end(picture.own)
        found = [self._known[picture.own] for picture in shown]
        while len(self._known) > MOST_FEATURES:
            self._known.popitem(last=False)
        return found

    def _together(self, shown: Sequence[Picture]) -> list[list[Tensor]]:
        """The features of several pictures, those of one shape in one pass. Gradients of all rows flow into it."""
        made = [self.processor.made([decoded(picture.image.png)]) for picture in shown]
        by_shape: dict[tuple[object, ...], list[int]] = {}
        for index, one in enumerate(made):
            by_shape.setdefault(one.shape, []).append(index)
        found: list[list[Tensor]] = [[] for _ in shown]
        for members in by_shape.values():
            names = made[members[0]].values
            joined = {name: torch.cat([made[index].values[name] for index in members]) for name in names}
            for index, features in zip(members, self._see(joined, len(members)), strict=True):
                found[index] = features
        return found

    def _see(self, values: Mapping[str, Tensor], pictures: int) -> list[list[Tensor]]:
        """The features of pictures of one shape: for each picture one tensor for each level."""
        taken = {name: value.to(self._model.device) for name, value in values.items() if name in self._taken}
        output = self._base.get_image_features(**taken, return_dict=True)
        deeper = getattr(output, "deepstack_features", None) or ()
        levels = [_flat(output.pooler_output), *(_flat(level) for level in deeper)]
        return [list(parts) for parts in zip(*(level.chunk(pictures) for level in levels), strict=True)]


def _flat(features: Any) -> Tensor:
    """All features of all pictures in one tensor `[N, D]`."""
    parts = [features] if torch.is_tensor(features) else features
    return torch.cat([part.reshape(-1, part.shape[-1]) for part in parts])
