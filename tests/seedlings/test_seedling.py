"""The built-in small models: a lossless tokenizer, the same bytes from one recipe, and growth that goes on."""

from __future__ import annotations

import os
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful.boundary import to_json  # noqa: E402
from heedful.envs.frozen_lake.environment import FrozenLake  # noqa: E402
from heedful.envs.toys.echo import Echo  # noqa: E402
from heedful.models.cache import cache_root  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.models.chat.replies import Tags  # noqa: E402
from heedful.models.load import load_model  # noqa: E402
from heedful.rollout import Context, LockStep, Request  # noqa: E402
from heedful.seedlings import grow as growing  # noqa: E402
from heedful.seedlings.demonstrations import corpus, encode, encode_replayed  # noqa: E402
from heedful.seedlings.grow import load_seedling, seedling_path  # noqa: E402
from heedful.seedlings.recipe import LEAST_VOCABULARY, Seedling, nano  # noqa: E402
from heedful.seedlings.tokenizer import grow_tokenizer  # noqa: E402
from heedful.stopping import StoppedBySignal  # noqa: E402
from heedful.storage import DiskFull, held  # noqa: E402

ECHO = Echo(instructions="brief")
LAKE = FrozenLake(instructions="brief")
TINY = replace(nano(), hidden=32, layers=1, heads=2, kv_heads=1, ffn=32, steps=4, episodes=4)
TAGS = Tags()


def silent(step: int, steps: int, loss: float) -> None:
    """Says nothing."""


def load(recipe: Seedling = TINY, env: Any = ECHO, tags: Tags = TAGS, progress: Any = silent) -> Any:
    return load_seedling(recipe, env, to_json(env), tags, progress)


def place(recipe: Seedling = TINY, env: Any = ECHO, tags: Tags = TAGS) -> Path:
    return seedling_path(recipe, env, to_json(env), tags)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def random_texts(count: int) -> list[str]:
    """Letters of many scripts, signs, spaces, control characters, digits, and pieces of tags and special tokens."""
    rng = random.Random(8)
    pieces = [
        "<think>",
        "</answer>",
        "<|end|>",
        "|",
        "||",
        " || ",
        "_",
        "\r\n",
        "\t",
        "  ",
        "P_O",
        "0 1",
        "\N{SNOWMAN}",
    ]
    planes = [(0x20, 0x7F), (0x00, 0x20), (0xA0, 0x250), (0x370, 0x3FF), (0x4E00, 0x4FFF), (0x1F300, 0x1F6FF)]

    def piece() -> str:
        return rng.choice(pieces) if rng.random() < 0.2 else chr(rng.randrange(*rng.choice(planes)))

    return ["".join(piece() for _ in range(rng.randint(0, 40))) for _ in range(count)]


def texts_of_play(env: Any, episodes: int) -> list[str]:
    rng = random.Random(1)
    pairs = [pair for seed in range(episodes) for pair in env.demonstrate(env.task(seed), rng)]
    return [text for pair in pairs for text in pair]


@pytest.fixture(scope="module")
def lake_tokenizer() -> Any:
    return grow_tokenizer(
        texts_of_play(LAKE, 60), 512, 1024, [TAGS.open, TAGS.close, TAGS.answer_open, TAGS.answer_close]
    )


def test_the_tokenizer_gives_back_every_text(lake_tokenizer: Any) -> None:
    for text in random_texts(1000) + texts_of_play(LAKE, 10):
        ids = lake_tokenizer(text, add_special_tokens=False).input_ids
        assert lake_tokenizer.decode(ids) == text


def test_the_tokenizer_of_a_small_environment_reads_each_of_its_training_tasks_once() -> None:
    small = Echo(symbols=8, decoys=1)
    asked = {task.id for task in map(small.task, range(1000)) if task.split == "train"}
    told = list(corpus(small, 0))
    assert len(told) == 5 * len(asked) < 5 * 56  # an observation, a reply, and answers to three faulty ones


def test_digits_and_signs_of_the_grid_are_tokens_of_their_own(lake_tokenizer: Any) -> None:
    for text in ("P__O\n__GO", "PO_G", "2047"):
        ids = lake_tokenizer(text, add_special_tokens=False).input_ids
        assert [lake_tokenizer.decode([token]) for token in ids] == list(text)
    assert len(lake_tokenizer("||", add_special_tokens=False).input_ids) == 1


def test_tags_are_single_ordinary_tokens(lake_tokenizer: Any) -> None:
    for tag in (TAGS.open, TAGS.close, TAGS.answer_open, TAGS.answer_close):
        (token,) = lake_tokenizer(tag, add_special_tokens=False).input_ids
        assert token not in lake_tokenizer.all_special_ids
        assert lake_tokenizer.decode([token], skip_special_tokens=True) == tag
        inside = lake_tokenizer(f"so{tag}x", add_special_tokens=False).input_ids
        assert inside.count(token) == 1


def test_the_vocabulary_stays_within_what_was_asked_for() -> None:
    for vocabulary in (LEAST_VOCABULARY, 300, 512):
        tags = ["<think>", "</think>", "<answer>", "</answer>"]
        assert len(grow_tokenizer(texts_of_play(LAKE, 20), vocabulary, 512, tags)) <= vocabulary


def test_the_auto_classes_give_the_same_ids_and_the_same_logits(seedling_folder: Path) -> None:
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    plain = Tokenizer.from_file(str(seedling_folder / "tokenizer.json"))
    auto = AutoTokenizer.from_pretrained(seedling_folder)
    for text in random_texts(1000) + texts_of_play(LAKE, 5) + texts_of_play(ECHO, 20):
        ids = auto(text, add_special_tokens=False).input_ids
        assert ids == plain.encode(text, add_special_tokens=False).ids
        assert auto.decode(ids) == text
    assert (
        auto(texts_of_play(ECHO, 1)[0]).input_ids == auto(texts_of_play(ECHO, 1)[0], add_special_tokens=False).input_ids
    )
    model = AutoModelForCausalLM.from_pretrained(seedling_folder)
    assert type(model) is LlamaForCausalLM
    ours, tokenizer = load_model(str(seedling_folder), torch.device("cpu"))
    ids = torch.tensor([auto("turns 1 moves 1\necho A not B C D").input_ids])
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, ours(input_ids=ids).logits)
    assert model.generation_config.eos_token_id == Renderer(tokenizer).end_of_turn_id == auto.eos_token_id


def test_a_grown_seedling_answers_in_the_demonstrated_form(seedling_folder: Path) -> None:
    from heedful.policies.hf import HFPolicy
    from heedful.policies.sampling import Sampling

    model, tokenizer = load_model(str(seedling_folder), torch.device("cpu"))
    policy = HFPolicy(model, Renderer(tokenizer), Sampling(greedy=True, tokens_per_turn=24), seed=0)
    groups = LockStep()(policy, Request(ECHO.episode, [ECHO.task(seed) for seed in range(40)], 1, 1))
    turns = [group.trajectories[0].turns[0] for group in groups]
    assert sum(turn.valid and turn.reply.closed and not turn.reply.cut for turn in turns) >= 38
    assert sum(group.trajectories[0].success is True for group in groups) >= 30


def test_one_recipe_gives_the_same_bytes_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = []
    for name in ("one", "other"):
        monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / name))
        torch.rand(5)  # growth may not lean on the global generator
        random.random()
        _, _, path = load()
        contents.append({file.name: file.read_bytes() for file in sorted(path.iterdir())})
    assert "model.safetensors" in contents[0]
    assert contents[0] == contents[1]


def test_growth_leaves_the_global_generators_alone(cache: Path) -> None:
    before, state = torch.get_rng_state(), random.getstate()
    load()
    assert torch.equal(before, torch.get_rng_state())
    assert state == random.getstate()


def test_a_seedling_is_grown_once_and_then_taken_from_the_cache(cache: Path) -> None:
    steps: list[tuple[int, int]] = []
    first, _, path = load(progress=lambda step, total, loss: steps.append((step, total)))
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    again, _, same = load(progress=lambda step, total, loss: steps.append((step, total)))
    assert (len(steps), same) == (4, path)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert path == place()
    for one, other in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_rank_of_another_machine_keeps_a_whole_seedling(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # transformers leaves the weights out where it finds that this is no rank 0.
    monkeypatch.setattr("transformers.distributed.mixin._is_torch_distributed_initialized", lambda: True)
    monkeypatch.setattr("transformers.distributed.mixin._get_torch_distributed_rank", lambda: 1)
    path = load()[2]
    assert (path / "model.safetensors").is_file()


def weights_of(path: Path) -> bytes:
    return (path / "model.safetensors").read_bytes()


def stop_at_2(step: int, steps: int, loss: float) -> None:
    if step == 2:
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_growth_that_a_signal_stops_goes_on_to_the_same_bytes(cache: Path) -> None:
    path = load()[2]
    whole = weights_of(path)
    shutil.rmtree(path)
    with pytest.raises(StoppedBySignal) as stopped:
        load(progress=stop_at_2)
    assert stopped.value.saved == "the seedling is saved after step 2 of 4, and goes on from there"
    assert not path.exists()
    steps: list[int] = []
    load(progress=lambda step, total, loss: steps.append(step))
    assert steps == [3, 4]
    assert weights_of(path) == whole
    assert list((cache / "seedlings").iterdir()) == [path]


def test_a_growth_that_is_killed_goes_on_from_its_last_copy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(step: int, steps: int, loss: float) -> None:
        if step == 3:
            raise ValueError("killed")

    monkeypatch.setattr("heedful.seedlings.fit.SAVED_EVERY", -1.0)
    with pytest.raises(ValueError, match="killed"):
        load(progress=killed)
    steps: list[int] = []
    load(progress=lambda step, total, loss: steps.append(step))
    assert steps == [3, 4]


def test_a_damaged_copy_of_an_unfinished_seedling_is_refused_in_a_sentence(cache: Path) -> None:
    with pytest.raises(StoppedBySignal):
        load(progress=stop_at_2)
    copy = place().with_name(f"{place().name}.unfinished") / "fit.safetensors"
    copy.write_bytes(copy.read_bytes()[:-8])
    with pytest.raises(
        ValueError,
        match=r"^Expected the copy of an unfinished seedling in .* Delete the folder .*\.unfinished to begin",
    ):
        load()


def test_a_second_process_grows_the_same_seedling_and_saves_no_copy(cache: Path) -> None:
    held_by_another = place().with_name(f"{place().name}.unfinished")
    with held(held_by_another):
        path = load()[2]
        assert [file.name for file in held_by_another.iterdir()] == [".lock"]
    assert path.exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_growth_that_fails_before_a_copy_leaves_nothing(cache: Path, error: type[BaseException]) -> None:
    def stop(step: int, steps: int, loss: float) -> None:
        if step == 2:
            raise error

    with pytest.raises(error):
        load(progress=stop)
    assert not list((cache / "seedlings").iterdir())
    assert load()[2].exists()


def test_a_cache_that_cannot_be_written_is_named_before_anything_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "file"))
    steps: list[int] = []
    with pytest.raises(NotADirectoryError):
        load(progress=lambda step, total, loss: steps.append(step))
    assert steps == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interrupted_write_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def half(folder: Path, model: Any, tokenizer: Any) -> None:
        (folder / "config.json").write_text("{")
        raise error

    monkeypatch.setattr(growing, "write_pretrained", half)
    with pytest.raises(DiskFull if isinstance(error, OSError) else KeyboardInterrupt):
        load()
    assert not list((cache / "seedlings").iterdir())


def test_a_seedling_that_another_process_grew_meanwhile_is_taken(cache: Path) -> None:
    def meanwhile(step: int, steps: int, loss: float) -> None:
        if step == steps:
            load()

    assert load(progress=meanwhile)[2].exists()
    assert len(list((cache / "seedlings").iterdir())) == 1


def test_a_damaged_copy_is_named_with_what_to_delete(cache: Path) -> None:
    path = load()[2]
    (path / "model.safetensors").write_bytes(b"half")
    with pytest.raises(ValueError, match=f"Delete the folder {path} to grow the seedling again"):
        load()


CHANGED_RECIPES = [
    replace(TINY, seed=1),
    replace(TINY, steps=5),
    replace(TINY, imperfect=0.31),
    replace(TINY, template=0.1),
    replace(TINY, ffn=40),
    replace(TINY, init=0.06),
]


def test_recipe_environment_tags_and_versions_each_name_another_seedling(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [place(), *map(place, CHANGED_RECIPES)]
    places += [place(env=replace(ECHO, decoys=2)), place(env=LAKE), place(env=replace(LAKE, slip=0.1))]
    places += [place(tags=Tags(open="<thought>")), place(tags=Tags(force=False))]
    monkeypatch.setattr(torch, "__version__", "0.0")
    places.append(place())
    assert len(set(places)) == len(places)
    assert all(path.parent == cache / "seedlings" for path in places)
    assert places[0].name.startswith("echo-")


def test_a_window_names_another_seedling_only_where_it_cuts_an_episode() -> None:
    def lies(context: Context, env: Any = LAKE) -> Path:
        return seedling_path(TINY, env, to_json(env), TAGS, context)

    whole = place(env=LAKE)  # as it was named before there were windows
    assert lies(Context()) == lies(Context(LAKE.turns - 1)) == lies(Context(99)) == whole
    cut = [lies(Context(turns)) for turns in range(LAKE.turns - 1)]
    assert len({whole, *cut}) == LAKE.turns
    assert lies(Context(0), ECHO) == place(env=ECHO)  # one turn: nothing to forget


def test_how_thoughts_are_written_names_another_seedling_only_in_english() -> None:
    earlier = {knob: value for knob, value in to_json(LAKE).items() if knob != "thoughts"}
    assert seedling_path(TINY, LAKE, earlier, TAGS) == place(env=LAKE)  # as it was named before there was this knob
    assert place(env=replace(LAKE, thoughts="english")) != place(env=LAKE)


def test_the_cache_follows_the_environment_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HEEDFUL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "heedful"
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "own"))
    assert cache_root() == tmp_path / "own"


def test_a_demonstration_is_encoded_as_the_sampler_would_have_left_it(lake_tokenizer: Any) -> None:
    renderer = Renderer(lake_tokenizer)
    pairs = LAKE.demonstrate(LAKE.task(2), random.Random(0))
    sample = encode(pairs, renderer)
    assert lake_tokenizer.decode(list(sample.ids)) == "".join(
        f"<|user|>{seen}<|assistant|>{reply}<|end|>" for seen, reply in pairs
    )
    trained = [token for token, flag in zip(sample.ids, sample.trained, strict=True) if flag]
    assert lake_tokenizer.decode(trained) == "".join(f"{reply.removeprefix('<think>')}<|end|>" for _, reply in pairs)


@pytest.mark.parametrize("turns", [0, 1, 2, 4])
def test_a_demonstration_in_windows_trains_the_same_tokens_behind_what_each_window_shows(
    lake_tokenizer: Any, turns: int
) -> None:
    renderer = Renderer(lake_tokenizer)
    task = next(task for task in map(LAKE.task, range(99)) if len(LAKE.demonstrate(task, random.Random(0))) > 3)
    pairs = LAKE.demonstrate(task, random.Random(0))
    rows = encode_replayed(LAKE, task, pairs, renderer, Context(turns))
    whole = encode(pairs, renderer)
    trained = [[token for token, flag in zip(row.ids, row.trained, strict=True) if flag] for row in (*rows, whole)]
    assert [token for row in trained[:-1] for token in row] == trained[-1]
    shown = [f"<|user|>{seen}<|assistant|>{reply}<|end|>" for seen, reply in pairs]  # brief: openings as they stand
    starts = [0, *range(1, len(pairs) - turns)]
    expected = ["".join(shown[start : start + turns + 1]) for start in starts]
    assert [lake_tokenizer.decode(list(row.ids)) for row in rows] == expected


def test_a_demonstration_that_cannot_be_replayed_is_refused_in_windows(lake_tokenizer: Any) -> None:
    renderer = Renderer(lake_tokenizer)
    pairs = LAKE.demonstrate(LAKE.task(2), random.Random(0))
    other = [("turns 5 moves 2\nanother lake", pairs[0][1]), *pairs[1:]]
    with pytest.raises(ValueError, match=r"replays its demonstration of task frozen_lake-\w+, played as member 0"):
        encode_replayed(LAKE, LAKE.task(2), other, renderer, Context(0))
    with pytest.raises(ValueError, match="shows 'the end: solved'"):
        encode_replayed(LAKE, LAKE.task(2), [*pairs, pairs[-1]], renderer, Context(0))


@pytest.mark.parametrize(("recipe", "deviation"), [(TINY, 0.02), (replace(TINY, init=0.06), 0.06)])
def test_the_initial_weights_have_the_deviation_that_the_recipe_names(
    lake_tokenizer: Any, recipe: Seedling, deviation: float
) -> None:
    model = growing._initial_model(recipe, lake_tokenizer, Renderer(lake_tokenizer))
    weights = torch.cat([weight.flatten() for weight in model.parameters() if weight.dim() == 2])
    assert weights.std().item() == pytest.approx(deviation, rel=0.05)


def test_an_environment_that_cannot_demonstrate_is_told_so(cache: Path) -> None:
    class Silent:
        name = "silent"
        turns = 1

    with pytest.raises(ValueError, match=r"a method `demonstrate` .* found Silent without.*--model PATH"):
        growing.grow(TINY, Silent(), TAGS, silent)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"hidden": 30, "heads": 4}, r"hidden \(30\) must be a multiple of heads \(4\)"),
        ({"heads": 4, "kv_heads": 3}, r"heads a multiple of kv_heads \(3\)"),
    ],
)
def test_impossible_recipes_are_refused(knobs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        replace(Seedling(), **knobs)
