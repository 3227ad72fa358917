import copy

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedModel

from heedful.models.forward import fast_linear
from heedful.models.forward.fast_linear import OneDnnLinear, product, quicken
from tiny_models import narrow

pytestmark = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="this torch has no oneDNN",
)
WIDE = {"hidden_size": 256, "intermediate_size": 320, "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_linear, "onednn_is_faster", lambda: True)


def wide() -> LlamaForCausalLM:
    return narrow(50, dtype=torch.float32, initializer_range=0.05, tie_word_embeddings=True, **WIDE)


def test_a_product_of_transposed_views_is_that_of_torch() -> None:
    torch.manual_seed(0)
    rows_ND, weight_MD = torch.randn(7, 33), torch.randn(19, 33)
    assert torch.allclose(product(rows_ND, weight_MD), rows_ND @ weight_MD.t(), atol=1e-5)
    gradient_NM = torch.randn(7, 19)
    assert torch.allclose(product(gradient_NM, weight_MD.t()), gradient_NM @ weight_MD, atol=1e-5)
    assert torch.allclose(product(gradient_NM.t(), rows_ND.t()), gradient_NM.t() @ rows_ND, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(2, 5, 33), (33,), (0, 33)])
def test_a_layer_and_its_gradients_are_those_of_torch(bias: bool, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    plain = nn.Linear(33, 19, bias)
    other = copy.deepcopy(plain)
    other.__class__ = OneDnnLinear
    found = []
    for layer, given in ((plain, torch.randn(shape)), (other, torch.empty(0))):
        given = found[0][0].detach().clone() if found else given
        given.requires_grad_()
        result = layer(given)
        (result * torch.arange(19.0)).sum().backward()
        found.append((given, result, given.grad, *(parameter.grad for parameter in layer.parameters())))
    for one, theirs in zip(found[0], found[1], strict=True):
        assert one.shape == theirs.shape
        assert torch.allclose(one, theirs, atol=1e-4)


@pytest.mark.usefixtures("faster")
def test_a_wide_model_on_a_cpu_keeps_its_logits_gradients_and_names() -> None:
    plain, model = wide(), wide()
    assert quicken(model) == 15  # seven in each of two layers, and the head
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in plain.named_parameters()]
    ids_BT = torch.arange(24).reshape(2, 12)
    found = []
    for one in (plain, model):
        logits = one(input_ids=ids_BT).logits
        logits.log_softmax(-1)[..., 0].sum().backward()
        found.append((logits, torch.cat([p.grad.flatten() for p in one.parameters()])))  # type: ignore[union-attr]
    (logits, gradient), (fast_logits, fast_gradient) = found
    assert torch.allclose(fast_logits, logits, atol=1e-5)
    assert float((fast_gradient - gradient).norm() / gradient.norm()) < 1e-5
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids_BT).logits, fast_logits)
        assert torch.equal(model.double()(input_ids=ids_BT).logits, plain.double()(input_ids=ids_BT).logits)


@pytest.mark.usefixtures("faster")
def test_narrow_models_keep_the_layers_of_torch() -> None:
    model: PreTrainedModel = narrow(13)
    assert quicken(model) == 0
    assert not any(isinstance(module, OneDnnLinear) for module in model.modules())


def test_models_keep_the_layers_of_torch_where_these_are_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_linear, "onednn_is_faster", lambda: False)
    assert quicken(wide()) == 0


@pytest.mark.usefixtures("faster")
def test_a_frozen_layer_gets_no_gradient_of_its_weight() -> None:
    model = wide()
    quicken(model)
    model.requires_grad_(False)
    model.model.layers[0].self_attn.q_proj.weight.requires_grad_(True)
    model(input_ids=torch.arange(6)[None]).logits.sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is not None] == [
        "model.layers.0.self_attn.q_proj.weight"
    ]


def test_the_head_multiplies_contiguous_states_since_others_take_sixty_times_as_long() -> None:
    model = wide()
    quicken(model)
    seen: list[bool] = []
    model.get_output_embeddings().register_forward_pre_hook(lambda head, states: seen.append(states[0].is_contiguous()))
    model(torch.arange(10).view(2, 5), logits_to_keep=1)
    assert seen == [True]
