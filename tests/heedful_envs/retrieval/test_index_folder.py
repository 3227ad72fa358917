"""Indexes on the disk: equal results by both engines and after every build, and no half index that opens."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from heedful.boundary.system_errors import sentence_of
from heedful_envs.search_qa import index_command
from heedful_envs.search_qa.retrieval import Passage, SmallIndex
from heedful_envs.search_qa.retrieval import folder as folders
from heedful_envs.search_qa.retrieval.folder import Source, build, find_index, open_index
from heedful_envs.search_qa.retrieval.large import write_large
from patience import PATIENCE

HAS_TANTIVY = importlib.util.find_spec("tantivy") is not None
ENGINES = ["numpy", pytest.param("tantivy", marks=pytest.mark.skipif(not HAS_TANTIVY, reason="tantivy is absent"))]
SOURCE = Source("drawn.jsonl", "ab" * 32)


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
    found = [index.search(query, most) for query in queries(count)]
    return [[(each.passage.id, round(each.score, 9)) for each in row] for row in found]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_index_on_the_disk_gives_the_results_of_the_one_in_memory(engine, tmp_path: Path) -> None:
    index = open_index(build(SOURCE, iter(drawn()), tmp_path, engine))
    assert len(index) == 600
    assert results(index) == results(SmallIndex(drawn()))
    assert results(index, 700, 3) == results(SmallIndex(drawn()), 700, 3)
    assert index.search('title:"x AND (', 3) == index.search("\ud800", 3) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_second_build_gives_the_same_results_and_the_same_name(engine, tmp_path: Path) -> None:
    first, second = (build(SOURCE, iter(drawn()), tmp_path / name, engine) for name in "ab")
    assert first.name == second.name == f"abababababababab-v1-{engine}"
    assert results(open_index(first)) == results(open_index(second))


@pytest.mark.parametrize("engine", ENGINES)
def test_another_process_finds_the_same(engine, tmp_path: Path) -> None:
    folder = build(SOURCE, iter(drawn()), tmp_path, engine)
    program = (
        "import sys, pathlib; from heedful_envs.search_qa.retrieval.folder import open_index; "
        "print([(e.passage.id, e.score) for e in open_index(pathlib.Path(sys.argv[1])).search('w1 w2 w30', 9)])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    found = open_index(folder).search("w1 w2 w30", 9)
    assert ended.stdout.strip() == str([(each.passage.id, each.score) for each in found])


@pytest.mark.parametrize("engine", ENGINES)
def test_equal_scores_are_in_the_order_of_the_corpus_however_many_there_are(engine, tmp_path: Path) -> None:
    same = (Passage(str(place), "fox", "hen") for place in range(300))
    index = open_index(build(SOURCE, same, tmp_path, engine))
    assert [each.passage.id for each in index.search("hen", 4)] == ["0", "1", "2", "3"]


def broken(count: int) -> Iterator[Passage]:
    yield from drawn(count)
    raise KeyboardInterrupt


@pytest.mark.parametrize("engine", ENGINES)
def test_an_interrupted_build_leaves_nothing(engine, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(SOURCE, broken(50), tmp_path, engine)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="Expected the folder of an index at"):
        find_index(tmp_path)


def test_what_a_killed_build_left_is_removed_and_a_running_one_is_not(tmp_path: Path) -> None:
    import fcntl

    name = SOURCE.folder("numpy")
    killed, running = tmp_path / f".{name}.killed", tmp_path / f".{name}.running"
    for part in (killed, running):
        part.mkdir()
        (part / "passages.jsonl").write_text("half")
    with (running / "building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build(SOURCE, iter(drawn(20)), tmp_path, "numpy")
        assert not killed.exists()
        assert running.exists()
    assert find_index(tmp_path).name == name


def summarise(folder: Path, **changes: object) -> None:
    summary = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps(summary | changes))


def fill(folder: Path, name: str) -> None:
    """Put other bytes into a file, as many as before."""
    (folder / name).write_bytes(b"\xff" * (folder / name).stat().st_size)


def test_an_index_that_is_there_is_not_built_again(tmp_path: Path) -> None:
    first = build(SOURCE, iter(drawn(20)), tmp_path, "numpy")
    assert build(SOURCE, broken(0), tmp_path, "numpy") == first


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            lambda folder: (folder / "passages.jsonl").write_text("{}"),
            r"expected .* bytes, but it has 2",
        ),
        (lambda folder: (folder / "rows.u32").unlink(), "rows.u32: expected .* bytes, but it is missing"),
        (lambda folder: (folder / "index.json").write_text("{}"), "expected the summary of an index of heedful"),
        (lambda folder: (folder / "index.json").unlink(), "Expected the folder of an index at"),
        (lambda folder: (folder / "index.json").write_text("{"), "index.json: expected the summary of an index, found"),
        (lambda folder: summarise(folder, files={"rows.u32": []}), "index.json: expected files, passages, corpus"),
        (lambda folder: summarise(folder, checksums=3), "index.json: expected files, passages, corpus"),
        (lambda folder: summarise(folder, checksums={"/dev/zero": 3}), "index.json: expected files, passages, corpus"),
        (lambda folder: summarise(folder, files=None), "index.json: expected files, passages, corpus and mean_terms"),
        (lambda folder: summarise(folder, passages="20"), "index.json: expected files, passages, corpus"),
        (lambda folder: summarise(folder, corpus="name"), "index.json: expected files, passages, corpus"),
        (
            lambda folder: fill(folder, "rows.u32"),
            "expected the places and weights of 20 passages, found other numbers",
        ),
        (lambda folder: fill(folder, "weights.f64"), "expected the places and weights of 20 passages"),
        (lambda folder: fill(folder, "terms.txt"), "expected the terms and numbers that were written, found others"),
        (lambda folder: fill(folder, "starts.i64"), "expected the places and weights of 20 passages"),
        (lambda folder: fill(folder, "term_places.u64"), "expected in term_places.u64 where the terms of terms.txt"),
    ],
)
def test_a_damaged_index_is_refused_with_a_sentence(damage, sentence: str, tmp_path: Path) -> None:
    folder = build(SOURCE, iter(drawn(20)), tmp_path, "numpy")
    damage(folder)
    with pytest.raises(ValueError, match=sentence):
        open_index(folder)
    with pytest.raises(ValueError, match=f"Remove the folder {folder}, and build the index again"):
        build(SOURCE, iter(drawn(20)), tmp_path, "numpy")


@pytest.mark.parametrize("name", ["places.u64", "passages.jsonl"])
def test_a_passage_that_is_damaged_is_named(name: str, tmp_path: Path) -> None:
    folder = build(SOURCE, iter(drawn(20)), tmp_path, "numpy")
    fill(folder, name)
    with pytest.raises(ValueError, match=r"expected passage \d+ in .*passages.jsonl, found something else"):
        open_index(folder).search("w1 w2 w30", 9)
    with pytest.raises(ValueError, match=f"Remove the folder {folder}, and build the index again"):
        open_index(folder).search("w1 w2 w30", 9)


EMPTIED = """
import sys
from pathlib import Path
from heedful_envs.search_qa.retrieval.folder import open_index
folder = Path(sys.argv[1])
index = open_index(folder)
assert index.search("w1 w2 w30", 9)
for path in folder.rglob("*"):
    if path.is_file() and path.name != "index.json" and path.suffix != ".lock":
        path.write_bytes(b"")
try:
    index.search("w1 w2 w30", 9)
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_files_that_become_shorter_under_an_open_index_are_told(engine, tmp_path: Path) -> None:
    # In a process of its own, which would be killed by SIGBUS.
    folder = build(SOURCE, iter(drawn(100)), tmp_path, engine)
    done = subprocess.run([sys.executable, "-c", EMPTIED, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"expected [\d,]+ bytes in \S+, as when it was opened, found 0\. Remove the folder", done.stdout)


def test_files_that_are_removed_under_an_open_index_are_still_read(tmp_path: Path) -> None:
    folder = build(SOURCE, iter(drawn(100)), tmp_path, "numpy")
    index = open_index(folder)
    found = index.search("w1 w2 w30", 9)
    for path in folder.iterdir():
        path.unlink()
    assert index.search("w1 w2 w30", 9) == found


def test_an_index_of_tantivy_without_its_lengths_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("tantivy")
    folder = build(SOURCE, iter(drawn(20)), tmp_path, "tantivy")
    summarise(folder, mean_terms={"title": 3})
    with pytest.raises(ValueError, match="expected files, passages, corpus and mean_terms"):
        open_index(folder)
    summarise(folder, mean_terms={"title": 3, "text": 3})
    (folder / "tantivy" / "meta.json").write_bytes(b"")
    summarise(folder, files={})
    with pytest.raises(ValueError, match=r"Remove the folder .* and build the index again"):
        open_index(folder)


def test_a_large_index_is_opened_without_reading_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "CHECKED", 10)
    folder = build(SOURCE, iter(drawn(20)), tmp_path, "numpy")
    assert json.loads((folder / "index.json").read_text())["checksums"] == {}
    assert open_index(folder).search("w1", 1)


def test_a_corpus_that_changes_while_it_is_read_leaves_no_index(tmp_path: Path, monkeypatch) -> None:
    corpus, out = tmp_path / "c.jsonl", tmp_path / "out"
    corpus.write_text('{"text": "one"}\n')

    def read_and_write(path: Path, skip_faulty: bool):
        yield Passage("1", "", "one")
        corpus.write_text('{"text": "another one"}\n')

    monkeypatch.setattr(index_command, "passages_of", read_and_write)
    with pytest.raises(ValueError, match="found that it changed while it was read"):
        index_command.index_file(corpus, out, "numpy")
    assert list(out.iterdir()) == []


def test_an_index_of_another_version_is_refused(tmp_path: Path) -> None:
    folder = build(SOURCE, iter(drawn(20)), tmp_path, "numpy")
    summary = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps(summary | {"version": 99}))
    with pytest.raises(ValueError, match="expected an index of version 1, found version 99"):
        open_index(folder)


def test_too_many_passages_for_numpy_are_refused_and_none_are_too(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(folders, "MOST_PASSAGES", 10)
    with pytest.raises(ValueError, match="takes at most 10 passages, and there are more"):
        build(SOURCE, iter(drawn(11)), tmp_path, "numpy")
    with pytest.raises(ValueError, match=r"Expected passages in drawn\.jsonl, found none"):
        build(SOURCE, iter(()), tmp_path, "numpy")
    assert list(tmp_path.iterdir()) == []


def test_several_indexes_in_one_folder_have_to_be_named(tmp_path: Path) -> None:
    for digest in ("1" * 64, "2" * 64):
        build(Source("x", digest), iter(drawn(5)), tmp_path, "numpy")
    with pytest.raises(ValueError, match="found 2 of them: 1111111111111111-v1-numpy, 2222222222222222-v1-numpy"):
        find_index(tmp_path)


def test_files_of_tantivy_over_which_it_panics_are_refused_in_a_sentence(tmp_path: Path) -> None:
    """A panic of Rust is no Exception: nobody would catch it."""
    pytest.importorskip("tantivy")
    folder = build(SOURCE, iter(drawn(20)), tmp_path, "tantivy")
    (fast,) = (folder / "tantivy").glob("*.fast")
    held = bytearray(fast.read_bytes())
    footer = held.index(b'{"version"')
    held[footer - 20] = 0xFF  # a length
    fast.write_bytes(held)
    with pytest.raises(ValueError, match=r"numbers that were written, found others\. Remove the folder"):
        open_index(folder)
    summarise(folder, checksums={})  # as in a large index
    with pytest.raises(ValueError, match=r"assertion failed.*Remove the folder .* and build the index again"):
        open_index(folder)


def test_a_passage_without_its_place_in_the_files_of_tantivy_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tantivy")
    index = open_index(build(SOURCE, iter(drawn(20)), tmp_path, "tantivy"))
    files = index_command._files
    places = SimpleNamespace(
        doc_freq=files._searcher.doc_freq,
        search=files._searcher.search,
        fast_field_values=lambda name, addresses: [None] * len(addresses),
    )
    monkeypatch.setattr(files, "_searcher", places)
    with pytest.raises(ValueError, match="expected the place of each passage in the files of tantivy"):
        index.search("w1", 3)


class FullWriter:
    """What tantivy's writer does on a full disk: its threads fail, and nobody says why."""

    def __init__(self, *args: object, **named: object) -> None:
        pass

    def writer(self, memory: int, threads: int) -> FullWriter:
        return self

    def add_document(self, document: object) -> None:
        pass

    def commit(self) -> None:
        raise ValueError("An error occurred in a thread: 'Worker thread failed.'")

    wait_merging_threads = commit


@pytest.mark.parametrize("full", [True, False])
def test_where_tantivy_cannot_write_the_cause_is_told(
    full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytest.importorskip("tantivy"), "Index", FullWriter)

    def write_bytes(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    if full:
        monkeypatch.setattr(Path, "write_bytes", write_bytes)
    said = "No space left on device" if full else "Expected tantivy to write its files to .*--engine numpy"
    with pytest.raises(OSError if full else ValueError, match=said):
        write_large(tmp_path, drawn(20))


def test_what_a_corpus_is_refused_for_is_told_though_tantivy_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytest.importorskip("tantivy"), "Index", FullWriter)

    def passages() -> Iterator[Passage]:
        yield from drawn(20)
        raise ValueError("line 21 holds no passage")

    with pytest.raises(ValueError, match="line 21 holds no passage"):
        write_large(tmp_path, passages())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_full_disk_is_told_with_the_folder_of_the_index(engine, tmp_path: Path, monkeypatch) -> None:
    def full(*parts: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folders, "write_passages", full)
    with pytest.raises(OSError, match="No space left") as raised:
        build(SOURCE, iter(drawn(20)), tmp_path, engine)
    assert sentence_of(raised.value).startswith(f"Expected room on the disk to write {tmp_path}/abababababababab")
    assert list(tmp_path.iterdir()) == []
