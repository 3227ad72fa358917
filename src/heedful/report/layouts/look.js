// ---- from a curve to the rollouts behind it ----
// The address after # says all that is shown: `run=0&step=12&group=3`, a part for each pane, divided by |.
const MOST_PANES = 4;
const panes = document.getElementById("panes");
let runs = [];

const stepsOf = (run) => Object.keys(runs[run].steps).map(Number);
const nearest = (steps, step) => (step > steps.at(-1) ? steps.at(-1)
  : steps.reduce((best, one) => (Math.abs(one - step) < Math.abs(best - step) ? one : best)));
const numbersOf = (has) => runs.map((run, number) => number).filter((number) => has(runs[number]));
const stored = () => numbersOf((run) => Object.keys(run.steps).length);
const nearestStep = (run, step) => nearest(stepsOf(run), step);
const PLACE = ["run", "step", "group", "member", "turn", "task"];

function placeOf(part) {
  const named = [...new URLSearchParams(part)].filter(([key]) => PLACE.includes(key));
  const at = { run: 0, ...Object.fromEntries(named.map(([key, value]) => [key, Number(value)])) };
  if (!(at.run in runs && stepsOf(at.run).length)) return null; // a run without rollouts
  at.step = nearestStep(at.run, at.step || 0);
  return at;
}

function opened() {
  const parts = location.hash.slice(1).split("|").filter((part) => part.includes("="));
  return parts.map(placeOf).filter((at) => at !== null).slice(0, MOST_PANES);
}

function addressOf(places) {
  const said = (at) => Object.entries(at).filter(([key, value]) => value !== undefined && (key !== "run" || value > 0));
  return `#${places.map((at) => new URLSearchParams(said(at)).toString()).join("|")}`;
}

let changed = 0;

// Change what one pane shows, as a step of the browser's history; `quietly`: in the address alone.
function go(number, change, quietly) {
  const places = opened();
  places[number] = { ...places[number], ...change };
  changed = number;
  if (quietly) history.replaceState(null, "", addressOf(places));
  else location.hash = addressOf(places);
}
const AT_STEP = { group: undefined, member: undefined, turn: undefined, task: undefined };

function button(text, action, attributes) {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", action);
  return made;
}

function choose(label, options, value, action) {
  const made = element("select", { "aria-label": label }, ...options.map(([key, text]) =>
    element("option", { value: key }, text)));
  made.value = String(value);
  made.addEventListener("change", () => action(Number(made.value)));
  return made;
}

function outcomeDot(outcome) {
  const words = outcome === null ? "never scored" : typeof outcome === "string" ? "success unknown"
    : `outcome ${numeral(outcome)}`;
  const dot = element("span", { class: "outcome", role: "img", title: words, "aria-label": words });
  if (typeof outcome !== "number") dot.classList.add(outcome === null ? "broken" : "unknown");
  else dot.style.setProperty("--part", `${100 * outcome}%`);
  return dot;
}
const mean = (values) => {
  const known = values.filter((value) => typeof value === "number");
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
};
const verdictOf = (run, [, , , weight, reason]) => (weight === null ? "not filtered" : weight > 0
  ? `kept${weight === 1 ? "" : `, weight ${numeral(weight)}`}` : `dropped: ${runs[run].reasons[reason]}`);

// ---- filters ----
const sought = document.getElementById("sought");
function filter() {
  const { outcome, valid, template, text } = Object.fromEntries(new FormData(sought));
  const words = text.trim().toLowerCase();
  if (!outcome && !valid && !(template > 0) && !words) return null;
  // An episode that broke (null) failed; one of which nothing is known ("nan") did neither.
  const told = (member) => (outcome === "solved" ? member.outcome === 1 : member.outcome < 1);
  return (member, part) => (!outcome || told(member))
    && (!valid || (valid === "valid") === member.turns.every((turn) => turn.valid))
    && (!(template > 0) || (member.template !== null && member.template >= template))
    && (!words || [member.error, ...member.turns.flatMap((turn) => [part.prompts[turn.prompt],
      ...turn.pieces.map(([, piece]) => piece),
      turn.actions, turn.effect, turn.state])].some((piece) => piece.toLowerCase().includes(words)));
}
const countsOf = (part, wanted) =>
  part.groups.map((members) => members.filter((member) => wanted(member, part)).length);

async function searchAll() {
  const wanted = filter() || (() => true), hits = document.getElementById("hits");
  const { run } = opened()[0], found = [];
  for (const step of stepsOf(run)) {
    hits.textContent = `Reading step ${step} …`;
    const count = countsOf(await pack(`${run}-${step}`), wanted).reduce((sum, one) => sum + one, 0);
    if (count) found.push([step, count]);
  }
  hits.replaceChildren(element("p", { class: "aside" },
    `${found.reduce((sum, [, count]) => sum + count, 0)} episodes in ${found.length} steps. `,
    ...found.map(([step, count]) => button(`step ${step}: ${count}`, () => go(0, { step, ...AT_STEP })))));
}

// ---- a step: its groups, by what moved ----
function stepView(at, number, part, wanted) {
  const counts = wanted ? countsOf(part, wanted) : null;
  const rows = runs[at.run].steps[at.step]
    .map((row, group) => ({ row, group, count: counts ? counts[group] : null }))
    .filter(({ count }) => count !== 0)
    .sort((a, b) => (b.row[7] === "unpaid") - (a.row[7] === "unpaid") || b.row[6] - a.row[6]);
  const heads = ["Group", "Task", "Outcomes", "Kind", "Reward", "Spread", "Verdict", "n", "Moved",
    ...(wanted ? ["Matching"] : [])];
  const body = rows.map(({ row, group, count }) => {
    const [task, outcomes, rewards, weight, , spread, moved, kind] = row;
    const name = runs[at.run].tasks[task][0];
    const made = element("tr", { class: weight === 0 ? "dropped" : "" },
      element("th", { scope: "row" }, button(String(group), () => go(number, { group }),
        { "aria-label": `Open group ${group}` })),
      element("td", {}, button(name, () => go(number, { task }), { class: "link", title: "This task over time" })),
      element("td", {}, element("span", { class: "outcomes" }, ...outcomes.map(outcomeDot))),
      element("td", { class: kind === "unpaid" ? "flag" : "" }, kind || "–"),
      ...[numeral(mean(rewards)), spread === null ? "–" : numeral(spread), verdictOf(at.run, row),
        String(outcomes.length), numeral(moved)].map((text) => element("td", {}, text)),
      wanted ? element("td", {}, String(count)) : null);
    made.addEventListener("click", (event) => { if (!event.target.closest("button")) go(number, { group }); });
    return made;
  });
  const all = runs[at.run].steps[at.step].length;
  return [
    element("p", { class: "aside" },
      `${rows.length === all ? all : `${rows.length} of ${all}`} groups: unpaid ones first, then those that moved most. `,
      "Moved: mean of |reward − mean of the group|, times the filter's weight."),
    element("div", { class: "scroll" }, element("table", { class: "groups" },
      element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
        element("tbody", {}, ...body))),
  ];
}

// ---- one task over time ----
const aboutTask = (seed, split) => `${split}${seed === "0" ? "" : `, seed ${seed}`}`; // a log knows no seed
function taskView(at, number) {
  const visits = stepsOf(at.run).flatMap((step) => runs[at.run].steps[step].map((row, group) => ({ step, row, group }))
    .filter(({ row }) => row[0] === at.task));
  const [name, seed, split] = runs[at.run].tasks[at.task];
  return [
    element("h3", {}, `Task ${name}`), element("p", { class: "aside" },
      `${aboutTask(seed, split)}. Visits: ${visits.length}. `), playing(at.run, seed, split),
    element("div", { class: "scroll" }, element("table", { class: "groups" },
      element("thead", {}, element("tr", {}, ...["Step", "Outcomes", "Reward", "Verdict", "Moved"]
        .map((head) => element("th", { scope: "col" }, head)))),
      element("tbody", {}, ...visits.map(({ step, row, group }) => element("tr", {},
        element("th", { scope: "row" }, button(`step ${step}`, () => go(number, { ...AT_STEP, step, group }))),
        element("td", {}, element("span", { class: "outcomes" }, ...row[1].map(outcomeDot))),
        ...[numeral(mean(row[2])), verdictOf(at.run, row), numeral(row[6])].map((text) => element("td", {}, text))))))),
  ];
}

function playing(run, seed, split, member) {
  const { play } = runs[run];
  if (!play) return null;
  const quoted = /^[\w./-]+$/.test(play) ? play : `'${play.replaceAll("'", "'\\''")}'`;
  return element("p", { class: "aside" }, "Play it again: ", element("code", {},
    `heedful play --by ${quoted} --task ${seed}${member ? ` --member ${member}` : ""}`));
}

// ---- a group: its members side by side ----
function entropyStrip(turn) {
  const values = [...turn.entropies].map((letter) => (letter.charCodeAt(0) - 35) / 20);
  if (turn.words) {
    return element("pre", { class: "words" }, ...turn.words.map(([text], index) => {
      const span = element("span", { class: "listens", title: `${numeral(values[index])} nats` }, text);
      span.style.setProperty("--strength", `${Math.round(70 * Math.min(1, values[index] / 2))}%`);
      return span;
    }));
  }
  const strip = drawn("svg", { class: "strip", viewBox: `0 0 ${values.length} 20`, preserveAspectRatio: "none",
    role: "img", "aria-label": `entropy of ${values.length} tokens, mean ${numeral(mean(values))} nats` });
  values.forEach((value, index) => {
    const bar = drawn("rect", { class: index < turn.tokens[0] ? "in-thought" : "in-answer", x: index, width: 0.9,
      y: 20 - Math.min(20, 8 * value), height: Math.min(20, 8 * value) });
    const title = drawn("title", {});
    title.textContent = `token ${index + 1}: ${numeral(value)} nats`;
    bar.append(title);
    strip.append(bar);
  });
  return strip;
}

function turnView(turn, place, part, open, chosen) {
  const row = (name, value) => (value === "" ? null : element("tr", {}, element("th", { scope: "row" }, name),
    element("td", {}, value)));
  const flags = [turn.valid ? "" : "not executable as written", turn.closed ? "" : "thought not closed", turn.cut
    ? "cut at the token limit" : ""].filter(Boolean).join(", ");
  const piece = ([role, text]) => (role === "thought" && turn.words ? showWords({ tokens: turn.words, left_out: 0,
    sum: turn.words.reduce((sum, [, value]) => sum + value, 0) / 100 })
    : element("pre", { class: `piece ${role}` }, text.replace(/^\n+/, "")));
  const inside = element("details", { class: "turn" }, element("summary", {},
    `Turn ${place + 1}${turn.actions ? `: ${turn.actions}` : turn.valid ? "" : ": no action"}`));
  inside.open = open;
  const fill = () => {
    if (!inside.open || inside.children.length > 1) return;
    inside.append(element("h5", {}, `Prompt${turn.restarts ? ", read anew" : ""}`), ...(turn.images || [])
      .map((digest) => shownPicture(part.pictures, digest)),
      element("pre", { class: "piece prompt" }, part.prompts[turn.prompt]),
      element("table", {}, row("effect", turn.effect), row("reward", Object.entries(turn.components)
        .map(([name, value]) => `${name} ${numeral(value)}`).join(", ")),
        turn.tokens ? row("tokens", `${turn.tokens[2]}: thought ${turn.tokens[0]}, answer ${turn.tokens[1]}`) : null),
      ...(turn.state ? [element("h5", {}, "State after"), element("pre", { class: "piece prompt" }, turn.state)] : []),
      ...(turn.entropies ? [element("details", {}, element("summary", {}, "Entropy of each token"),
        entropyStrip(turn))] : []));
  };
  inside.addEventListener("toggle", fill);
  inside.firstChild.addEventListener("click", () => { if (!inside.open) chosen(); });
  fill();
  return element("div", { class: "turn-in" }, inside, ...turn.pieces.map(piece), flags
    ? element("p", { class: "flag" }, flags) : null);
}

function memberCard(at, number, place, member, part, rewards) {
  const parts = {};
  for (const turn of member.turns) for (const [name,
    value] of Object.entries(turn.components)) if (typeof value === "number") parts[name] = (parts[name] || 0) + value;
  const row = (name, value) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value));
  const middle = mean(rewards), unknown = typeof member.outcome !== "number";
  const ended = unknown && ["solved", "failed", "out_of_turns"].includes(member.ending) ? ""
    : member.ending.replaceAll("_", " ");
  return element("article", { class: `member${at.member === place ? " picked" : ""}`, tabindex: 0,
    "aria-label": `Member ${member.member}`, "data-member": place },
    element("h4", {}, outcomeDot(member.outcome), ` Member ${member.member}`, ended ? `: ${ended}` : "",
      member.progress === 1 && member.outcome < 1 ? element("span", { class: "flag" }, ", all the way and unpaid") : null),
    element("table", {}, ...Object.entries(parts).map(([name, value]) => row(name, numeral(value))),
      row("reward", numeral(member.reward)), row("advantage", typeof member.reward === "number"
        ? numeral(Number((member.reward - middle).toFixed(4))) : "none"),
      ...(member.progress === null ? [] : [row("progress", numeral(member.progress))]),
      row("template share", member.template === null ? "–" : numeral(member.template))),
    member.error ? element("p", { class: "flag" }, member.error) : null,
    ...(member.turns.length ? member.turns.map((turn, index) => turnView(turn, index, part, at.member === place
      && at.turn === index, () => go(number, { member: place, turn: index }, true)))
      : [element("p", { class: "absent" }, "This episode broke before its first turn.")]));
}

// Open the group of the same task in every pane whose step has it.
function openInAll(name) {
  const groupOf = ({ run, step }) => runs[run].steps[step].findIndex(([task]) => runs[run].tasks[task][0] === name);
  location.hash = addressOf(opened().map((at) => (groupOf(at) < 0 ? at : { ...at, ...AT_STEP, group: groupOf(at) })));
}

function groupView(at, number, part, wanted) {
  const row = runs[at.run].steps[at.step][at.group], members = part.groups[at.group];
  const [name, seed, split] = runs[at.run].tasks[row[0]];
  const shown = members.map((member, place) => ({ member, place })).filter(({ member }) => !wanted
    || wanted(member, part));
  const worded = members.some((member) => member.turns.some((turn) => turn.words));
  const copied = element("textarea", { readonly: "", hidden: "", rows: 6, "aria-label": "This group as JSON" });
  const copy = button("Copy as JSON", () => {
    const full = members.map((member) => ({ ...member, turns: member.turns.map((turn) =>
      ({ ...turn, prompt: part.prompts[turn.prompt] })) }));
    copied.value = JSON.stringify({ run: runs[at.run].name, step: at.step, group: at.group, task: name, seed, split,
      verdict: verdictOf(at.run, row), members: full }, null, 1);
    copied.hidden = false;
    copied.select();
    navigator.clipboard.writeText(copied.value).then(() => { copy.textContent = "Copied"; },
      () => { copy.textContent = "Press Ctrl-C to copy"; });
  });
  const picked = at.member in members ? members[at.member].member : 0;
  return [
    element("p", { class: "aside" }, "Task ", button(name, () => go(number, { task: row[0] }),
      { class: "link", title: "This task over time" }),
      `, ${aboutTask(seed, split)}. Verdict: ${verdictOf(at.run, row)}`,
      `${row[5] === null ? "" : `, spread ${numeral(row[5])}`}. `,
      "Advantage: reward − mean of the group, before scaling. ", copy,
      ...(opened().length > 1 ? [" ", button("This task in all panes", () => openInAll(name))] : [])),
    playing(at.run, seed, split, picked), copied, worded && colourScale !== null ? wordLegend() : null,
    wanted ? element("p", { class: "aside" }, `${shown.length} of ${members.length} members match the filter.`) : null,
    element("div", { class: "members" }, ...shown.map(({ member, place }) =>
      memberCard(at, number, place, member, part, row[2]))),
  ];
}

// ---- panes ----
async function paneOf(at, number, wanted, several) {
  const steps = stepsOf(at.run), place = steps.indexOf(at.step);
  const beside = (text, label, to) => button(text, () => go(number, { ...AT_STEP, step: steps[to] }),
    { "aria-label": label, ...(to in steps ? {} : { disabled: "" }) });
  const crumbs = [["group", "Group"], ["task", "Task"]].filter(([key]) => at[key] !== undefined);
  const head = element("div", { class: "controls" },
    runs.length > 1 ? choose("Run", stored().map((run) => [run, runs[run].name]), at.run, (run) =>
      go(number, { ...AT_STEP, run })) : null,
    beside("‹", "Step before", place - 1), choose("Step", steps.map((step) => [step, `step ${step}`]), at.step,
      (step) => go(number, { ...AT_STEP, step })), beside("›", "Step after", place + 1),
    ...(crumbs.length ? [button(`all groups of step ${at.step}`, () => go(number, AT_STEP))] : []),
    several ? button("×", () => { const places = opened(); places.splice(number, 1); location.hash = addressOf(places);
      }, { "aria-label": "Close this pane" }) : null);
  const part = at.task === undefined && (wanted || at.group !== undefined) ? await pack(`${at.run}-${at.step}`) : null;
  const there = at.group !== undefined && at.group in runs[at.run].steps[at.step];
  const content = at.task in runs[at.run].tasks ? taskView(at, number) : there ? groupView(at, number, part, wanted)
    : stepView(at, number, part || await pack(`${at.run}-${at.step}`), wanted);
  return element("section",
    { class: "card pane", tabindex: -1, "aria-label": `${runs[at.run].name}, step ${at.step}` }, head, ...content);
}

let drawnLast = 0;
async function look(moveFocus) {
  const places = opened(), mine = ++drawnLast;
  document.getElementById("look-in").hidden = !places.length;
  if (!places.length) return;
  try {
    const wanted = filter(), made = await Promise.all(places.map((at, number) =>
      paneOf(at, number, wanted, places.length > 1)));
    if (mine !== drawnLast) return; // a later choice was faster
    panes.replaceChildren(...made);
    const picked = panes.querySelector(".member.picked");
    if (picked) picked.scrollIntoView({ block: "nearest" });
    else if (moveFocus) {
      (made[changed] || made[0]).focus({ preventScroll: true });
      document.getElementById("look").scrollIntoView();
    }
  } catch (error) {
    panes.replaceChildren(element("p", { class: "card flag" }, error.message));
  }
}

async function startLooking() {
  const allAt = (step) => addressOf(stored().slice(0, MOST_PANES)
    .map((run) => ({ run, step: nearestStep(run, step) })));
  document.addEventListener("reached", ({ detail }) => {
    location.hash = allAt(detail);
    look(true);
  });
  addEventListener("hashchange", () => {
    if (location.hash === "#look") location.hash = allAt(Infinity);
    else look(true);
  });
  sought.addEventListener("input", () => look(false));
  sought.addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("all-steps").addEventListener("click", searchAll);
  document.getElementById("beside").addEventListener("click", () => {
    const places = opened();
    if (places.length < MOST_PANES) location.hash = addressOf([...places, { ...places.at(-1) }]);
  });
  await look(location.hash.includes("="));
}

async function start() {
  runs = await pack("runs");
  if (panes) await startLooking();
  if (together) await startMaps();
}
if (holder("runs")) start();
