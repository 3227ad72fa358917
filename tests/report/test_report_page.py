from __future__ import annotations

import dataclasses
import html
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_run import HOSTILE, PROMPTS, STEPS, make_run

from heedful.boundary import clean
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.diagnostics.signal import cause_of
from heedful.diagnostics.statistics.group_statistics import scored
from heedful.report import write_comparison, write_report
from heedful.report.drawing.chart import LEFT, RIGHT, Axis, Curve, Frame, Mark, draw_lines, draw_shares
from heedful.report.drawing.numerals import numeral, ticks
from heedful.report.embedding import packed, shortened, spread, unpacked
from heedful.report.episodes import pieces, template_shares
from heedful.report.first import told
from heedful.report.record import Point, Series, read_run
from heedful.report.retrieval_map import posterior_NN, retrieval_frames
from heedful.storage import RunFolder, StoredScores, read_rollouts, write_rollouts, write_whole
from heedful.types import Ending, Group, Metric, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict


class _Page(HTMLParser):
    """Collects what a browser would see: tags with attributes, and text by the tag around it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        else:
            self.text.append(data)

    def pack(self, name: str) -> Any:
        return unpacked(self.scripts_by_id(f"pack-{name}"))

    def scripts_by_id(self, name: str) -> str:
        places = [attrs for tag, attrs in self.tags if tag == "script"]
        return self.scripts[[attrs.get("id") for attrs in places].index(name)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, RunFolder]:
    root = tmp_path_factory.mktemp("runs")
    return make_run(root / "lake-grpo-s0-1"), make_run(root / "lake-grpo-s1-1", seed=1, decay=0.0)


@pytest.fixture(scope="module")
def page(runs: tuple[RunFolder, RunFolder]) -> str:
    return write_report(runs[0]).read_text(encoding="utf-8")


def test_the_page_is_written_into_the_run_and_is_small(runs: tuple[RunFolder, RunFolder]) -> None:
    path = write_report(runs[0].path)
    assert path == runs[0].report
    assert path.stat().st_size < 1_000_000


def test_the_same_run_gives_the_same_bytes(runs: tuple[RunFolder, RunFolder], page: str) -> None:
    assert write_report(runs[0]).read_text(encoding="utf-8") == page


def test_nothing_is_loaded_from_anywhere(page: str) -> None:
    parsed = _Page(page)
    for tag, attributes in parsed.tags:
        assert tag not in ("link", "iframe", "img", "object", "embed"), tag
        assert "src" not in attributes
        assert not (attributes.get("href") or "#").startswith(("http", "//"))
    assert "url(" not in page
    assert "@import" not in page
    addresses = set(re.findall(r"https?://[\w./-]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}


def test_what_a_model_wrote_reaches_the_page_as_text_only(page: str) -> None:
    parsed = _Page(page)
    assert "<script>alert" not in page
    assert not any("onerror" in attributes for _, attributes in parsed.tags)
    turns = [turn for members in parsed.pack("0-0")["groups"] for member in members for turn in member["turns"]]
    assert any(HOSTILE in text for turn in turns for _, text in turn["pieces"])
    assert any(HOSTILE in frame["thoughts"][0][0] for frame in parsed.pack("0-frames")["frames"])


def test_hostile_names_and_settings_are_escaped(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    line = {"step": 0, "metrics": {f"reward/{HOSTILE}": 1.0, "length/turns": {"value": None, "why": HOSTILE}}}
    write_whole(run.metrics, json.dumps(line) + "\n")
    write_whole(run.config, json.dumps({HOSTILE: HOSTILE}))
    write_whole(run.verdict, json.dumps({"sentences": [HOSTILE], "regime": HOSTILE}))
    page = write_report(run).read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "<img" not in page
    assert page.count(html.escape(HOSTILE).replace("&#x27;", "&#39;")) >= 6


def test_a_page_holds_no_character_that_a_terminal_obeys(tmp_path: Path) -> None:
    run, odd = RunFolder(tmp_path), "\x1b[2J\x9b\u202e"
    write_whole(run.metrics, json.dumps({"step": 0, "metrics": {f"reward/{odd}": 1.0}}) + "\n")
    write_whole(run.config, json.dumps({odd: odd}))
    write_whole(run.verdict, json.dumps({"sentences": [odd], "regime": odd}))
    page = write_report(run).read_text(encoding="utf-8")
    assert page == clean(page)
    assert "\\x1b[2J\\x9b\\u202e" in page


def test_a_chart_says_how_many_components_of_the_reward_it_draws(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    write_whole(run.metrics, json.dumps({"step": 0, "metrics": {f"reward/part_{n}": 1.0 for n in range(7)}}) + "\n")
    assert "5 of 7 components are drawn" in write_report(run).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("config", "sentence"),
    [({}, "still going"), ({"trainer": "verl 0.9.1"}, "verl 0.9.1 trained this run. Only heedful's own trainer")],
)
def test_a_page_without_a_verdict_says_why(config: dict[str, str], sentence: str, tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    write_whole(run.metrics, json.dumps({"step": 0, "metrics": {"reward/mean": 1.0}}) + "\n")
    write_whole(run.config, json.dumps(config))
    said = " ".join(" ".join(_Page(write_report(run).read_text(encoding="utf-8")).text).split())
    assert sentence in said
    assert ("still going" in said) == (not config)


def test_every_section_is_there(page: str) -> None:
    text = " ".join(_Page(page).text)
    for heading in (
        "regime: template",
        "Success rose from 0.42 to 0.58",
        "0.160 [0.110 to 0.210 †], n 256",
        "Mutual information, first turn",
        "Groups by kind",
        "KL divergence of the policy",
        "Which prompt does a thought look like?",
        "What did it cost?",
        "algorithm.clip_low",
        "versions.python",
        "Everything measured",
    ):
        assert heading in text, heading


def test_the_first_screen_is_three_sentences_and_five_curves(runs: tuple[RunFolder, RunFolder], page: str) -> None:
    gain, thoughts, alarms = told(read_run(runs[0]))
    assert gain.text == "Success rose from 0.42 to 0.58 (95% intervals 0.36 to 0.48 and 0.52 to 0.64): more than noise."
    assert thoughts.text.startswith("Mutual information of thoughts and prompts, in nats: 0.5")
    assert alarms.text.startswith("template_collapse (collapse) at step 40. Likely cause: template_collapse: ")
    assert (alarms.steps, alarms.warns) == ((40,), True)
    first = page[page.index('id="curves"') : page.index('id="look"')]
    titles = re.findall(r"<h3>([^<]+?) <span", first)
    assert titles == ["Success", "Reward", "Mutual information, first turn", "Entropy", "Format"]
    assert '<a href="#step=40">step 40</a>' in page


def test_where_right_actions_come_from_is_told_once_it_is_known(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    parts = {"": 0.62, "_by_chance": 0.34, "_by_thought": 0.28, "_by_prompt": 0.0, "_by_both": 0.0}
    readings = {f"grounding/right{part}": value for part, value in parts.items()}
    rewards = {"reward/mean": {"value": 0.5, "n": 8}}
    write_whole(run.metrics, json.dumps({"step": 3, "metrics": readings | rewards}) + "\n")
    gain, thoughts, alarms = told(read_run(run))
    assert gain.text.startswith("Reward of training episodes: 0.500, n 8 at step 3. Held-out")
    assert thoughts.text.startswith("Of a probability of 0.62 of a right first action, 0.28 comes from the thought")
    assert thoughts.text.endswith("0.34 is chance (step 3).")
    assert alarms.text == "No alarm could be judged."


def test_the_first_screen_names_collapses_before_warnings_and_in_order_of_time(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    names = ["reward_blind", "shaping_dominates", "entropy_rise", "success_drop", "oscillation", "template_collapse"]
    lines = [
        {"step": step, "metrics": {f"alarm/{name}": float(step >= at) for at, name in enumerate(names)}}
        for step in range(len(names))
    ]
    write_whole(run.metrics, "".join(json.dumps(line) + "\n" for line in lines))
    said = told(read_run(run))[2]
    assert "template_collapse (collapse) at step 5, and 2 more." in said.text
    assert (said.steps, said.text.startswith("reward_blind (warning) at step 0, ")) == ((0, 1, 2, 5), True)


def test_missing_readings_are_absent_with_their_reason_and_never_zero(page: str, tmp_path: Path) -> None:
    assert "missing at steps 20, 24, 40: one distinct prompt: N &lt; 2" in page
    assert "unpaid: missing at all 61 values: the environment reports no progress" in page
    run = RunFolder(tmp_path)
    write_whole(run.metrics, '{"step": 3, "metrics": {"format/valid_rate": {"value": null, "why": "no turn"}}}\n')
    bare = write_report(run).read_text(encoding="utf-8")
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", bare))
    assert "Format: missing at step 3: no turn" in text
    assert "Gradient norm: This run did not record policy/gradient_norm." in text
    assert "Absent. The run stored no cross-scores" in text
    assert "The run stored no rollouts" in text
    assert "Absent. The run has no config.json." in text
    assert "policy/kl_to_sampler or policy/kl_to_reference" in text


def test_a_run_without_measurements_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Give the folder of a run"):
        write_report(tmp_path)
    write_whole(tmp_path / "metrics.jsonl", '{"step": 0, "metrics": {}}\n')
    write_whole(tmp_path / "verdict.json", "{")
    with pytest.raises(ValueError, match=r"Expected JSON in .*verdict\.json"):
        write_report(tmp_path)


def test_alarms_are_marked_and_the_regime_is_named(page: str) -> None:
    assert "alarm template_collapse at step 40: gap below half its baseline" in page
    assert "The whole verdict, regime: template" in page


def test_the_map_embeds_distributions_over_prompts(runs: tuple[RunFolder, RunFolder], page: str) -> None:
    frames = _Page(page).pack("0-frames")["frames"]
    assert [frame["step"] for frame in frames] == [0, 20, 40, 60]
    for frame in frames:
        assert len(frame["matrix"]) == len(frame["prompts"]) == PROMPTS
        assert all(abs(sum(row) - 1000) <= PROMPTS for row in frame["matrix"])
    assert frames[0]["diagonal"] > 0.9 > 0.3 > frames[-1]["diagonal"]
    assert retrieval_frames(runs[0]).pictures == {}


def test_the_posterior_by_hand() -> None:
    # Prompt 0 has three thoughts, prompt 1 one, so its share weighs a third of the other's.
    scores = np.log(np.array([[0.2, 0.2], [0.6, 0.2], [0.1, 0.9], [0.1, 0.3]]))
    stored = StoredScores(scores, np.ones(4, int), np.array([0, 0, 0, 1]), ("a", "b", "c", "d"), ("p", "q"))
    expected = [[(0.75 + 0.9 + 0.25) / 3, (0.25 + 0.1 + 0.75) / 3], [0.5, 0.5]]
    np.testing.assert_allclose(posterior_NN(stored), expected, atol=1e-12)


def test_every_group_of_every_stored_step_is_in_the_index(runs: tuple[RunFolder, RunFolder], page: str) -> None:
    (index,) = _Page(page).pack("runs")
    assert list(index["steps"]) == ["0", "10", "20", "30", "40", "50"]
    stored = read_rollouts(runs[0].rollouts(20))
    rows = index["steps"]["20"]
    assert [index["tasks"][row[0]][0] for row in rows] == [group.task.id for group in stored.groups]
    assert [row[1] for row in rows] == [[one.outcome for one in group.trajectories] for group in stored.groups]
    assert {index["reasons"][row[4]] for row in rows} == {"kept", "constant"}
    assert all((row[6] == 0) == (row[3] == 0) for row in rows)  # a dropped group moves nothing
    assert {row[7] for row in rows} == {
        cause_of(group, scored(row[1])) for group, row in zip(stored.groups, rows, strict=True)
    }


def test_what_moved_and_how_alike_thoughts_are_by_hand(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    write_whole(run.metrics, '{"step": 0, "metrics": {"reward/mean": 0.5}}\n')
    same, own = "a b c d", "e f a b c"
    groups = []
    for name, texts in {"first": (same, same), "second": (own, "x")}.items():
        task = Task(name, 1, "train")
        replies = (_reply("p", f"<think>{text}</think>Up", Span(0, 3)) for text in texts)
        turns = [Turn(reply, {"r": float(at)}, ("Up",), True, "", "") for at, reply in enumerate(replies)]
        members = (Trajectory(task, at, (turn,), Ending.FAILED, 0.0) for at, turn in enumerate(turns))
        groups.append(Group(task, tuple(members)))
    # Of `a b c d` one phrase of two stands in the other task, of `e f a b c` one of three. `x` has no phrase.
    assert list(template_shares(groups, ThoughtTags())) == [0.5, 0.5, 0.333, None]
    write_rollouts(run.rollouts(0), 0, "train", groups, [Verdict(2.0, "kept", 0.5), Verdict(0.0, "constant", 0.0)])
    (index,) = _Page(write_report(run).read_text()).pack("runs")
    assert [row[6] for row in index["steps"]["0"]] == [1.0, 0.0]  # |0 - .5| and |1 - .5|, times 2 and times 0


def test_texts_of_a_large_run_stand_in_a_folder_beside_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    small = write_report(run).read_text()
    assert "script-src 'unsafe-inline';" in small
    assert not (tmp_path / "report_steps").exists()
    monkeypatch.setattr("heedful.report.page.INLINE", 1000)
    page = write_report(run).read_text()
    assert "script-src 'unsafe-inline' 'self' file:;" in page
    assert 'id="pack-0-10"' not in page
    written = (tmp_path / "report_steps" / "0-10.js").read_text()
    assert written == f'heedfulPart("0-10", "{_Page(small).scripts_by_id("pack-0-10")}");\n'
    monkeypatch.undo()
    assert write_report(run).read_text() == small
    assert not (tmp_path / "report_steps").exists()


def test_a_long_text_is_cut_with_a_word(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    turn = read_rollouts(run.rollouts(0)).groups[0].trajectories[0].turns[0]
    long_turn = dataclasses.replace(turn, state="<漢字>" * 10_000, actions=("Up" * 50_000,))
    task = Task("t", 1, "train")
    write_rollouts(
        run.rollouts(0), 0, "train", [Group(task, (Trajectory(task, 0, (long_turn,), Ending.FAILED, 0.0),))], None
    )
    part = _Page(write_report(run).read_text()).pack("0-0")
    assert part["groups"][0][0]["turns"][0]["state"].endswith("[20,000 characters left out]")


def test_a_page_of_a_run_that_goes_on_holds_the_newest_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.report.page.NEWEST", 2)
    page = _Page(write_report(make_run(tmp_path), refresh=30).read_text())
    assert list(page.pack("runs")[0]["steps"]) == ["40", "50"]


def _reply(prompt: str, text: str, thought: Span, closed: bool = True, tokens: int = 6) -> Reply:
    return Reply(
        Prompt(prompt, (1,)),
        (2,) * tokens,
        text,
        (0.0,) * tokens,
        (),
        thought,
        Span(thought.end, tokens),
        closed,
        False,
    )


def test_replies_are_split_by_role() -> None:
    forced = _reply("board\n<think>\n", "<think>go up</think><answer>Up</answer>", Span(0, 3))
    assert pieces(forced, ThoughtTags("", "")) == [
        ("prompt", "board\n"),
        ("forced", "<think>"),
        ("thought", "go up</think>"),
        ("answer", "<answer>Up</answer>"),
    ]
    free = _reply("board\n", "<think>go up</think>Up", Span(0, 3))
    assert pieces(free, ThoughtTags()) == [
        ("prompt", "board\n"),
        ("thought", "<think>go up</think>"),
        ("answer", "Up"),
    ]
    unclosed = _reply("board\n<think>", "<think>go up and", Span(0, 6), closed=False)
    assert pieces(unclosed, ThoughtTags("", ""))[1:] == [("forced", "<think>"), ("thought", "go up and")]
    assert pieces(_reply("board", "Up", Span(0, 0)), ThoughtTags("", "")) == [("prompt", "board"), ("answer", "Up")]
    assert pieces(_reply("board", "hm, Up", Span(0, 2)), ThoughtTags("", "")) == [
        ("prompt", "board"),
        ("reply", "hm, Up"),
    ]


def test_a_reply_that_is_known_as_text_alone_is_split_at_its_closing_tag_or_whole() -> None:
    def text(reply: str) -> Reply:
        return _reply("board\n", reply, Span(0, 0), closed="</think>" in reply, tokens=0)

    assert pieces(text("<think>go up</think>Up"), ThoughtTags("", ""))[1:] == [
        ("thought", "<think>go up</think>"),
        ("answer", "Up"),
    ]
    assert pieces(text("go up"), ThoughtTags("", ""))[1:] == [("reply", "go up")]
    assert pieces(text("<think>go up"), ThoughtTags())[1:] == [("reply", "<think>go up")]


def _series(*values: float | None) -> Series:
    return Series("m", tuple(Point(step, Metric("m", value)) for step, value in enumerate(values)))


def test_a_missing_reading_breaks_the_line_and_leaves_a_cross() -> None:
    chart = draw_lines([Curve("a", _series(0.1, 0.2, None, 0.4, 0.5), 1)], Frame((0, 4)), Axis.SHARE, title="t")
    assert chart.svg.count('class="line c1"') == 2
    assert chart.svg.count('class="lost c1"') == 1
    assert json.loads(chart.hover)["curves"][0]["at"]["2"] == "missing: no reason given"


def test_the_first_and_last_step_lie_at_the_edges() -> None:
    hover = json.loads(draw_lines([Curve("a", _series(0.0, 1.0), 1)], Frame((0, 1)), Axis.SHARE, title="t").hover)
    assert hover["places"] == [LEFT + 6, RIGHT - 6]
    alone = Series("m", (Point(7, Metric("m", 0.5)),))
    hover = json.loads(draw_lines([Curve("a", alone, 1)], Frame((7, 7)), Axis.SHARE, title="t").hover)
    assert hover["places"] == [(LEFT + RIGHT) / 2]


def _lowest_tick(axis: Axis) -> str:
    svg = draw_lines([Curve("a", _series(2.6, 2.7), 1)], Frame((0, 1)), axis, "t").svg
    return str(re.findall(r'text-anchor="end">([^<]*)<', svg)[0])


def test_what_is_read_against_a_ceiling_is_drawn_from_zero() -> None:
    assert _lowest_tick(Axis.FROM_ZERO) == "0"
    assert float(_lowest_tick(Axis.FITTED)) == 2.6


def test_few_intervals_are_bars_and_many_are_a_band() -> None:
    def with_intervals(count: int) -> Series:
        return Series("m", tuple(Point(step, Metric("m", 0.5, 9, 0.4, 0.6)) for step in range(count)))

    few = draw_lines([Curve("a", with_intervals(3), 1)], Frame((0, 2)), Axis.SHARE, title="t").svg
    many = draw_lines([Curve("a", with_intervals(30), 1)], Frame((0, 29)), Axis.SHARE, title="t").svg
    assert (few.count('class="bar c1"'), few.count('class="band c1"')) == (3, 0)
    assert (many.count('class="bar c1"'), many.count('class="band c1"')) == (0, 1)


def test_stacked_shares_leave_out_steps_that_are_not_complete() -> None:
    curves = [Curve("a", _series(0.25, 0.5, 0.5), 1), Curve("b", _series(0.75, None, 0.5), 2)]
    svg = draw_shares(curves, Frame((0, 2), (Mark(1, "<alarm>"),)), "t").svg
    first, second = re.findall(r'class="area c\d" d="([^"]+)"', svg)
    assert first.count("L") == second.count("L") == 3
    assert "<alarm>" not in svg


def test_long_runs_are_thinned_but_keep_their_ends() -> None:
    thin = _series(*(float(value) for value in range(1001))).thinned(400)
    assert len(thin.points) <= 401
    assert (thin.points[0].step, thin.points[-1].step) == (0, 1000)


def test_numbers_keep_three_digits_and_a_true_minus() -> None:
    shown = [numeral(value) for value in (0, 1, -0.5, 0.0417, 12.345, 1234.5, 3.1e-5, 128, 0.9999, 2.5e8)]
    assert shown == ["0", "1", "−0.500", "0.0417", "12.3", "1,234", "3.1e-05", "128", "1.000", "2.5e+08"]
    assert ticks(0, 1, 5) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert ticks(0, 3, 6, whole=True) == [0, 1, 2, 3]


def test_packed_content_is_letters_and_comes_back() -> None:
    content = {"a": HOSTILE, "b": [math.nan, 1.5, None], "c": "&amp;\u2028"}
    text = packed(content)
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", text)
    assert unpacked(text) == {"a": HOSTILE, "b": ["nan", 1.5, None], "c": "&amp;\u2028"}


def test_cut_texts_say_how_much_is_left_out() -> None:
    assert shortened("abcdef", 4) == "abcd … [2 characters left out]"
    assert shortened("abcdef", 4, keep_end=True) == "[2 characters left out] … cdef"
    assert shortened("abcd", 4) == "abcd"
    assert spread(range(10), 4) == [0, 3, 6, 9]
    assert spread([1, 2], 4) == [1, 2]


def test_readings_by_another_scorer_are_drawn_too(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    readings = {"information@judge/first_turn/mi": 1.25, "grounding@judge/thought_influence": 0.5}
    write_whole(run.metrics, json.dumps({"step": 0, "metrics": readings}) + "\n")
    record = read_run(run)
    assert record.family("information") == "information@judge"
    assert record.family("retrieval") == "retrieval"
    drawn = [
        json.loads(attributes["data-hover"] or "")
        for _, attributes in _Page(write_report(run).read_text()).tags
        if "data-hover" in attributes
    ]
    curves = [curve for chart in drawn for curve in chart["curves"]]
    assert {"label": "MI", "hue": 1, "at": {"0": "1.25"}} in curves
    assert {"label": "thought of another prompt", "hue": 1, "at": {"0": "0.500"}} in curves


def _rows(page: str) -> dict[str, list[str]]:
    """The table rows of a page: the first cell's text to the others'."""
    rows = {}
    for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL):
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        first, *others = (re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", cell)).strip() for cell in cells)
        rows[first] = others
    return rows


def test_a_comparison_lays_runs_over_one_another(runs: tuple[RunFolder, RunFolder], tmp_path: Path) -> None:
    out = write_comparison([run.path for run in runs], tmp_path / "compared.html")
    page = out.read_text(encoding="utf-8")
    rows = {
        cells[0]: cells[1:]
        for cells in (
            [
                re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", cell)).strip()
                for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
            ]
            for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
        )
    }
    assert rows["Success on val, sampled share"][0] == f"0.580 0.520 to 0.640 step {STEPS}, n 256"
    assert rows["filter.type"] == ["top_p", "keep_all"]
    assert rows["filter.p"] == ["0.9", "absent"]
    assert rows["seed"] == ["0", "1"]
    assert "algorithm.type" not in rows
    assert page.count('class="card panel"') >= 10
    assert "No difference on record." in page


def test_runs_of_equal_names_are_told_apart_and_one_run_is_no_comparison(tmp_path: Path) -> None:
    for place in ("a", "b"):
        write_whole(tmp_path / place / "run" / "metrics.jsonl", '{"step": 0, "metrics": {"success/rate": 0.5}}\n')
    folders = [tmp_path / "a" / "run", tmp_path / "b" / "run"]
    page = write_comparison(folders, tmp_path / "c.html").read_text(encoding="utf-8")
    assert "a/run" in page
    assert "b/run" in page
    with pytest.raises(ValueError, match="Expected 2 to 6 runs to compare, found 1"):
        write_comparison(folders[:1], tmp_path / "c.html")
    write_comparison(folders, tmp_path / "c.html")  # its own page is written again
    with pytest.raises(ValueError, match=r"metrics\.jsonl, found another file"):
        write_comparison(folders, folders[0] / "metrics.jsonl")
