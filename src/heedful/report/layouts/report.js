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

// What the page carries is packed JSON. A step that is too large for the page is a script in the folder beside it: a
// page of the file system may load scripts, but it may not fetch.
const holder = (name) => document.getElementById(`pack-${name}`);
const waiting = new Map();

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

function heedfulPart(name, text) { waiting.get(name).found(text); }

function pack(name) {
  if (!waiting.has(name)) {
    let found, failed;
    const text = new Promise((yes, no) => { found = yes; failed = no; });
    waiting.set(name, { found, made: text.then(unpacked) });
    const folder = holder("runs").dataset.beside;
    if (holder(name)) found(holder(name).textContent);
    else {
      const script = element("script", { src: `${folder}/${name}.js` });
      script.onerror = () => failed(new Error(`${folder}/${name}.js is missing: keep the folder beside the page.`));
      document.head.append(script);
    }
  }
  return waiting.get(name).made;
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
  if (!known.steps.length) return; // bars: their own titles say all
  const chart = plot.querySelector("svg");
  const cursor = drawn("line", { class: "cursor", y1: 14, y2: 196, visibility: "hidden" });
  chart.append(cursor);
  const last = known.places.length - 1;
  let at = last;
  const title = chart.getAttribute("aria-label");
  for (const [name, value] of Object.entries({ tabindex: 0, role: "slider", "aria-label": `${title}, by step`,
    "aria-valuemin": known.steps[0], "aria-valuemax": known.steps[last],
      "aria-valuenow": known.steps[last] })) plot.setAttribute(name, value);
  const show = (place, where) => {
    at = place;
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, known.places[at]);
    cursor.setAttribute("visibility", "visible");
    const step = known.steps[at];
    const told = known.curves.filter((curve) => step in curve.at);
    tip.replaceChildren(element("b", {}, `step ${step}`), ...told.map((curve) => element("div", {},
      element("i", { style: `background:var(--${curve.hue ? `c${curve.hue}` : "grey"})` }),
      element("span", {}, `${curve.label}: ${curve.at[step]}`))));
    plot.setAttribute("aria-valuenow", step);
    plot.setAttribute("aria-valuetext",
      `step ${step}. ${told.map((curve) => `${curve.label} ${curve.at[step]}`).join(", ")}`);
    placeTip(where);
  };
  const hide = () => {
    tip.style.display = "none";
    cursor.setAttribute("visibility", "hidden");
  };
  const nearest = (event) => {
    const box = chart.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    return known.places.reduce((best, place, index) => (Math.abs(place - x) < Math.abs(known.places[best] - x) ? index
      : best), 0);
  };
  const reached = () => { hide(); plot.dispatchEvent(new CustomEvent("reached",
    { bubbles: true, detail: known.steps[at] })); };
  plot.addEventListener("pointermove", (event) => show(nearest(event), event));
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("click", (event) => { at = nearest(event); reached(); });
  plot.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
    if (event.key === "Enter") reached();
    if (to === undefined) return;
    event.preventDefault();
    const box = chart.getBoundingClientRect(), place = Math.max(0, Math.min(last, to));
    show(place, { clientX: box.left + (known.places[place] / chart.viewBox.baseVal.width) * box.width,
      clientY: box.top + 30 });
  });
}
document.querySelectorAll(".plot").forEach(readable);

// A small picture is enlarged by a whole number, so that its pixels stay squares.
function shownPicture(pictures, digest) {
  const { src, width, height, alt } = pictures[digest];
  if (!src) return element("pre", { class: "piece prompt" }, alt || `a picture of ${width} x ${height} pixels`);
  const times = Math.max(1, Math.floor(200 / width));
  return element("img", { class: "picture", src, alt, title: alt, width: String(width * times),
    height: String(height * times) });
}

// ---- which words of a thought listen ----
let colourScale = null; // one for all runs and steps, so that colours compare
const nats = (value) => `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(2)}`;

function wordSpan(text, value) {
  const span = element("span", { class: value < 0 ? "misleads" : "listens" }, text);
  span.style.setProperty("--strength", `${Math.round(70 * Math.min(1, Math.abs(value) / (colourScale || 2)) ** 0.7)}%`);
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
  const marks = [-1, -0.5, 0, 0.5, 1].map((part) => wordSpan(` ${part ? nats(part * colourScale) : "0"} `,
    part * colourScale));
  return element("p", { class: "aside words" }, ...marks,
    " nats: what each token tells of its own prompt, given the tokens before it. Point at a token to read its value.");
}

// Rows against columns, shaded. `value(a, b)` from 0 to 1, or null; a click or an arrow key picks a cell.
function drawMatrix(place, rows, columns, value, words, picked, choose) {
  const margin = 26, wide = 420 / columns, high = 420 / rows, every = (count) =>
    (count <= 16 ? 1 : count <= 32 ? 4 : 8);
  const svg = drawn("svg", { viewBox: `0 0 ${420 + margin + 4} ${420 + margin + 4}`, role: "img", tabindex: 0,
    "aria-label": `${words(picked.a, picked.b)}. Arrow keys go to other cells.` });
  const label = (index, attributes) => {
    const text = drawn("text", attributes);
    text.textContent = String(index + 1);
    svg.append(text);
  };
  for (let index = 0; index < columns; index += every(columns)) label(index,
    { x: margin + (index + 0.5) * wide, y: margin - 7, "text-anchor": "middle" });
  for (let index = 0; index < rows; index += every(rows)) label(index,
    { x: margin - 6, y: margin + (index + 0.5) * high + 4, "text-anchor": "end" });
  for (let a = 0; a < rows; a += 1) {
    for (let b = 0; b < columns; b += 1) {
      const shown = value(a, b);
      svg.append(drawn("rect", { class: shown === null ? "none" : "cell", "fill-opacity": shown === null ? 1
        : Math.sqrt(shown).toFixed(3), "data-a": a, "data-b": b,
        x: (margin + b * wide).toFixed(2), y: (margin + a * high).toFixed(2), width: wide.toFixed(2),
          height: high.toFixed(2) }));
    }
  }
  svg.append(drawn("rect", { class: "frame", x: margin, y: margin, width: 420, height: 420,
    "pointer-events": "none" }));
  for (const name of ["halo", "picked"]) {
    svg.append(drawn("rect", { class: name, x: margin + picked.b * wide, y: margin + picked.a * high, width: wide,
      height: high }));
  }
  const held = place.contains(document.activeElement);
  place.replaceChildren(svg);
  if (held) svg.focus({ preventScroll: true });
  svg.addEventListener("pointermove", (event) => {
    const { a, b } = event.target.dataset;
    if (a === undefined) { tip.style.display = "none"; return; }
    tip.replaceChildren(element("b", {}, words(+a, +b)));
    placeTip(event);
  });
  svg.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  svg.addEventListener("click", (event) => {
    const { a, b } = event.target.dataset;
    if (a !== undefined) choose({ a: +a, b: +b });
  });
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    choose({ a: Math.max(0, Math.min(rows - 1, picked.a + by[0])), b: Math.max(0,
      Math.min(columns - 1, picked.b + by[1])) });
  });
}

// ---- maps: which prompt a thought looks like, and what the action follows when thoughts are exchanged ----
// A pane for each run and step that is looked at. A cell that is picked in one is picked in all that have its prompts.
const maps = [];
const together = document.getElementById("map-together"), kind = document.getElementById("swap-kind");

function pick(pane, what, to, promptsOf, show) {
  const wanted = promptsOf(pane, to);
  maps.filter((one) => one === pane || promptsOf(one, to).every((text, index) => text && text === wanted[index]))
    .forEach((one) => { Object.assign(one[what], to); show(one); });
}

function showMap(pane) {
  const { frame, cell } = pane, known = frame.prompts.length;
  for (const side of ["a", "b"]) cell[side] = Math.min(cell[side], known - 1);
  const words = (a, b) =>
    `Thoughts of prompt ${a + 1}, prompt ${b + 1}: ${frame.matrix[a][b] === null ? "no thought was sampled here"
      : `posterior ${numeral(frame.matrix[a][b] / 1000)}`}`;
  drawMatrix(pane.grid, known, known, (a, b) => (frame.matrix[a][b] === null ? null : frame.matrix[a][b] / 1000), words,
    cell, (to) => pick(pane, "cell", to, (one, { a, b }) => [one.frame.prompts[a], one.frame.prompts[b]], showMap));
  const even = element("em", { style: `left:${100 / frame.prompts_in_all}%`,
    "data-word": `even: ${numeral(1 / frame.prompts_in_all)}` });
  pane.ramp.replaceChildren(...Array.from({ length: 50 }, (_, index) => element("span",
    { style: `opacity:${Math.sqrt((index + 0.5) / 50).toFixed(3)}` })), even);
  const cut = frame.prompts_in_all > known ? ` The first ${known} prompts are drawn.` : "";
  pane.about.textContent = `${frame.thoughts_in_all} thoughts, ${frame.prompts_in_all} prompts. Mean of the diagonal `
    + `${numeral(frame.diagonal)}; thoughts that tell nothing would give ${numeral(1 / frame.prompts_in_all)}.${cut} `
    + "Shade is the square root of the posterior.";
  const prompt = (place) => element("div", {}, element("h4", {}, `Prompt ${place + 1}`),
    ...((frame.images || [])[place] || []).map((digest) => shownPicture(pane.pictures, digest)),
      element("pre", {}, frame.prompts[place]));
  const thoughts = frame.thoughts[cell.a].map((text, index) => {
    const tokens = (frame.words[cell.a] || [])[index];
    return tokens ? showWords(tokens) : element("pre", { class: "thought" }, text);
  });
  pane.texts.replaceChildren(
    element("p", { class: "aside" }, `Click a cell to read its prompts and thoughts. ${words(cell.a, cell.b)}.`),
    element("div", { class: "pair" }, prompt(cell.a), cell.a === cell.b ? null : prompt(cell.b)),
    element("h4", {}, `Thoughts sampled under prompt ${cell.a + 1}`),
    ...(colourScale === null ? [] : [wordLegend()]),
    ...(thoughts.length ? thoughts : [element("p", { class: "aside" }, "none")]),
  );
}

// ---- the swap view: thought i under prompt j ----
function showSwaps(pane) {
  const { swaps } = pane.frame, at = pane.swap;
  if (!swaps) {
    pane.swapGrid.replaceChildren(element("p", { class: "absent" },
      "No thoughts were exchanged at this step."));
    pane.swapTexts.replaceChildren();
    return;
  }
  const known = swaps.right.every((row) => row !== null), rows = swaps.thoughts.length;
  const worth = { prompt: (a, b) => swaps.right[b], own: (a) => swaps.right[swaps.own[a]], taken: (a) =>
    swaps.names.map((_, action) => Number(action === swaps.taken[a])) }[known ? kind.value : "taken"];
  const value = (a, b) => {
    const chances = swaps.chances[a][b];
    return chances === null ? null : Math.min(1, worth(a, b)
      .reduce((sum, one, action) => sum + (one * chances[action]) / 1000, 0));
  };
  const words = (a, b) =>
    `Thought ${a + 1} under prompt ${b + 1}${swaps.own[a] === b ? " (its own)" : ""}: `
    + `${value(a, b) === null ? "not read" : numeral(value(a, b))}`;
  Object.assign(at, { a: Math.min(at.a, rows - 1), b: Math.min(at.b, swaps.prompts.length - 1) });
  const promptsOf = ({ frame: { swaps: its } }, { a, b }) => (its ? [its.prompts[its.own[a]], its.prompts[b]] : [null]);
  drawMatrix(pane.swapGrid, rows, swaps.prompts.length, value, words, at, (to) =>
    pick(pane, "swap", to, promptsOf, showSwaps));
  const own = swaps.own[at.a], before = swaps.chances[at.a][own], after = swaps.chances[at.a][at.b];
  const cell = (chances, action) => element("td", {}, chances === null ? "not read"
    : (chances[action] / 1000).toFixed(3));
  const mark = (prompt, action) => (swaps.right[prompt] !== null && swaps.right[prompt][action] > 0 ? " ✓" : "");
  const best = (chances) => (chances === null ? null : chances.indexOf(Math.max(...chances)));
  const [first, then] = [best(before), best(after)];
  pane.swapTexts.replaceChildren(
    known ? "" : element("p", { class: "aside" },
      "Right actions are not known here. Shade: the probability of the action that the thought took."),
    element("p", {}, after === null ? "This thought was not read under this prompt. " : first === then
      ? `The likeliest action stays ${swaps.names[first]}. `
      : `The likeliest action changes from ${swaps.names[first]} to ${swaps.names[then]}. `),
    element("table", {}, element("thead", {}, element("tr", {}, ...["Action", `own prompt ${own + 1}`,
      `prompt ${at.b + 1}`].map((head) => element("th", { scope: "col" }, head)))),
      element("tbody", {}, ...swaps.names.map((name, action) => element("tr", {},
        element("th", { scope: "row" }, `${name}${action === swaps.taken[at.a] ? " (taken)" : ""}`),
        ...[[before, own], [after, at.b]].map(([chances, prompt]) => { const made = cell(chances, action);
          made.append(mark(prompt, action)); return made; }))))),
    element("h4", {}, `Thought ${at.a + 1}`), element("pre", { class: "thought" }, swaps.thoughts[at.a]),
    element("div", { class: "pair" }, ...[...new Set([own, at.b])].map((prompt) =>
      element("div", {}, element("h4", {}, `Prompt ${prompt + 1}`), element("pre", {}, swaps.prompts[prompt])))));
}

// A map and a swap view of one run, at the measured step that is nearest.
async function mapPane(run, step) {
  const { frames, pictures } = await pack(`${run}-frames`), steps = frames.map((frame) => frame.step);
  const pane = { run, pictures, cell: { a: 0, b: 0 }, swap: { a: 0, b: 1 } };
  for (const part of ["grid", "swapGrid"]) pane[part] = element("div");
  for (const part of ["texts", "swapTexts"]) pane[part] = element("div", { class: "map-right", "aria-live": "polite" });
  pane.ramp = element("span", { class: "ramp" });
  pane.about = element("p", { class: "aside" });
  const slider = element("input", { type: "range", min: 0, max: steps.length - 1, step: 1, "aria-label": "Step" });
  const name = element("output"), title = element("h4");
  const put = (made) => { maps.splice(maps.indexOf(pane), 1, ...made); arrangeMaps(); };
  const head = element("div", { class: "controls" },
    runs.length > 1 ? choose("Run", numbersOf((one) => one.frames).map((one) => [one, runs[one].name]), run,
      async (other) => put([await mapPane(other, pane.frame.step)])) : null,
    element("label", {}, "Step ", slider, " ", name), button("×", () => put([]), { "aria-label": "Close this map" }));
  pane.to = (wanted) => {
    slider.value = steps.indexOf(nearest(steps, wanted));
    pane.frame = frames[slider.value];
    name.textContent = String(pane.frame.step);
    title.textContent = `${runs.length > 1 ? `${runs[run].name}, ` : ""}step ${pane.frame.step}`;
    showMap(pane);
    showSwaps(pane);
  };
  slider.addEventListener("input", () => {
    const wanted = steps[slider.value];
    (together.checked ? maps : [pane]).forEach((one) => one.to(wanted));
  });
  const scale = element("div", { class: "scale" }, element("span", {}, "0"), pane.ramp, element("span", {}, "1"));
  pane.map = element("div", { class: "card map" },
    element("div", { class: "map-left" }, head, pane.grid, scale, pane.about), pane.texts);
  pane.swaps = element("div", { class: "card map" }, element("div", { class: "map-left" }, title, pane.swapGrid),
    pane.swapTexts);
  pane.to(step);
  return pane;
}

function arrangeMaps() {
  document.getElementById("maps").replaceChildren(...maps.map((pane) => pane.map));
  if (kind) document.getElementById("swaps").replaceChildren(...maps.map((pane) => pane.swaps));
  document.querySelectorAll("[aria-label='Close this map']").forEach((one) => { one.hidden = maps.length < 2; });
  document.getElementById("map-beside").hidden = maps.length >= MOST_PANES;
  together.parentElement.hidden = maps.length < 2;
}

async function startMaps() {
  colourScale = runs.reduce((most, run) => (run.scale === null ? most : Math.max(most, run.scale)), 0) || null;
  const measured = numbersOf((run) => run.frames);
  together.checked = measured.length > 1;
  maps.push(...await Promise.all(measured.slice(0, MOST_PANES).map((run) => mapPane(run, Infinity))));
  arrangeMaps();
  document.getElementById("map-beside").addEventListener("click", async () => {
    maps.push(await mapPane(maps.at(-1).run, 0));
    arrangeMaps();
  });
  if (kind) kind.addEventListener("change", () => maps.forEach(showSwaps));
  document.addEventListener("reached", ({ detail }) => {
    if (together.checked || maps.length === 1) maps.forEach((pane) => pane.to(detail));
  });
}

// ---- what is folded opens when it is asked for ----
function unfold() {
  const named = location.hash && !location.hash.includes("=") ? document.getElementById(location.hash.slice(1)) : null;
  if (named && named.tagName === "DETAILS") named.open = true;
}
addEventListener("hashchange", unfold);
addEventListener("beforeprint", () => document.querySelectorAll("details.question")
  .forEach((one) => { one.open = true; }));
unfold();


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
