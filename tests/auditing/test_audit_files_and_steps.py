"""Reading files lazily and gathering steps: sentences for what is no log, bounds on memory, late episodes."""

import gzip
import json
import os
import pickle
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import foreign_logs as logs
import pyarrow
import pyarrow.parquet
import pytest

from heedful.auditing import steps as steps_module
from heedful.auditing.logs import files as files_module
from heedful.auditing.logs.conversations import text_turn
from heedful.auditing.logs.files import find_files, rows_of
from heedful.auditing.logs.records import FAULTS_KEPT, Faults, Location, LoggedEpisode
from heedful.auditing.readers.reader import prompt_task, text_trajectory
from heedful.auditing.steps import Joined, StepStream, steps_of
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags


def episode(step: int, line: int, prompt: str = "go", reply: str = "ok") -> LoggedEpisode:
    task = prompt_task(prompt)
    turn = text_turn(prompt, reply, ThoughtTags(), {"score": 1.0})
    return LoggedEpisode(
        Location(Path("log.jsonl"), line), step, task.id, task, text_trajectory(task, (turn,), True, None, 1.0)
    )


def refusal(path: Path) -> str:
    with pytest.raises(ValueError, match=r"^Expected") as error:
        find_files(path)
    return str(error.value)


def test_what_is_no_log_is_refused_with_a_sentence(tmp_path: Path) -> None:
    assert "found nothing there" in refusal(tmp_path / "absent.jsonl")
    assert "found a pipe, a socket or a device" in refusal(Path("/dev/null"))
    (tmp_path / "empty.jsonl").touch()
    assert refusal(tmp_path / "empty.jsonl").endswith("found an empty file.")
    (tmp_path / "noise.jsonl").write_bytes(bytes(range(256)))
    assert "binary data" in refusal(tmp_path / "noise.jsonl")
    (tmp_path / "packed.jsonl").write_bytes(gzip.compress(b"{}"))
    assert "packed with gzip. Unpack it first" in refusal(tmp_path / "packed.jsonl")
    (tmp_path / "array.json").write_text(json.dumps([{"a": 1}]))
    assert "found a JSON array" in refusal(tmp_path / "array.json")
    whole = logs.write_parquet(tmp_path / "a.parquet", logs.trl_rows(1)).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    assert "cut off or damaged" in refusal(tmp_path / "cut.parquet")


def test_a_parquet_file_with_a_column_whose_name_is_no_text_is_damaged(tmp_path: Path) -> None:
    file = logs.write_parquet(tmp_path / "a.parquet", logs.trl_rows(1))
    file.write_bytes(file.read_bytes().replace(b"prompt", b"\xe8rompt", 1))
    assert f"a whole parquet file at {file}, found one that is cut off or damaged" in refusal(file)


def test_a_pickle_is_refused_by_its_name_or_its_first_bytes_and_never_opened(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (ran,)

    for name in ("rollouts.pkl", "rollouts.pickle", "rollouts.pt", "rollouts.jsonl"):
        path = tmp_path / name
        path.write_bytes(pickle.dumps(Trap()))
        assert "opening a pickle can run code. Export it as JSON lines or parquet" in refusal(path)
    assert "opening a pickle can run code" in refusal(_folder_with(tmp_path / "only", "val_rollouts.pkl"))
    assert not ran.exists()


def _folder_with(folder: Path, name: str) -> Path:
    folder.mkdir()
    (folder / name).write_bytes(b"\x80\x04N.")
    return folder


def test_an_empty_folder_is_refused_and_a_damaged_file_beside_good_ones_is_not(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("hello")
    (tmp_path / "heedful-watch").mkdir()
    told = f"Expected logs (.jsonl, .ndjson, .json, .parquet) in {tmp_path}, found readme.txt. Name the file"
    assert told in refusal(tmp_path)
    logs.verl_log(tmp_path)
    (tmp_path / "11.jsonl").touch()
    found = find_files(tmp_path)
    assert [file.name for file in found.files] == ["1.jsonl", "2.jsonl", "10.jsonl"]
    assert [(file.name, sentence.endswith("an empty file.")) for file, sentence in found.refused] == [
        ("11.jsonl", True)
    ]
    assert found.aside == ("readme.txt",)


def test_links_to_nothing_and_pipes_among_logs_are_told(tmp_path: Path) -> None:
    logs.verl_log(tmp_path)
    (tmp_path / "11.jsonl").symlink_to("gone.jsonl")
    (tmp_path / "12.jsonl").symlink_to("12.jsonl")
    os.mkfifo(tmp_path / "13.jsonl")
    found = find_files(tmp_path)
    assert len(found.files) == 3
    assert [file.name for file, _ in found.refused] == ["11.jsonl", "12.jsonl", "13.jsonl"]


def test_evaluations_of_a_run_are_not_its_training_rollouts(tmp_path: Path) -> None:
    rows = [{"reply_text": "a", "new_prompt_text": "b"}]
    for name in ("step_000001.parquet", "step_000000_val_greedy.parquet"):
        logs.write_parquet(tmp_path / "rollouts" / name, rows)
    assert [file.name for file in find_files(tmp_path).files] == ["step_000001.parquet"]


def test_lines_that_are_no_json_objects_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    deep = b"[" * 100_000
    path.write_bytes(b'{"a": 1}\n\n[2]\n{"b": \xff}\nnonsense\n' + deep + b'\n{"c": 3}\n{"d": 4')
    faults, read = Faults(), []
    rows = list(rows_of(path, faults, read.append))
    assert [(place.line, row) for place, row in rows] == [(1, {"a": 1}), (7, {"c": 3})]
    assert [fault.place.line for fault in faults.kept] == [3, 4, 5, 6, 8]
    assert "found a list" in str(faults.kept[0])
    assert "no UTF-8 text" in str(faults.kept[1])
    assert "cut off here" in str(faults.kept[4])
    assert sum(read) == path.stat().st_size


def test_a_line_that_is_too_long_is_passed_over_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "LONGEST_LINE", 2**20)
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"a": "x" * 2**22}) + '\n{"b": 1}\n')
    faults = Faults()
    assert [row for _, row in rows_of(path, faults, lambda more: None)] == [{"b": 1}]
    assert "a line of at most 1 MiB, found a longer one" in str(faults.kept[0])


def test_only_so_many_faults_are_described_but_all_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("nonsense\n" * 1000)
    faults = Faults()
    assert list(rows_of(path, faults, lambda more: None)) == []
    assert (faults.count, len(faults.kept)) == (1000, FAULTS_KEPT)


def test_a_long_log_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path, steps = tmp_path / "log.jsonl", 120
    with path.open("w") as stream:
        for step in range(steps):
            stream.writelines(json.dumps({"step": step, "reply": "x" * 5000}) + "\n" for _ in range(20))
    faults, most = Faults(), 0

    def episodes() -> Iterator[LoggedEpisode]:
        for place, row in rows_of(path, faults, lambda more: None):
            yield episode(row["step"], place.line, reply=row["reply"])

    tracemalloc.start()
    try:
        seen = [step.episodes for step in steps_of(episodes(), faults)]
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == [20] * steps
    whole = path.stat().st_size
    assert whole > 12e6
    assert most < whole / 4


def test_a_parquet_file_of_one_large_row_group_is_read_in_bounded_memory(tmp_path: Path) -> None:
    rng = random.Random(0)
    texts = [rng.randbytes(600).hex() for _ in range(20_000)]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"prompt": texts}), path, compression="none", use_dictionary=False)
    assert pyarrow.parquet.ParquetFile(path).num_row_groups == 1
    before, most, rows = pyarrow.total_allocated_bytes(), 0, 0
    read: list[int] = []
    for _ in rows_of(path, Faults(), read.append):
        rows += 1
        most = max(most, pyarrow.total_allocated_bytes() - before)
    assert rows == len(texts)
    assert sum(read) == path.stat().st_size > 20e6
    assert most < 5e6


def test_nothing_is_read_before_it_is_asked_for() -> None:
    asked = []

    def endless() -> Iterator[LoggedEpisode]:
        line = 0
        while True:
            line += 1
            asked.append(line)
            yield episode(line // 10, line)

    stream = steps_of(endless(), Faults())
    assert next(stream).number == 0
    assert len(asked) <= 10 * (steps_module.STEPS_HELD + 2)


def test_interleaved_steps_are_joined_within_a_bound_and_late_episodes_are_counted() -> None:
    held = steps_module.STEPS_HELD
    order = [0, 1, 0, 1, *range(2, held + 3), 0, held + 2]
    faults = Faults()
    stream = StepStream(faults)
    closed = [stream.add(episode(step, line)) for line, step in enumerate(order, start=1)]
    found = {step.number: step.episodes for step in (*closed, *stream.close()) if step}
    assert found == {0: 2, 1: 2, **dict.fromkeys(range(2, held + 2), 1), held + 2: 2}
    assert stream.interleaved == 1
    assert faults.count == 1
    assert "after step 0 was measured: sort the log by step" in str(faults.kept[0])


def test_steps_are_handed_on_in_their_order_as_far_as_they_are_held() -> None:
    held = steps_module.STEPS_HELD
    first = [2, 0, 1]
    order = [*first, *range(3, held + 6)]
    steps = steps_of([episode(step, line) for line, step in enumerate(order, start=1)], Faults())
    assert [step.number for step in steps] == sorted(order)


def test_consecutive_steps_are_read_as_one_and_a_repeated_step_counts_once() -> None:
    replies = ["a", "b", "b", "c", "d", "e"]
    episodes = [episode(number, number, f"go {reply}", reply) for number, reply in enumerate(replies)]

    def read(count: int) -> list[tuple[int, list[str]]]:
        join = Joined(count)
        steps = [*map(join.add, steps_of(episodes, Faults())), join.rest()]
        return [
            (step.number, [group.trajectories[0].turns[0].reply.text for group in step.groups])
            for step in steps
            if step
        ]

    assert read(1) == [(number, [reply]) for number, reply in enumerate(replies)]
    assert read(2) == [(0, ["a", "b"]), (3, ["c", "d"]), (5, ["e"])]
    assert read(9) == [(0, ["a", "b", "c", "d", "e"])]


def test_members_are_numbered_where_the_log_does_not() -> None:
    (step,) = steps_of([episode(0, line) for line in (1, 2, 3)], Faults())
    assert [member.member for member in step.groups[0].trajectories] == [0, 1, 2]


def test_a_step_knows_whether_it_says_the_same_as_another() -> None:
    first, second, third, fourth = steps_of(
        [
            episode(0, 1, reply="a"),
            episode(1, 2, reply="a"),
            episode(2, 3, reply="b"),
            episode(3, 4, prompt="stay", reply="b"),
        ],
        Faults(),
    )
    assert first.fingerprint == second.fingerprint != third.fingerprint
    assert third.fingerprint != fourth.fingerprint, "one answer to two prompts is no step that was logged twice"
