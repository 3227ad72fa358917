"""What several processes hold comes together in order; one is left alone; a process that fails is named."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import world_worker  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from heedful.training.ranks import world as distributed  # noqa: E402
from heedful.training.ranks.parallel import ProcessRank  # noqa: E402
from heedful.training.ranks.world import Joined, World, local_device, shares_by_tokens  # noqa: E402
from processes import found_in_two  # noqa: E402

Found = dict[str, Any]
FOUR = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    """What each of two processes finds."""
    return found_in_two(world_worker.__file__, tmp_path_factory.mktemp("world"))


def test_one_process_is_given_back_what_it_puts_in() -> None:
    world = World()
    tensor = torch.zeros(2, requires_grad=True)
    tensor.grad = torch.ones(2)
    world.sum_gradients([tensor])
    world.broadcast_weights(torch.nn.Linear(1, 1))
    with world.local_rank_0_first(), Joined(ProcessRank(), torch.device("cpu")) as joined:
        assert joined.size == 1
    assert (world.scatter("abc"), world.merge(["a"]), world.gather(7), world.broadcast("x")) == (
        list("abc"),
        ["a"],
        [7],
        "x",
    )
    assert world.sum([0.5, 2.0]) == [0.5, 2.0]
    assert tensor.grad.tolist() == [1, 1]
    assert world.is_rank_0
    assert not torch.distributed.is_initialized()


def test_the_place_is_read_from_what_torchrun_sets() -> None:
    assert ProcessRank.of({}) == ProcessRank.of({"RANK": "0", "WORLD_SIZE": "1"}) == ProcessRank(0, 1, 0)
    assert ProcessRank.of(FOUR) == ProcessRank(rank=3, size=4, local_rank=1)
    impossible = [{"RANK": "0", "WORLD_SIZE": "2"}, FOUR | {"WORLD_SIZE": "four"}, FOUR | {"MASTER_PORT": "99999"}]
    impossible += [FOUR | wrong for wrong in ({"RANK": "4"}, {"RANK": "-1"}, {"LOCAL_RANK": "-1"}, {"WORLD_SIZE": "0"})]
    for variables in impossible:
        with pytest.raises(ValueError, match=r"as torchrun sets them, .* found RANK='.*: start several processes with"):
            ProcessRank.of(variables)


def test_each_process_of_a_machine_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert local_device(cuda, ProcessRank()) == cuda
    assert local_device(cuda, ProcessRank(3, 4, 1)) == torch.device("cuda", 1)
    assert local_device(cpu, ProcessRank(3, 4, 3)) == cpu
    with pytest.raises(ValueError, match=r"found 2 for process number 2 .* --nproc-per-node 2"):
        local_device(cuda, ProcessRank(2, 4, 2))
    with pytest.raises(ValueError, match="mps takes one process"):
        local_device(torch.device("mps"), ProcessRank(0, 2, 0))


def test_the_longest_sequence_goes_to_who_has_fewest_tokens() -> None:
    # Sorted: 9, 7, 6, 5, 1. First takes 9; second 7, then 6 (7 < 9); first 5 (9 < 13); second 1 (13 < 14).
    assert shares_by_tokens([5, 9, 1, 7, 6], 2) == [[1, 0], [3, 4, 2]]
    assert shares_by_tokens([4], 3) == [[0], [], []]
    assert shares_by_tokens([2, 2, 2], 1) == [[0, 1, 2]]


@given(st.lists(st.integers(1, 500), max_size=60), st.integers(1, 8))
def test_every_sequence_has_one_process_and_none_has_a_sequence_more_than_another(
    lengths: list[int], size: int
) -> None:
    shares = shares_by_tokens(lengths, size)
    assert sorted(index for share in shares for index in share) == list(range(len(lengths)))
    tokens = [sum(lengths[index] for index in share) for share in shares]
    assert max(tokens) - min(tokens) <= max(lengths, default=0)


def test_gradients_are_summed_in_pieces_of_one_dtype_and_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "BUCKET_BYTES", 24)
    tensors = [torch.zeros(n, dtype=dtype) for n, dtype in [(2, torch.float32), (4, torch.float32), (1, torch.float32)]]
    tensors += [torch.zeros(2, dtype=torch.bfloat16), torch.zeros(100)]
    assert [[t.numel() for t in bucket] for bucket in distributed._buckets(tensors)] == [[2, 4], [1], [2], [100]]
    assert list(distributed._buckets([])) == []


def test_shares_are_united_in_the_order_of_the_items(two: list[Found]) -> None:
    first, second = (found["together"] for found in two)
    assert (first["shares"], second["shares"]) == (["a", "c", "e"], ["b", "d"])
    for found in (first, second):
        assert found["united"] == ["aa", "bb", "cc", "dd", "ee"]
        assert found["of one"] == ["only the first has one"]
        assert found["ranks"] == [0, 1]
        assert found["first"] == "rank 0"
        assert found["sums"] == [0.2, 0.0]


def test_gradients_are_summed_and_what_no_process_has_stays_missing(two: list[Found]) -> None:
    for found in two:
        assert found["together"]["gradients"] == [[3, 3, 3], [0, 1, 2], None, [2, 2]]


def test_all_start_from_the_weights_of_the_first(two: list[Found]) -> None:
    torch.manual_seed(0)
    expected = torch.nn.Linear(2, 2).weight
    for found in two:
        assert torch.equal(found["together"]["weights"], expected)


def test_the_others_wait_until_the_first_of_the_machine_is_through(two: list[Found]) -> None:
    (_, first_left), (second_entered, _) = (found["together"]["entered and left"] for found in two)
    assert second_entered >= first_left  # one clock for all processes of a machine


@pytest.mark.parametrize(
    ("fault", "who", "sentence"),
    [
        ("second_raises", 1, "Process 1 of 2 has failed: ValueError: the environment is out of ice"),
        ("first_raises", 0, "Process 0 of 2 has"),
        ("second_is_late", 1, "Process 1 of 2 did not come: killed, or busy for longer than --parallel.timeout"),
    ],
)
def test_a_process_that_fails_or_stays_away_is_named_by_the_others(
    two: list[Found], fault: str, who: int, sentence: str
) -> None:
    own, seconds_own, _ = two[who][fault]
    told, seconds, _ = two[1 - who][fault]
    assert told.startswith("ProcessLost: ")
    assert sentence in told
    assert own.startswith("ProcessLost: " if fault == "second_is_late" else "ValueError: ")
    assert max(seconds, seconds_own) < 300  # not the 900 that it may take


def test_a_process_that_vanishes_in_the_middle_of_a_meeting_is_named(two: list[Found]) -> None:
    told, seconds, standing = two[0]["second_vanishes"]
    assert told.startswith(
        "ProcessLost: Process 1 of 2 did not come: killed, or busy for longer than --parallel.timeout."
    )
    assert "gloo" not in told  # nor a place in another project's source
    assert seconds < 300
    assert not standing


def test_nothing_is_left_standing(two: list[Found]) -> None:
    for found in two:
        assert not found["left standing"]
        assert not any(found[fault.__name__][2] for fault in world_worker.FAULTS)
