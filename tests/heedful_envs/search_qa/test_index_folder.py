"""Indexes on the disk: the results of the one in memory, after every build, and no half index that opens."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful_envs import bm25
from heedful_envs.search_qa.passages import Passage, build_index, find_index, index_of, open_index
from patience import PATIENCE

DIGEST = "ab" * 32


def drawn(count: int = 600) -> list[Passage]:
    rng = random.Random(7)
    words = [f"w{int(rng.paretovariate(0.8))}" for _ in range(3000)]
    return [
        Passage(f"p{place}", " ".join(rng.choices(words, k=2)), " ".join(rng.choices(words, k=rng.randint(4, 50))))
        for place in range(count)
    ]


def queries(count: int) -> list[str]:
    rng = random.Random(8)
    return [" ".join(f"w{int(rng.paretovariate(0.8))}" for _ in range(rng.randint(1, 6))) for _ in range(count)]


def results(index, most: int = 5, count: int = 60) -> list[list[tuple[str, float]]]:
    found = [index.scored(query, most) for query in queries(count)]
    return [[(passage.id, round(score, 9)) for passage, score in row] for row in found]


@pytest.mark.parametrize("block", [50_000, 250])
def test_an_index_on_the_disk_gives_the_results_of_the_one_in_memory(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = index_of(drawn())
    monkeypatch.setattr(bm25, "_BLOCK", block)
    index = open_index(build_index("drawn.jsonl", DIGEST, iter(drawn()), tmp_path))
    assert len(index) == 600
    assert results(index) == results(wanted)
    assert results(index, 700, 3) == results(wanted, 700, 3)
    assert index.search('title:"x AND (', 3) == index.search("\ud800", 3) == []


def test_another_process_and_another_build_find_the_same(tmp_path: Path) -> None:
    folder, other = (build_index("drawn.jsonl", DIGEST, iter(drawn()), tmp_path / name) for name in "ab")
    assert folder.name == other.name == "abababababababab-v2"
    program = (
        "import sys, pathlib; from heedful_envs.search_qa.passages import open_index; "
        "print([(e.id, s) for e, s in open_index(pathlib.Path(sys.argv[1])).scored('w1 w2 w30', 9)])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    found = open_index(other).scored("w1 w2 w30", 9)
    assert ended.stdout.strip() == str([(passage.id, score) for passage, score in found])


def test_equal_scores_are_in_the_order_of_the_corpus_however_many_there_are(tmp_path: Path) -> None:
    index = open_index(
        build_index("drawn.jsonl", DIGEST, (Passage(str(place), "fox", "hen") for place in range(300)), tmp_path)
    )
    assert [each.id for each in index.search("hen", 4)] == ["0", "1", "2", "3"]


def test_passages_without_any_term_are_an_index_that_finds_nothing(tmp_path: Path) -> None:
    index = open_index(build_index("drawn.jsonl", DIGEST, iter([Passage("1", "", "?!")]), tmp_path))
    assert (len(index), index.search("fox", 3)) == (1, [])


def broken(count: int) -> Iterator[Passage]:
    yield from drawn(count)
    raise KeyboardInterrupt


def test_an_interrupted_build_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build_index("drawn.jsonl", DIGEST, broken(50), tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="Expected the folder of an index at"):
        find_index(tmp_path)


def test_an_index_that_is_there_is_not_built_again(tmp_path: Path) -> None:
    first = build_index("drawn.jsonl", DIGEST, iter(drawn(20)), tmp_path)
    assert build_index("drawn.jsonl", DIGEST, broken(0), tmp_path) == first


def summarise(folder: Path, **changes: object) -> None:
    summary = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps(summary | changes))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda folder: summarise(folder, version=1), "expected an index of version 2, found another"),
        (lambda folder: (folder / "index.json").unlink(), "Expected the folder of an index at"),
    ],
)
def test_a_folder_that_is_no_whole_index_is_refused_with_a_sentence(damage, sentence: str, tmp_path: Path) -> None:
    folder = build_index("drawn.jsonl", DIGEST, iter(drawn(20)), tmp_path)
    damage(folder)
    with pytest.raises(ValueError, match=sentence):
        open_index(tmp_path)


def test_files_that_are_removed_under_an_open_index_are_still_read(tmp_path: Path) -> None:
    folder = build_index("drawn.jsonl", DIGEST, iter(drawn(20)), tmp_path)
    index = open_index(folder)
    for file in folder.iterdir():
        file.unlink()
    assert results(index) == results(index_of(drawn(20)))


def test_a_corpus_without_passages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Expected passages in drawn.jsonl, found none"):
        build_index("drawn.jsonl", DIGEST, iter([]), tmp_path)


def test_several_indexes_in_one_folder_have_to_be_named(tmp_path: Path) -> None:
    for digest in ("ab", "cd"):
        build_index("x", digest * 32, iter(drawn(20)), tmp_path)
    with pytest.raises(ValueError, match="found 2 of them"):
        open_index(tmp_path)
