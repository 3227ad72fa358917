"""`heedful prepare-shop`, and playing what it made."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful import cli

EXAMPLE = Path(__file__).parents[2] / "examples" / "webshop"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.run(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_download_is_prepared_and_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "shop")
    code, said, noted = told(capsys, "prepare-shop", str(EXAMPLE), "--nouns", "words", "--out", out)
    assert (code, said.strip()) == (0, out)
    assert "24 products; 12 of 12 human goals can be met, 18 of 18 synthetic goals can be met" in noted
    assert "nouns are all words but stop words" in noted
    code, said, _ = told(capsys, "play", "shop", "--by", "solver", "--env.catalogue", out)
    assert code == 0
    assert "solved" in said
    assert "attributes 2/2" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere",), "Expected the folder of a WebShop download at nowhere, found none."),
        ((str(EXAMPLE), "--items", "nowhere.json"), "Expected the file of --items at nowhere.json, found none."),
        ((str(EXAMPLE), "--most", "-1"), "most"),
    ],
)
def test_bad_input_ends_in_a_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, said = told(capsys, "prepare-shop", *words, "--out", str(tmp_path / "x"))
    assert code == 2
    assert sentence in said
