"""Models from a folder: another architecture with its own chat template goes the whole way; what cannot is refused."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402

from heedful import cli  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.models.chat.turn_ends import named_stop_ids  # noqa: E402
from heedful.models.load import (  # noqa: E402
    load_model,
    pick_device,
    read_model,
    stop_ids,
)
from heedful.models.writing import making_a_model, write_weights  # noqa: E402
from heedful.storage import read_metrics, read_rollouts  # noqa: E402
from heedful.types import Message  # noqa: E402
from tiny_models import llama, qwen2  # noqa: E402

CPU = torch.device("cpu")
CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chatml_tokenizer() -> Any:
    """Bytes, a few merges and ChatML's special tokens; no token for the tags."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(["You walk on a frozen lake. The actions are Left, Down, Right, Up."] * 3, trainer)
    ends = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in ends])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = CHATML
    return fast


def save(folder: Path, model: Any, tokenizer: Any) -> Path:
    model.float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2 of random weights, shaped unlike any seedling, with two ends of sequence."""
    tokenizer = chatml_tokenizer()
    model = qwen2(len(tokenizer) + 5, window=2048)
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    return save(tmp_path_factory.mktemp("models") / "qwen", model, tokenizer)


def test_who_reads_the_settings_of_a_written_model_reads_its_weights(tmp_path: Path) -> None:
    write_weights(tmp_path, llama(8))
    assert (tmp_path / "model.safetensors").stat().st_mode == (tmp_path / "config.json").stat().st_mode


def test_a_foreign_model_is_trained_by_path_end_to_end(
    qwen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    # Random weights never act, so all rewards are alike; the entropy bonus gives the update something to do.
    settings = (
        "--steps 2 --groups 2 --group-size 2 --filter keep_all --algorithm.entropy 0.01 --optimizer.lr 1e-3 "
        "--sampling.tokens-per-turn 6 --evaluation.tasks 2 --evaluation.samples 1 --evaluation.search-tasks 2 "
        "--device cpu --checkpoint-every 1"
    )
    code = cli.run(["train", "frozen_lake", "--model", str(qwen), "--out", str(run), *settings.split()])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert "it/s]" not in shown.err, "a progress bar of transformers"
    assert "Verdict" in shown.out
    assert (run / "report.html").stat().st_size > 0

    config = json.loads((run / "config.json").read_text())
    assert (config["model"], config["env"]["instructions"]) == (str(qwen), "full")
    by_step = {line.step: line.metrics for line in read_metrics(run / "metrics.jsonl")}
    assert sorted(by_step) == [0, 1, 2]
    assert by_step[1]["filter/empty"].value == 0.0
    for step in (0, 1):
        error = by_step[step]["policy/logprob_error"].value
        assert isinstance(error, float)
        assert error < 1e-4, "the learner sees other log-probabilities than the sampler"

    model, tokenizer = load_model(str(qwen), CPU)
    trained, _ = load_model(str(run / "checkpoints" / "step_000002"), CPU)
    assert type(trained) is type(model)
    before, after = model.state_dict(), trained.state_dict()
    assert before.keys() == after.keys()
    assert not all(torch.equal(before[name], after[name]) for name in before)

    first = read_rollouts(run / "rollouts" / "step_000000.parquet").groups[0].trajectories[0].turns[0].reply
    assert first.prompt.text.startswith(
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
    )
    assert first.prompt.text.endswith("<|im_end|>\n<|im_start|>assistant\n<think>")
    assert tokenizer.decode(list(first.prompt.ids)) == first.prompt.text


def test_the_renderer_ends_replies_at_every_end_of_the_loaded_model(qwen: Path) -> None:
    model, tokenizer = load_model(str(qwen), CPU)
    ends = set(tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]))
    renderer = Renderer(tokenizer, stop_ids=stop_ids(model))
    assert renderer.stop_ids == ends
    assert renderer.end_of_turn_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    glue = renderer.glue([Message("user", "on")], ended=True)
    assert glue.text == "\n<|im_start|>user\non<|im_end|>\n<|im_start|>assistant\n<think>"


def test_a_loaded_model_gives_the_logits_that_were_saved(qwen: Path) -> None:
    tokenizer = chatml_tokenizer()
    expected = qwen2(len(tokenizer) + 5, window=2048).float()
    model, _ = load_model(str(qwen), CPU)
    ids = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, expected(input_ids=ids).logits)
    assert not model.training
    half, _ = load_model(str(qwen), CPU, "bfloat16")
    assert half.dtype == torch.bfloat16


def test_a_missing_path_ends_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "no" / "such" / "model"
    with pytest.raises(ValueError, match="no such folder, so a Hugging Face name") as raised:
        load_model(str(missing), CPU)
    assert str(missing) in str(raised.value)
    assert str(raised.value).endswith("or let heedful's own seedling play.")
    code = cli.run(["train", "frozen_lake", "--model", str(missing), "--out", str(tmp_path / "run"), "--steps", "1"])
    assert code == 2
    error = capsys.readouterr().err
    assert error.startswith("heedful: Expected a causal language model at")
    assert "Traceback" not in error


def test_a_folder_without_a_model_ends_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"Expected a causal language model in {tmp_path}, but it could not be loaded"):
        load_model(str(tmp_path), CPU)


def test_models_with_windows_and_models_without_a_masked_kernel_are_loaded(tmp_path: Path, tokenizer: Any) -> None:
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "sliding_window": 16}
    for name, more, attention in (
        ("Mistral", {}, "sdpa"),
        ("GptOss", {"num_local_experts": 2, "num_experts_per_tok": 1, "layer_types": ["sliding_attention"]}, "eager"),
    ):
        config = getattr(transformers, f"{name}Config")(**sizes, **heads, **more)
        folder = save(tmp_path / name, getattr(transformers, f"{name}ForCausalLM")(config), tokenizer)
        model, _ = load_model(str(folder), CPU)
        assert model.config._attn_implementation == attention


def test_an_encoder_decoder_is_refused(tmp_path: Path, tokenizer: Any) -> None:
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=16, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    folder = save(tmp_path / "t5", transformers.T5ForConditionalGeneration(config), tokenizer)
    with pytest.raises(ValueError, match="Expected a causal language model"):
        load_model(str(folder), CPU)


@pytest.fixture
def copied(tmp_path: Path, qwen: Path) -> Path:
    return Path(shutil.copytree(qwen, tmp_path / "copy"))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_damaged_file_ends_in_a_sentence(copied: Path, name: str) -> None:
    content = (copied / name).read_bytes()
    (copied / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"could not be loaded: .+\. Give a folder with config.json"):
        load_model(str(copied), CPU)


def test_a_tokenizer_with_ids_that_the_model_cannot_read_is_refused(copied: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(copied)
    tokenizer.add_tokens([f"<more {number}>" for number in range(500)])
    tokenizer.save_pretrained(copied)
    with pytest.raises(ValueError, match=r"ids beyond its \d+ embeddings.*resize the embeddings"):
        load_model(str(copied), CPU)


def test_stop_ids_are_one_several_or_none() -> None:
    assert [named_stop_ids(SimpleNamespace(eos_token_id=each)) for each in (7, [7, 8], None)] == [[7], [7, 8], []]
    assert named_stop_ids(None) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"intermediate_size": 8}, r"loaded: its weights have other sizes than its config\.json asks for\. Give"),
        ({"rms_norm_eps": "small"}, r"'rms_norm_eps': TypeError: .*expected float, got str \(value: 'small'\)\. Give"),
    ],
)
def test_what_is_wrong_with_a_setting_is_told(copied: Path, change: dict[str, Any], found: str) -> None:
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match=found):
        read_model(copied, torch.float32, "Give another.")


def test_ends_of_a_reply_in_a_file_that_transformers_cannot_read_are_not_left_out(copied: Path) -> None:
    path = copied / "generation_config.json"
    content = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + content)
    assert len(stop_ids(load_model(str(copied), CPU)[0])) == 2
    path.write_bytes(content[:-3])
    with pytest.raises(ValueError, match="text that is not JSON"):
        load_model(str(copied), CPU)


@pytest.mark.parametrize("beside_a_model", [True, False])
def test_a_folder_with_an_adapter_is_refused_by_name(copied: Path, beside_a_model: bool) -> None:
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(load_model(str(copied), CPU)[0], peft.LoraConfig(target_modules=["q_proj"]))
    if not beside_a_model:
        (copied / "config.json").unlink()
    adapted.save_pretrained(copied)
    with pytest.raises(ValueError, match=r"it holds an adapter \(adapter_config\.json\)\. Merge it"):
        load_model(str(copied), CPU)


def test_one_thread_reads_a_model_at_a_time(qwen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers replaces methods of all models while it reads one, so two threads lost tied weights for good."""
    kind, free = transformers.AutoModelForCausalLM, list[bool]()
    read = kind.from_pretrained

    def watched(*arguments: Any, **named: Any) -> Any:
        other = threading.Thread(target=lambda: free.append(making_a_model.acquire(blocking=False)))
        other.start()
        other.join()
        return read(*arguments, **named)

    monkeypatch.setattr(kind, "from_pretrained", watched)
    load_model(str(qwen), CPU)
    assert free == [False]


def test_missing_weights_are_not_replaced_by_random_ones(copied: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(copied / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"no weights for lm_head\.weight"):
        load_model(str(copied), CPU)


def test_a_tokenizer_without_a_template_is_refused_before_anything_is_sampled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = chatml_tokenizer()
    tokenizer.chat_template = None
    folder = save(tmp_path / "base", llama(len(tokenizer)), tokenizer)
    code = cli.run(["train", "frozen_lake", "--model", str(folder), "--out", str(tmp_path / "run"), "--device", "cpu"])
    assert code == 2
    assert "Expected a tokenizer with a chat template" in capsys.readouterr().err


def test_devices_that_are_not_there_are_refused() -> None:
    assert pick_device("cpu") == CPU
    with pytest.raises(ValueError, match="--device gpu was asked for, but torch sees only"):
        pick_device("gpu")
    assert pick_device("auto").type in ("cpu", "cuda", "mps")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"--device cuda was asked for, but torch sees only: cpu"):
            pick_device("cuda")
