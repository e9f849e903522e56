"use strict";
// Charts of a page: axes, the curve under the pointer, zoom. Text of the result is shown as text alone.
const MARGIN = { left: 56, top: 14 }, UNITS = 1000, NEAR = 24, SMALLEST = UNITS / 200;
const SVG = "http://www.w3.org/2000/svg";

const digits = { "-": "⁻" };
[..."⁰¹²³⁴⁵⁶⁷⁸⁹"].forEach((sign, at) => { digits[at] = sign; });
const power = n => "10" + [...String(n)].map(sign => digits[sign]).join("");
const plain = value => String(Number(value.toPrecision(6))).replace("-", "−");

/** Ticks of a log axis between two powers of ten: decades, or 1, 2 and 5 times each, or even steps where it is short. */
function logTicks(low, high) {
  if (high - low < 0.5) return evenTicks(10 ** low, 10 ** high).map(([at, text]) => [Math.log10(at), text]);
  const found = [], step = Math.max(1, Math.ceil((high - low) / 6)), tiny = low < -3 || high > 4.3;
  for (let n = Math.floor(low); n <= high; n += 1) {
    for (const factor of high - low < 2.2 ? [1, 2, 5] : [1]) {
      const at = n + Math.log10(factor);
      if (at < low || at > high || n % step !== 0) continue;
      found.push([at, tiny ? (factor > 1 ? factor + "·" : "") + power(n) : plain(factor * 10 ** n)]);
    }
  }
  return found;
}

/** Ticks at even steps of 1, 2 or 5 times a power of ten, about six of them. */
function evenTicks(low, high) {
  const rough = (high - low) / 6, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(factor => factor * size).find(one => one >= rough), found = [];
  for (let n = Math.ceil(low / step); n * step <= high; n += 1) found.push([n * step, plain(n * step)]);
  return found;
}

function start(chart) {
  const [x0, x1, y0, y1] = chart.dataset.limits.split(" ").map(Number);
  const picture = chart.querySelector("svg"), plot = chart.querySelector(".plot"), axes = chart.querySelector(".axes");
  const part = chart.querySelector(".chosen-part"), said = chart.querySelector(".said");
  const curves = [...chart.querySelectorAll(".curve")], nothing = said.textContent;
  const points = curves.map(curve => [...curve.getAttribute("d").matchAll(/([ML])(\S+) ([^ML]+)/g)]
    .map(([, letter, x, y]) => [Number(x), Number(y), letter === "M"]));
  const width = plot.width.baseVal.value, height = plot.height.baseVal.value;
  let view = { x: 0, y: 0, w: UNITS, h: UNITS }, chosen = -1, from = null;

  function draw() {
    plot.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
    axes.replaceChildren();
    const line = (kind, attributes, text) => {
      const made = document.createElementNS(SVG, kind);
      for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
      if (text !== undefined) made.textContent = text;
      axes.append(made);
    };
    const right = MARGIN.left + width, below = MARGIN.top + height;
    const time = at => x0 + (x1 - x0) * at / UNITS, value = at => y1 - (y1 - y0) * at / UNITS;
    for (const [at, text] of logTicks(time(view.x), time(view.x + view.w))) {
      const x = MARGIN.left + width * ((at - x0) / (x1 - x0) * UNITS - view.x) / view.w;
      line("path", { d: `M${x} ${below}v5` });
      line("text", { x, y: below + 19, "text-anchor": "middle" }, text);
    }
    for (const [at, text] of evenTicks(value(view.y + view.h), value(view.y))) {
      const y = MARGIN.top + height * ((y1 - at) / (y1 - y0) * UNITS - view.y) / view.h;
      line("path", { d: `M${MARGIN.left} ${y}h-5` });
      line("text", { x: MARGIN.left - 9, y: y + 4, "text-anchor": "end" }, text);
    }
    line("path", { d: `M${MARGIN.left} ${MARGIN.top}V${below}H${right}` });
  }

  function choose(at) {
    if (at === chosen) return;
    chosen = at;
    chart.classList.toggle("choosing", at >= 0);
    curves.forEach((curve, n) => curve.parentNode.classList.toggle("chosen", n === at));
    said.textContent = at < 0 ? nothing : curves[at].dataset.facts;
  }

  function zoom(x, y, w, h) {
    w = Math.min(UNITS, Math.max(SMALLEST, w));
    h = Math.min(UNITS, Math.max(SMALLEST, h));
    view = { x: Math.min(UNITS - w, Math.max(0, x)), y: Math.min(UNITS - h, Math.max(0, y)), w, h };
    draw();
  }

  const scale = factor => zoom(view.x + view.w * (1 - factor) / 2, view.y + view.h * (1 - factor) / 2,
    view.w * factor, view.h * factor);
  const next = step => choose((chosen + step + curves.length) % curves.length);
  const does = { in: () => scale(0.5), out: () => scale(2), all: () => zoom(0, 0, UNITS, UNITS), next: () => next(1) };

  /** Where the pointer is, in units of the paths, and how many of them a pixel is. */
  function place(event) {
    const box = picture.getBoundingClientRect(), unit = 760 / box.width;
    return {
      x: view.x + ((event.clientX - box.left) * unit - MARGIN.left) / width * view.w,
      y: view.y + ((event.clientY - box.top) * unit - MARGIN.top) / height * view.h,
      dx: unit / width * view.w,
      dy: unit / height * view.h,
    };
  }

  function nearest({ x, y, dx, dy }) {
    let best = -1, least = NEAR;
    points.forEach((line, n) => line.forEach((point, at) => {
      const [ax, ay] = at && !point[2] ? line[at - 1] : point, [bx, by] = point;
      const ex = (bx - ax) / dx, ey = (by - ay) / dy, length = ex * ex + ey * ey;
      const share = length ? Math.min(1, Math.max(0, ((x - ax) / dx * ex + (y - ay) / dy * ey) / length)) : 0;
      const distance = Math.hypot((x - ax) / dx - share * ex, (y - ay) / dy - share * ey);
      if (distance < least) [best, least] = [n, distance];
    }));
    return best;
  }

  const frame = (a, b) => ({ x: Math.min(a.x, b.x), y: Math.min(a.y, b.y), width: Math.abs(a.x - b.x), height: Math.abs(a.y - b.y) });
  plot.addEventListener("pointermove", event => {
    const here = place(event);
    if (from === null) return choose(nearest(here));
    for (const [name, value] of Object.entries(frame(from, here))) part.setAttribute(name, value);
    part.setAttribute("visibility", "visible");
  });
  plot.addEventListener("pointerdown", event => {
    if (event.pointerType === "touch") return choose(nearest(place(event)));
    from = place(event);
    plot.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  plot.addEventListener("pointerup", event => {
    if (from === null) return;
    const { x, y, width: w, height: h } = frame(from, place(event));
    from = null;
    part.setAttribute("visibility", "hidden");
    if (w > SMALLEST && h > SMALLEST) zoom(x, y, w, h);
  });
  plot.addEventListener("dblclick", does.all);
  const keys = { ArrowRight: does.next, ArrowDown: does.next, ArrowLeft: () => next(-1), ArrowUp: () => next(-1),
    "+": does.in, "-": does.out, Escape: does.all };
  chart.querySelector(".scroll").addEventListener("keydown", event => {
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
  });
  for (const button of chart.querySelectorAll("button")) button.addEventListener("click", does[button.dataset.does]);
  chart.hidden = false;
  draw();
}

document.querySelectorAll(".chart").forEach(start);
