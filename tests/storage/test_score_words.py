from pathlib import Path

import numpy as np
import pytest

from heedful.storage import Swaps, TokenValues, read_scores, write_scores
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


def test_exchanged_thoughts_come_back_with_what_was_not_read(tmp_path: Path) -> None:
    chances = np.array([[[0.25, 0.75], [np.nan, np.nan]]])
    right = np.array([[1.0, 0.0], [np.nan, np.nan]])
    swaps = Swaps(chances, np.array([0]), np.array([1]), right, ("Up", "Left"), ("é",), ("p", "q"))
    write_scores(tmp_path / "s.npz", SCORES, *TEXTS, swaps=swaps)
    read = read_scores(tmp_path / "s.npz").swaps
    assert read is not None
    np.testing.assert_array_equal(read.chances_MNA, chances)
    np.testing.assert_array_equal(read.right_NA, right)
    assert (read.own_M.tolist(), read.taken_M.tolist()) == ([0], [1])
    assert (read.names_A, read.thoughts_M, read.prompts_N) == (("Up", "Left"), ("é",), ("p", "q"))


def test_what_is_no_archive_is_not_called_a_pickle_that_could_be_trusted(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    np.savez(
        tmp_path / "objects.npz", **dict.fromkeys(("scores", "lengths", "own", "thoughts", "prompts"), np.array({}))
    )
    for name in ("text.npz", "objects.npz"):
        with pytest.raises(ValueError, match=f"{name}, found no .npz archive of plain arrays. Delete"):
            read_scores(tmp_path / name)


def test_pictures_of_prompts_come_back(tmp_path: Path) -> None:
    images = ((Image(b"one", 1, 2, "a"), Image(b"three", 3, 4)), ())
    write_scores(tmp_path / "s.npz", SCORES, *TEXTS, (), images)
    assert read_scores(tmp_path / "s.npz").images_N == images


def test_scores_of_no_thought_survive_the_round_trip(tmp_path: Path) -> None:
    for prompts in ([], ["p"]):
        write_scores(tmp_path / "s.npz", CrossScores([], [], []), [], prompts)
        assert read_scores(tmp_path / "s.npz").scores_MN.shape == (0, len(prompts))
