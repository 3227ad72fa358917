// WCAG contrast of everything that a reader sees: [ratio, needed, colour, ground, what] of each text, line and border.
// A ground is every background, opacity and colour between an element and the page, one over the other.
(() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const rgba = (colour) => {
    if (!known.has(colour)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = "#0000";
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((one, index) => one * a + under[index] * (1 - a));
  const light = (colour) => {
    const [r, g, b] = colour.map((one) => (one / 255 <= 0.04045 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const above = (node) => (node ? [...above(node.parentElement), node] : []);
  const faded = (node) => above(node).reduce((part, one) => part * Number(getComputedStyle(one).opacity), 1);
  const ground = (node) => above(node).reduce((under, one) => over(rgba(getComputedStyle(one).backgroundColor), under),
    rgba(matchMedia("(prefers-color-scheme: dark)").matches ? "#121212" : "#fff"));
  const named = (node) => above(node).slice(-3).map((one) => `${one.tagName.toLowerCase()}${one.id ? `#${one.id}` : ""}`
    + [...one.classList].map((name) => `.${name}`).join("")).join(" > ");
  const found = [];
  const note = (node, colour, needed, what, under = ground(node)) => {
    const [r, g, b, a] = rgba(colour), shown = over([r, g, b, a * faded(node)], under);
    found.push([ratio(shown, under), needed, shown.map(Math.round).join(), under.map(Math.round).join(),
      `${what} ${named(node)}`]);
  };
  const seen = (node) => node.checkVisibility({ visibilityProperty: true }) && node.getClientRects().length > 0;
  const needs = ({ fontSize, fontWeight }) => (parseFloat(fontSize) >= 24 || (parseFloat(fontSize) >= 18.66 && fontWeight >= 700)
    ? 3 : 4.5);
  for (const node of document.body.querySelectorAll("*")) {
    const style = getComputedStyle(node), text = [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
    if (!seen(node) || node.disabled || ["TITLE", "OPTION", "SCRIPT", "STYLE"].includes(node.tagName)) continue;
    const svg = node instanceof SVGElement;
    if (text || node.matches("input:not([type=range]), select, textarea")) note(node, svg ? style.fill : style.color, needs(style), "text");
    if (node.placeholder) note(node, getComputedStyle(node, "::placeholder").color, needs(style), "placeholder");
    const after = getComputedStyle(node, "::after");
    if (!["none", "normal", '""'].includes(after.content)) note(node, after.color, needs(after), "text after", ground(node.parentElement));
    if (node.matches("button:not(.link), input:not([type=range]), select, textarea")) {
      note(node, style.borderTopColor, 3, "border", ground(node.parentElement));
    }
    if (node.matches(".line, .reference, .bar, .lost, .mark, .axis, .cursor, .area, .picked:not(.member), .spark path")) {
      note(node, style.stroke, 3, "stroke");
    }
    if (node.matches(".dot, .in-thought, .in-answer")) note(node, style.fill, 3, "fill");
    if (node.matches(".bar-fill, .kind-mark, #tip i")) note(node, style.backgroundColor, 3, "mark", ground(node.parentElement));
    if (node.matches(".outcome")) note(node, style.borderTopColor, 3, "outcome");
  }
  // Last, since a focus that moves on hides what is pointed at.
  for (const node of document.querySelectorAll("a, button, input, select, textarea, summary, [tabindex]")) {
    if (!seen(node)) continue;
    node.focus({ preventScroll: true });
    if (!node.matches(":focus-visible")) continue;
    const { outlineStyle, outlineColor } = getComputedStyle(node);
    note(node, outlineStyle === "none" ? "transparent" : outlineColor, 3, "focus", ground(node.parentElement));
  }
  return found;
})()
