import zipfile
from pathlib import Path

import numpy as np
import pytest

from heedful.storage import TokenValues, read_scores, write_scores
from heedful.types import CrossScores, Image

SCORES = CrossScores([[-1.0, -2.0], [-3.0, -1.0], [-2.0, -2.0]], [3, 1, 2], [0, 1, 1])
TEXTS = ["one\n two", "", "é"], ["p", "q"]


def test_words_come_back_with_their_thought_texts_and_values(tmp_path: Path) -> None:
    words = [
        TokenValues(0, ("one", "\n ", "two "), (0.5, -0.25, 2.0)),
        TokenValues(2, ("�", "</think>"), (0.0, 1e-3)),
    ]
    for name in ("a.npz", "b.npz"):
        write_scores(tmp_path / name, SCORES, *TEXTS, words)
    read = read_scores(tmp_path / "a.npz").words
    assert [(thought.row, thought.texts_T) for thought in read] == [(0, words[0].texts_T), (2, words[1].texts_T)]
    assert read[0].values_T == (0.5, -0.25, 2.0)
    assert read[1].values_T == pytest.approx((0.0, 1e-3), rel=1e-6)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_scores_without_words_hold_none(tmp_path: Path) -> None:
    write_scores(tmp_path / "s.npz", SCORES, *TEXTS)
    assert read_scores(tmp_path / "s.npz").words == ()
    with np.load(tmp_path / "s.npz") as archive:
        assert set(archive.files) == {"scores", "lengths", "own", "thoughts", "prompts"}


def test_words_that_fit_no_thought_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="found thought 3 with 1 texts and 1 values"):
        write_scores(tmp_path / "s.npz", SCORES, *TEXTS, [TokenValues(3, ("a",), (0.0,))])
    with pytest.raises(ValueError, match="found thought 0 with 2 texts and 1 values"):
        write_scores(tmp_path / "s.npz", SCORES, *TEXTS, [TokenValues(0, ("a", "b"), (0.0,))])


def test_a_file_whose_words_were_cut_off_is_refused(tmp_path: Path) -> None:
    write_scores(tmp_path / "s.npz", SCORES, *TEXTS, [TokenValues(0, ("a", "b"), (0.0, 1.0))])
    with np.load(tmp_path / "s.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(tmp_path / "s.npz", **(arrays | {"words_value": arrays["words_value"][:1]}))
    with pytest.raises(ValueError, match="each of 2 tokens of 1 thoughts"):
        read_scores(tmp_path / "s.npz")


def test_a_small_file_of_huge_arrays_is_refused_before_they_are_made(tmp_path: Path) -> None:
    write_scores(tmp_path / "s.npz", SCORES, *TEXTS)
    with zipfile.ZipFile(tmp_path / "s.npz", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("words_value.npy", bytes(257 << 20))
    assert (tmp_path / "s.npz").stat().st_size < 1 << 20
    with pytest.raises(ValueError, match=r"found arrays of 269,\d+,\d+ bytes, more than 268,435,456"):
        read_scores(tmp_path / "s.npz")


def test_what_is_no_archive_is_not_called_a_pickle_that_could_be_trusted(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    np.savez(
        tmp_path / "objects.npz", **dict.fromkeys(("scores", "lengths", "own", "thoughts", "prompts"), np.array({}))
    )
    for name in ("text.npz", "objects.npz"):
        with pytest.raises(ValueError, match=f"{name}, found no .npz archive of plain arrays. Delete"):
            read_scores(tmp_path / name)


def test_pictures_of_prompts_come_back_and_damaged_ones_are_a_sentence(tmp_path: Path) -> None:
    images = ((Image(b"one", 1, 2, "a"), Image(b"three", 3, 4)), ())
    write_scores(tmp_path / "s.npz", SCORES, *TEXTS, (), images)
    assert read_scores(tmp_path / "s.npz").images_N == images
    with np.load(tmp_path / "s.npz") as archive:
        arrays = dict(archive)
    for name, values in (("picture_column", [0, 2]), ("picture_size", [3, 6]), ("picture_width", [1])):
        np.savez(tmp_path / "bad.npz", **{**arrays, name: np.array(values)})
        with pytest.raises(ValueError, match="a column below 2, a size and words for each of 2 pictures"):
            read_scores(tmp_path / "bad.npz")
    del arrays["picture_alt"]
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match="found no array picture_alt"):
        read_scores(tmp_path / "bad.npz")
