"""The page of a run as a reader uses it: from a curve to the rollouts behind it, by mouse and by keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from browser import Browser, browsing, needs_browser
from synthetic_run import HOSTILE, make_run

from heedful.report import write_comparison, write_report
from heedful.storage import RunFolder, read_rollouts, write_rollouts, write_whole
from heedful.types import Image

pytestmark = needs_browser
CONTRASTS = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63fccfc0f01f000501"
    "01ffa1b5d1b40000000049454e44ae426082"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = make_run(tmp_path_factory.mktemp("runs") / "lake 's")
    stored = read_rollouts(run.rollouts(20))
    first, *others = stored.groups
    turn, *later = first.trajectories[0].turns
    prompt = replace(turn.reply.prompt, images=(Image(PIXEL, 1, 1, HOSTILE),))
    seen = replace(first.trajectories[0], turns=(replace(turn, reply=replace(turn.reply, prompt=prompt)), *later))
    pictured = replace(first, trajectories=(seen, *first.trajectories[1:]))
    write_rollouts(run.rollouts(20), 20, "train", [pictured, *others], stored.verdicts, stored.environment)
    write_report(run)
    return run


@pytest.fixture
def page(browser: Browser, run: RunFolder) -> Iterator[Browser]:
    browser.size(1280, 800)
    browser.dark(False)
    browser.open(run.report)
    browser.errors.clear()
    yield browser
    assert browser.errors == []


def rows(browser: Browser) -> list[list[str]]:
    return browser.read(
        "[...document.querySelectorAll('.groups tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
    )


def test_a_click_on_a_curve_leads_to_the_step_its_groups_and_a_prompt(page: Browser, run: RunFolder) -> None:
    assert page.read("document.getElementById('look-in').hidden")
    page.click("#curves .plot", right=0.46)  # step 20 of 0 to 60, on an axis from 54 to 384 of 400
    page.until("document.querySelectorAll('.groups tbody tr').length === 16")
    assert page.read("location.hash") == "#step=20"
    found = rows(page)
    moved = [float(row[-1]) for row in found]
    assert moved == sorted(moved, reverse=True)
    assert found[-1][6] == "dropped: constant"
    stored = read_rollouts(run.rollouts(20)).groups
    first = int(found[0][0])
    assert found[0][1] == stored[first].task.id
    page.click(".groups tbody tr button")
    page.until("document.querySelectorAll('.member').length === 8")
    assert page.read("location.hash") == f"#step=20&group={first}"
    table = page.read("document.querySelector('.member table').innerText").split()
    reward = stored[first].trajectories[0].reward
    assert reward is not None
    assert float(table[table.index("reward") + 1]) == reward
    page.click(".member summary")
    page.until("document.querySelector('.member details.turn[open] .piece.prompt')")
    prompt = stored[first].trajectories[0].turns[0].reply.prompt.text
    assert page.read("document.querySelector('.piece.prompt').textContent").strip() in prompt
    assert page.read("location.hash") == f"#step=20&group={first}&member=0&turn=0"


def test_the_keyboard_alone_leads_there(page: Browser) -> None:
    page.read("document.querySelector('nav a:last-child').focus()")
    for _ in range(20):
        page.key("Tab")
        if page.read("document.activeElement.className") == "plot":
            break
    page.key("ArrowLeft")
    assert page.read("document.activeElement.getAttribute('aria-valuetext')").startswith("step 59. training ")
    page.key("Enter")
    page.until("document.activeElement.className.includes('pane')")
    assert page.read("location.hash") == "#step=50"  # the nearest step whose rollouts are stored
    for _ in range(20):
        page.key("Tab")
        if page.read("(document.activeElement.ariaLabel || '').startsWith('Open group')"):
            break
    page.key("Enter")
    page.until("document.querySelectorAll('.member').length === 8")
    page.until("document.activeElement.className.includes('pane')")
    for _ in range(40):
        page.key("Tab")
        if page.read("document.activeElement.tagName") == "SUMMARY":
            break
    page.key("Enter")
    page.until("document.querySelector('.member details.turn[open] .piece.prompt')")


def test_an_alarm_leads_to_its_step_and_an_address_to_its_place(page: Browser, run: RunFolder) -> None:
    page.click("#verdict .warns a")
    page.until("document.querySelectorAll('.groups tbody tr').length === 16")
    assert page.read("location.hash") == "#step=40"
    page.open(run.report, "#step=20&group=3&member=2&turn=0")
    page.until("document.querySelector('.member.picked details.turn[open] .piece.prompt')")
    assert page.read("document.querySelector('.member.picked').dataset.member") == "2"
    page.read("location.hash = '#step=20&group=4'")
    page.until("document.querySelector('.member') && !document.querySelector('.member.picked')")
    page.read("setTimeout(() => history.back())")
    page.until("document.querySelector('.member.picked')")


def test_hostile_texts_and_pictures_stay_text(page: Browser, run: RunFolder) -> None:
    page.open(run.report, "#step=20&group=0&member=0&turn=0")
    page.until("document.querySelector('.member img')")
    assert page.read("document.querySelector('.member img').alt") == HOSTILE
    assert page.read("document.querySelector('.member img').complete")
    assert HOSTILE in page.read("document.querySelector('.piece.thought').textContent")
    assert page.read("document.querySelectorAll('img').length") == 1
    assert page.read("[...document.scripts].every(s => s.id || !s.textContent.startsWith('alert'))")


def test_filters_and_search_leave_what_matches(page: Browser, run: RunFolder) -> None:
    page.open(run.report, "#step=20")
    page.until("document.querySelectorAll('.groups tbody tr').length === 16")
    members = [one for group in read_rollouts(run.rollouts(20)).groups for one in group.trajectories]
    invalid = [one for one in members if any(not turn.valid for turn in one.turns)]
    page.read("sought.elements.valid.value = 'invalid'; sought.dispatchEvent(new Event('input'))")
    page.until("document.querySelector('.groups thead').innerText.includes('Matching')")
    assert sum(int(row[-1]) for row in rows(page)) == len(invalid)
    page.click(".groups tbody tr button")
    page.until("document.querySelector('.members')")
    assert page.read("document.querySelectorAll('.member').length") == 1
    page.read("sought.elements.valid.value = ''; sought.elements.text.value = 'OWNED'")
    page.read("sought.dispatchEvent(new Event('input'))")
    page.click("#all-steps")
    page.until("document.querySelectorAll('#hits button').length === 6")
    count = page.read("document.querySelector('#hits button').innerText")
    told = [
        one
        for group in read_rollouts(run.rollouts(0)).groups
        for one in group.trajectories
        if HOSTILE in one.error or any(HOSTILE in turn.reply.text for turn in one.turns)
    ]
    assert count == f"step 0: {len(told)}"


def test_a_task_is_followed_copied_and_played_again(browser: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path / "lake")
    config = json.loads(run.config.read_text()) | {"env": {"type": "frozen_lake"}}
    write_whole(run.config, json.dumps(config))
    again = read_rollouts(run.rollouts(0))
    write_rollouts(run.rollouts(30), 30, "train", again.groups, again.verdicts, "frozen_lake")
    browser.open(write_report(run), "#step=0&group=5")
    browser.until("document.querySelector('.members')")
    seed = again.groups[5].task.seed
    play = "[...document.querySelectorAll('.pane code')].map(c => c.innerText)"
    assert browser.read(play) == [f"heedful play --by {run.path} --task {seed}"]
    browser.read("[...document.querySelectorAll('.pane button')].find(b => b.innerText === 'Copy as JSON').click()")
    copied = json.loads(browser.read("document.querySelector('textarea').value"))
    assert (copied["step"], copied["group"], len(copied["members"])) == (0, 5, 8)
    assert copied["task"] == again.groups[5].task.id
    browser.click(".pane button.link")
    browser.until("document.querySelectorAll('.groups tbody tr').length === 2")
    assert [row[0] for row in rows(browser)] == ["step 0", "step 30"]
    assert browser.errors == []


def test_a_group_that_got_all_the_way_and_was_not_paid_comes_first(browser: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    stored = read_rollouts(run.rollouts(20))
    *others, last = stored.groups
    members = tuple(replace(one, outcome=0.0, progress=float(one.member < 3)) for one in last.trajectories)
    unpaid = replace(last, trajectories=members)
    write_rollouts(run.rollouts(20), 20, "train", [*others, unpaid], stored.verdicts, stored.environment)
    write_report(run)
    browser.open(run.report, "#step=20")
    browser.until("document.querySelectorAll('.groups tbody tr').length === 16")
    number, task, _, kind, *_ = rows(browser)[0]
    assert (number, task, kind) == (str(len(others)), last.task.id, "unpaid")
    browser.click(".groups tbody tr button")
    browser.until("document.querySelectorAll('.member').length === 8")
    said = browser.read("[...document.querySelectorAll('.member h4')].map(h => h.innerText)")
    assert [", all the way and unpaid" in one for one in said] == [True] * 3 + [False] * 5
    assert browser.errors == []


def test_two_steps_and_two_runs_stand_side_by_side(page: Browser, run: RunFolder, tmp_path: Path) -> None:
    page.open(run.report, "#step=0&group=1|step=50&group=1")
    page.until("document.querySelectorAll('.pane').length === 2 && document.querySelectorAll('.member').length === 16")
    page.click(".pane + .pane [aria-label='Close this pane']")
    page.until("document.querySelectorAll('.pane').length === 1")
    assert page.read("location.hash") == "#step=0&group=1"
    page.click("#beside")
    page.until("document.querySelectorAll('.pane').length === 2")
    other = make_run(tmp_path / "other", seed=1, decay=0.0)
    page.open(write_comparison([run.path, other.path], tmp_path / "both.html"))
    page.click("#curves .plot", right=0.46)
    page.until("document.querySelectorAll('.pane').length === 2 && document.querySelectorAll('.groups').length === 2")
    assert (
        page.read("location.hash") == "#step=30|run=1&step=30"
    )  # the chart of evaluations has no step between 0 and 30
    assert page.read("document.querySelector('.pane + .pane [aria-label=Run]').selectedOptions[0].text") == "other"
    again = read_rollouts(run.rollouts(30))
    write_rollouts(other.rollouts(30), 30, "train", again.groups[::-1], again.verdicts, again.environment)
    page.open(write_comparison([run.path, other.path], tmp_path / "both.html"), "#step=30&group=3|run=1&step=30")
    page.until("document.querySelector('.members')")
    page.read(
        "[...document.querySelectorAll('.pane button')].find(b => b.innerText === 'This task in all panes').click()"
    )
    page.until("document.querySelectorAll('.members').length === 2")
    assert page.read("location.hash") == f"#step=30&group=3|run=1&step=30&group={len(again.groups) - 4}"


def test_a_large_run_loads_its_steps_from_the_folder_beside_it(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.report.page.INLINE", 1000)
    browser.open(write_report(make_run(tmp_path / "large")), "#step=30&group=2")
    browser.until("document.querySelectorAll('.member').length === 8")
    assert browser.errors == []
    (tmp_path / "large" / "report_steps" / "0-40.js").unlink()
    browser.read("location.hash = '#step=40&group=2'")
    browser.until("document.querySelector('#panes > .flag')")
    assert "keep the folder beside the page" in browser.read("document.querySelector('#panes > .flag').innerText")
    browser.errors.clear()


def test_dark_mode_has_other_colours_and_a_phone_needs_no_sideways_scrolling(page: Browser, run: RunFolder) -> None:
    page.open(run.report, "#step=20&group=1&member=0&turn=0")
    page.until("document.querySelector('.member')")
    ground = (
        "getComputedStyle(document.body).backgroundColor + getComputedStyle(document.querySelector('.thought')).color"
    )
    light = page.read(ground)
    page.dark()
    assert page.read(ground) != light
    page.size(390, 800)
    page.until("document.documentElement.scrollWidth <= 390")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_line_and_focus_ring_has_the_contrast_that_wcag_asks_for(
    page: Browser, run: RunFolder, dark: bool
) -> None:
    page.dark(dark)
    page.open(run.report, "#step=20&group=0&member=0&turn=0|step=20")
    page.until("document.querySelectorAll('.pane').length === 2")
    page.read("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.read("[...document.querySelectorAll('.pane button')].find(one => one.innerText === 'Copy as JSON').click()")
    page.click("#all-steps")
    page.until("document.querySelector('#hits button') && document.querySelector('#maps rect.cell')")
    page.read("document.querySelector('.plot').focus()")
    page.key("ArrowLeft")
    found = page.read(CONTRASTS)
    for kind, least in {"text": 1000, "stroke": 100, "focus": 100, "border": 20}.items():
        assert sum(row[-1].startswith(kind) for row in found) >= least
    assert [row for row in found if row[0] < row[1]] == []
    page.read("document.querySelector('.kind').style.color = '#777'")  # what is too pale is seen
    assert [row[-1] for row in page.read(CONTRASTS) if row[0] < row[1]] == ["text body > header > p.kind"]


def test_what_is_folded_opens_by_its_link_and_the_map_is_drawn(page: Browser, run: RunFolder) -> None:
    page.open(run.report, "#listens")
    page.until("document.querySelectorAll('#maps rect.cell').length === 256")
    assert page.read("document.getElementById('listens').open")
    page.click("#maps rect.cell:nth-of-type(5)")
    page.until("document.querySelectorAll('#maps .pair > div').length === 2")


def test_a_thought_under_another_prompt_shows_both_texts_and_what_changes(page: Browser, run: RunFolder) -> None:
    page.open(run.report, "#listens")
    page.until("document.querySelectorAll('#swaps rect.cell').length === 32 * 4")
    assert page.read("document.querySelectorAll('#swaps rect.none').length") == 32 * 12
    page.read("document.querySelector('#swaps svg').focus()")
    page.key("ArrowLeft")
    page.key("ArrowRight")
    label = "document.querySelector('#swaps svg').getAttribute('aria-label')"
    assert page.read(label).startswith("Thought 1 under prompt 2: 0.900.")  # right for its own prompt: Left
    assert page.read("document.activeElement.tagName") == "svg"
    assert "The likeliest action stays Left." in page.read("document.querySelector('#swaps .map-right').innerText")
    assert page.read("document.querySelectorAll('#swaps .map-right .pair > div').length") == 2
    page.read("document.getElementById('swap-kind').value = 'prompt'")
    page.read("document.getElementById('swap-kind').dispatchEvent(new Event('change'))")
    assert page.read(label).startswith("Thought 1 under prompt 2: 0.100.")  # right for prompt 2: Up


def test_maps_and_swaps_of_two_steps_and_of_two_runs_stand_side_by_side(
    page: Browser, run: RunFolder, tmp_path: Path
) -> None:
    steps = "[...document.querySelectorAll('#maps output')].map(one => Number(one.innerText))"
    slide = "(number, place) => { const one = document.querySelectorAll('#maps [type=range]')[number]; "
    slide += "one.value = place; one.dispatchEvent(new Event('input')); }"
    page.open(run.report, "#listens")
    page.until("document.querySelectorAll('#maps .card').length === 1")
    page.click("#map-beside")
    page.until("document.querySelectorAll('#maps .card').length === 2")
    assert page.read(steps) == [60, 0]  # the last step and the first
    page.read(f"({slide})(0, 1)")
    assert page.read(steps) == [20, 0]
    page.read("document.querySelector('#maps [aria-label=\"Close this map\"]').click()")
    assert page.read(steps) == [0]

    other = make_run(tmp_path / "other", seed=1, decay=0.0)
    page.open(write_comparison([run.path, other.path], tmp_path / "both.html"), "#listens")
    page.until("document.querySelectorAll('#swaps .card').length === 2")
    diagonal = "[...document.querySelectorAll('#maps .aside')].map(one => one.innerText).join()"
    assert [float(value) < 0.5 for value in re.findall(r"Mean of the diagonal ([\d.]+)", page.read(diagonal))] == [
        True,
        False,
    ]
    page.read(f"({slide})(1, 0)")
    assert page.read(steps) == [0, 0]  # all at the same step
    page.click("#map-together")
    page.read(f"({slide})(1, 3)")
    assert page.read(steps) == [0, 60]
    titles = "[...document.querySelectorAll('#swaps .map-left h4')].map(one => one.innerText)"
    assert page.read(titles) == ["lake 's, step 0", "other, step 60"]
    page.read("const chosen = document.querySelector('#maps [aria-label=Run]'); chosen.value = '1'")
    page.read("chosen.dispatchEvent(new Event('change'))")
    page.until("document.querySelector('#swaps h4').innerText === 'other, step 0'")
    page.read("document.querySelectorAll('#maps [type=range]')[0].focus()")
    page.key("ArrowRight")
    assert page.read(steps) == [20, 60]
    page.click("#maps rect.cell:nth-of-type(5)")  # prompts of another step are others: its cell stays
    picked = "[...document.querySelectorAll('#maps .map-left svg')].map(one => one.getAttribute('aria-label'))"
    assert [one.split(":")[0] for one in page.read(picked)] == [
        "Thoughts of prompt 1, prompt 5",
        "Thoughts of prompt 1, prompt 1",
    ]
    page.read("document.querySelectorAll('#maps [type=range]')[1].focus()")
    page.key("ArrowLeft")
    page.key("ArrowLeft")
    page.click("#maps .card + .card rect.cell:nth-of-type(7)")  # the same prompts: picked in both
    assert [one.split(":")[0] for one in page.read(picked)] == ["Thoughts of prompt 1, prompt 7"] * 2


def test_an_alarm_of_one_run_opens_its_step_in_all(page: Browser, run: RunFolder, tmp_path: Path) -> None:
    calm = make_run(tmp_path / "calm", seed=1, decay=0.0)
    page.open(write_comparison([calm.path, run.path], tmp_path / "both.html"))
    page.click("#runs .warns a")
    page.until("document.querySelectorAll('.pane .groups').length === 2")
    assert page.read("location.hash") == "#run=1&step=40|step=40"
    assert page.read("document.activeElement.getAttribute('aria-label')") == "lake 's, step 40"


def test_a_run_without_rollouts_opens_no_pane_of_another_run(browser: Browser, run: RunFolder, tmp_path: Path) -> None:
    bare = tmp_path / "bare" / "heedful"
    write_whole(bare / "metrics.jsonl", run.metrics.read_text())
    write_whole(bare / "config.json", json.dumps({"trainer": "trl"}))
    browser.open(write_comparison([bare, run.path], tmp_path / "both.html"))
    assert "bare/heedful" in browser.read("document.getElementById('runs').innerText")
    browser.click("#runs .warns a")
    browser.until("document.querySelector('.pane .groups')")
    assert browser.read("document.querySelectorAll('.pane').length") == 1
    assert browser.errors == []


def test_a_page_of_200_steps_opens_and_answers_a_click_in_two_seconds(browser: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path / "long")
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    more = [{**lines[step % 60], "step": step} for step in range(200)]
    write_whole(run.metrics, "".join(json.dumps(line) + "\n" for line in more))
    stored = read_rollouts(run.rollouts(20))
    write_rollouts(run.rollouts(0), 0, "train", stored.groups[:4], (stored.verdicts or ())[:4], "frozen_lake")
    content = run.rollouts(0).read_bytes()
    for step in range(200):
        run.rollouts(step).write_bytes(content)
    page = write_report(run)
    browser.call("Performance.enable", timeDomain="threadTicks")  # CPU time: other programs do not count
    browser.open(page)
    browser.click("#curves .plot", right=0.9)
    browser.until("document.querySelectorAll('.groups tbody tr').length === 4")
    assert browser.read("location.hash") > "#step=170"
    measured = {one["name"]: one["value"] for one in browser.call("Performance.getMetrics")["metrics"]}
    assert 0 < measured["TaskDuration"] < 2.0
    assert page.stat().st_size < 3_000_000
    assert browser.errors == []
