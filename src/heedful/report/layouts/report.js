"use strict";
// Texts from models and environments only ever become text nodes; nothing here writes markup from them.

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function drawn(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function embedded(id) {
  const holder = document.getElementById(id);
  return holder ? JSON.parse(holder.textContent) : null;
}

function numeral(value) {
  if (typeof value !== "number") return value === null ? "none" : String(value);
  const text = Number.isInteger(value) ? String(value) : value.toPrecision(3);
  return text.replace("-", "\u2212");
}

// ---- reading a chart by pointing at it ----
const tip = document.getElementById("tip");

function placeTip(event) {
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 4))}px`;
}

function readable(plot) {
  const known = JSON.parse(plot.dataset.hover);
  const chart = plot.querySelector("svg");
  const cursor = drawn("line", { class: "cursor", y1: 14, y2: 196, visibility: "hidden" });
  chart.append(cursor);
  plot.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    let nearest = 0;
    known.places.forEach((place, index) => {
      if (Math.abs(place - at) < Math.abs(known.places[nearest] - at)) nearest = index;
    });
    cursor.setAttribute("x1", known.places[nearest]);
    cursor.setAttribute("x2", known.places[nearest]);
    cursor.setAttribute("visibility", "visible");
    const step = known.steps[nearest];
    tip.replaceChildren(element("b", {}, `step ${step}`));
    for (const curve of known.curves) {
      if (!(step in curve.at)) continue;
      const swatch = element("i", { style: `background:var(--${curve.hue ? `c${curve.hue}` : "grey"})` });
      tip.append(element("div", {}, swatch, element("span", {}, `${curve.label}: ${curve.at[step]}`)));
    }
    placeTip(event);
  });
  plot.addEventListener("pointerleave", () => {
    tip.style.display = "none";
    cursor.setAttribute("visibility", "hidden");
  });
}
document.querySelectorAll(".plot").forEach(readable);

// A small picture is enlarged by a whole number, so that its pixels stay squares.
const pictures = embedded("picture-sample") || {};

function shownPicture(digest) {
  const { src, width, height, alt } = pictures[digest];
  if (!src) return element("pre", { class: "piece prompt" }, alt || `a picture of ${width} x ${height} pixels`);
  const times = Math.max(1, Math.floor(200 / width));
  return element("img", { class: "picture", src, alt, title: alt, width: String(width * times), height: String(height * times) });
}

// ---- the map of prompts against prompts ----
const frames = embedded("frames");
const shade = (perMille) => Math.sqrt(perMille / 1000).toFixed(3);

// ---- which words of a thought listen ----
// One scale for all steps, so that colours compare.
const colourScale = (frames || []).reduce((most, frame) => (frame.scale === null ? most : Math.max(most, frame.scale)), 0) || null;
const nats = (value) => `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(2)}`;

function wordSpan(text, value) {
  const span = element("span", { class: value < 0 ? "misleads" : "listens" }, text);
  span.style.setProperty("--strength", `${Math.round(70 * Math.min(1, Math.abs(value) / colourScale) ** 0.7)}%`);
  return span;
}

function showWords(words) {
  const spans = words.tokens.map(([text, hundredths]) => {
    const span = wordSpan(text, hundredths / 100);
    span.dataset.nats = String(hundredths / 100);
    return span;
  });
  const cut = words.left_out ? element("i", {}, ` … [${words.left_out} tokens left out]`) : null;
  const shown = element("pre", { class: "thought words" }, ...spans, cut);
  shown.addEventListener("pointermove", (event) => {
    const value = event.target.dataset.nats;
    if (value === undefined) { tip.style.display = "none"; return; }
    tip.replaceChildren(element("b", {}, `${JSON.stringify(event.target.textContent)} ${nats(+value)} nats`),
      element("div", {}, `whole thought ${nats(words.sum)}`));
    placeTip(event);
  });
  shown.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  return shown;
}

function wordLegend() {
  const marks = [-1, -0.5, 0, 0.5, 1].map((part) => wordSpan(` ${part ? nats(part * colourScale) : "0"} `, part * colourScale));
  return element("p", { class: "aside words" }, ...marks,
    " nats: what each token tells of its own prompt, given the tokens before it. Point at a token to read its value.");
}

function showMap(frame, picked) {
  const count = frame.prompts.length, margin = 26, side = 420 / count;
  const svg = drawn("svg", { viewBox: `0 0 ${420 + margin + 4} ${420 + margin + 4}`, role: "img", "aria-label": "posterior over prompts" });
  const every = count <= 16 ? 1 : count <= 32 ? 4 : 8;
  for (let index = 0; index < count; index += every) {
    const middle = margin + (index + 0.5) * side;
    const top = drawn("text", { x: middle, y: margin - 7, "text-anchor": "middle" });
    const left = drawn("text", { x: margin - 6, y: middle + 4, "text-anchor": "end" });
    top.textContent = left.textContent = String(index + 1);
    svg.append(top, left);
  }
  frame.matrix.forEach((row, a) => row.forEach((value, b) => {
    const cell = drawn("rect", {
      class: value === null ? "none" : "cell", "fill-opacity": value === null ? 1 : shade(value), "data-a": a, "data-b": b,
      x: (margin + b * side).toFixed(2), y: (margin + a * side).toFixed(2), width: side.toFixed(2), height: side.toFixed(2),
    });
    svg.append(cell);
  }));
  svg.append(drawn("rect", { class: "frame", x: margin, y: margin, width: 420, height: 420, "pointer-events": "none" }));
  svg.append(drawn("rect", { class: "picked", x: margin + picked.b * side, y: margin + picked.a * side, width: side, height: side }));
  document.getElementById("map-grid").replaceChildren(svg);
  svg.addEventListener("pointermove", (event) => {
    const { a, b } = event.target.dataset;
    if (a === undefined) { tip.style.display = "none"; return; }
    const value = frame.matrix[a][b];
    tip.replaceChildren(element("b", {}, `thoughts of prompt ${+a + 1}, prompt ${+b + 1}`),
      value === null ? "no thought was sampled here" : `posterior ${numeral(value / 1000)}`);
    placeTip(event);
  });
  svg.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  svg.addEventListener("click", (event) => {
    const { a, b } = event.target.dataset;
    if (a === undefined) return;
    picked.a = +a;
    picked.b = +b;
    showMap(frame, picked);
  });
  showMapTexts(frame, picked);
}

function showMapTexts(frame, { a, b }) {
  const prompt = (place) => element("div", {}, element("h4", {}, `Prompt ${place + 1}`),
    ...((frame.images || [])[place] || []).map(shownPicture), element("pre", {}, frame.prompts[place]));
  const value = frame.matrix[a][b];
  const thoughts = frame.thoughts[a].map((text, index) => {
    const words = (frame.words[a] || [])[index];
    return words ? showWords(words) : element("pre", { class: "thought" }, text);
  });
  document.getElementById("map-texts").replaceChildren(
    element("p", { class: "aside" }, "Click a cell to read its prompts and thoughts. ",
      value === null ? "" : `Posterior of prompt ${b + 1} for thoughts of prompt ${a + 1}: ${numeral(value / 1000)}.`),
    element("div", { class: "pair" }, prompt(a), a === b ? null : prompt(b)),
    element("h4", {}, `Thoughts sampled under prompt ${a + 1}`),
    ...(colourScale === null ? [] : [wordLegend()]),
    ...(thoughts.length ? thoughts : [element("p", { class: "aside" }, "none")]),
  );
}

function startMap() {
  const slider = document.getElementById("map-step");
  const picked = { a: 0, b: 0 };
  slider.max = String(frames.length - 1);
  slider.value = slider.max;
  const ramp = document.getElementById("map-ramp");
  const show = () => {
    const frame = frames[+slider.value];
    const last = frame.prompts.length - 1;
    picked.a = Math.min(picked.a, last);
    picked.b = Math.min(picked.b, last);
    document.getElementById("map-step-name").textContent = String(frame.step);
    const cut = frame.prompts_in_all > last + 1 ? ` The first ${last + 1} prompts are drawn.` : "";
    document.getElementById("map-words").textContent =
      `${frame.thoughts_in_all} thoughts, ${frame.prompts_in_all} prompts. Mean of the diagonal ${numeral(frame.diagonal)}; ` +
      `thoughts that tell nothing would give ${numeral(1 / frame.prompts_in_all)}.${cut} Shade is the square root of the posterior.`;
    const even = element("em", { style: `left:${100 / frame.prompts_in_all}%`, "data-word": `even: ${numeral(1 / frame.prompts_in_all)}` });
    ramp.replaceChildren(...Array.from({ length: 50 }, (_, index) => element("span", { style: `opacity:${shade(20 * index + 10)}` })), even);
    showMap(frame, picked);
  };
  slider.addEventListener("input", show);
  show();
}
if (frames && frames.length) startMap();

// ---- the browser of trajectories ----
const sample = embedded("trajectory-sample");
const chosen = { step: 0, group: 0, member: 0 };

function picks(id, labels, current, choose) {
  document.getElementById(id).replaceChildren(...labels.map(({ text, extra, dropped }, index) => {
    const button = element("button", { type: "button", "aria-pressed": String(index === current) }, text, extra);
    if (dropped) button.classList.add("dropped");
    button.addEventListener("click", () => choose(index));
    return button;
  }));
}

function outcomeDot(outcome) {
  const dot = element("span", { class: "outcome", title: outcome === null ? "never scored" : `outcome ${numeral(outcome)}` });
  if (outcome === null) dot.classList.add("broken");
  else dot.style.setProperty("--part", `${100 * outcome}%`);
  return dot;
}

function showTurn(turn, number) {
  const inPlace = (role) => turn.pieces.filter((piece) => (piece[0] === "prompt") === (role === "prompt"))
    .map(([name, text]) => element("pre", { class: `piece ${name}` }, text.replace(/^\n+/, "")));
  const row = (name, value) => (value === "" ? null : element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)));
  const parts = Object.entries(turn.components).map(([name, value]) => `${name} ${numeral(value)}`).join(", ");
  const flags = [turn.valid ? "" : "not executable as written", turn.closed ? "" : "thought not closed", turn.cut ? "cut at the token limit" : ""]
    .filter(Boolean).join(", ");
  const facts = element("table", {},
    row("actions", turn.actions || "none"), row("effect", turn.effect),
    row("reward", `${numeral(turn.reward)}${parts ? ` (${parts})` : ""}`),
    turn.tokens ? row("tokens", `${turn.tokens[2]}: thought ${turn.tokens[0]}, answer ${turn.tokens[1]}`) : null,
    flags ? row("fault", element("span", { class: "flag" }, flags)) : null);
  const after = turn.state ? element("div", {}, element("h4", {}, "State after"), element("pre", { class: "state" }, turn.state)) : null;
  return element("div", { class: "turn" }, element("h4", {}, `Turn ${number}${turn.restarts ? ", read anew" : ""}`),
    element("div", {}, ...(turn.images || []).map(shownPicture), ...inPlace("prompt")), element("div", {}, ...inPlace("reply"), element("div", { class: "after" }, facts, after)));
}

function showTrajectory() {
  const step = sample[chosen.step];
  const group = step.groups[chosen.group];
  const pick = (key, reset) => (index) => {
    chosen[key] = index;
    for (const lower of reset) chosen[lower] = lower === "group" ? firstKept(sample[chosen.step]) : 0;
    showTrajectory();
  };
  picks("pick-step", sample.map((other) => ({ text: String(other.step) })), chosen.step, pick("step", ["group", "member"]));
  picks("pick-group", step.groups.map((other) => ({
    text: String(other.number), dropped: other.verdict && other.verdict.weight === 0,
    extra: element("span", { class: "outcomes" }, ...other.outcomes.map(outcomeDot)),
  })), chosen.group, pick("group", ["member"]));
  if (!group) return;
  picks("pick-member", group.members.map((other) => ({ text: String(other.member), extra: outcomeDot(other.outcome) })),
    chosen.member, pick("member", []));
  const member = group.members[chosen.member];
  const verdict = group.verdict === null ? "not filtered" : group.verdict.weight > 0
    ? `kept (weight ${numeral(group.verdict.weight)}, spread ${numeral(group.verdict.spread)})`
    : `dropped: ${group.verdict.reason} (spread ${numeral(group.verdict.spread)})`;
  document.getElementById("facts").textContent =
    `Task ${group.task}, seed ${group.seed}, ${group.split}. Group ${group.number} of ${step.groups_in_all} (from 0): ${verdict}. ` +
    `Member ${member.member}: ${member.ending.replaceAll("_", " ")}, outcome ${numeral(member.outcome)}, reward ${numeral(member.reward)}` +
    `${member.progress === null ? "" : `, progress ${numeral(member.progress)}`}.${member.error ? ` Error: ${member.error}` : ""}`;
  const turns = member.turns.map((turn, index) => showTurn(turn, index + 1));
  const leftOut = member.turns_in_all - turns.length;
  if (leftOut) turns.push(element("p", { class: "absent" }, `${leftOut} more turns are left out.`));
  document.getElementById("turns").replaceChildren(
    ...(turns.length ? turns : [element("p", { class: "absent" }, "This episode broke before its first turn.")]));
}
// A group that taught something is the better place to start reading.
const firstKept = (step) => Math.max(0, step.groups.findIndex((group) => group.verdict && group.verdict.weight > 0));
if (sample && sample.length) {
  chosen.group = firstKept(sample[0]);
  showTrajectory();
}

// ---- finding a measurement ----
const nameFilter = document.getElementById("name-filter");
if (nameFilter) {
  nameFilter.addEventListener("input", () => {
    const wanted = nameFilter.value.trim().toLowerCase();
    document.querySelectorAll(".family").forEach((family) => {
      let found = 0;
      family.querySelectorAll("tr[data-name]").forEach((row) => {
        row.hidden = !row.dataset.name.toLowerCase().includes(wanted);
        found += row.hidden ? 0 : 1;
      });
      family.hidden = found === 0;
      if (wanted) family.open = true;
    });
  });
}
