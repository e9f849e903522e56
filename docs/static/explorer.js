// The page with sliders: state in the address, charts, table and the command of the same problem.
"use strict";

(() => {
  const range = (first, last, step = 1) =>
    Array.from({ length: Math.round((last - first) / step) + 1 }, (_, i) => Number((first + step * i).toFixed(6)));
  const COUNTS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384];
  const RATES = range(-9, -2).flatMap((power) => [1, 2, 5].map((digit) => Number(`${digit}e${power}`)));
  const CONTROLS = [
    { key: "k", label: "information exponent k", choices: range(3, 8), usual: 4 },
    { key: "beta", label: "decay β of the coefficients", choices: range(0, 3, 0.05), usual: 1 },
    { key: "P", label: "teacher directions P", choices: COUNTS.filter((count) => count <= 128), usual: 16 },
    { key: "m", label: "neurons m", choices: COUNTS, usual: 48 },
    { key: "d", label: "input dimension d", choices: range(4, 20).map((power) => 2 ** power), usual: 256 },
    { key: "eta", label: "learning rate η", choices: [0, ...RATES], usual: 2e-6, words: (x) => (x ? short(x) : "none (flow)") },
  ];
  const LARGEST_SEED = 2 ** 32 - 1, root = document.getElementById("explorer-panel"), MARGIN = { left: 54, right: 14, top: 12, bottom: 40 };
  let state = null;

  // --- state --------------------------------------------------------------------------------------------------------

  const nearest = (choices, value) => choices.reduce((x, y) => (Math.abs(y - value) < Math.abs(x - value) ? y : x));

  /** Return the state that the address holds; what is absent or no number has its usual value. */
  function fromAddress() {
    const given = new URLSearchParams(location.hash.slice(1)), found = {};
    const number = (key) => (given.get(key)?.trim() ? Number(given.get(key)) : NaN);
    for (const { key, choices, usual } of CONTROLS) found[key] = isFinite(number(key)) ? nearest(choices, number(key)) : usual;
    const seed = number("seed");
    found.seed = Number.isInteger(seed) && seed >= 0 && seed <= LARGEST_SEED ? seed : 0;
    return found;
  }

  function address(values) {
    const text = (x) => (x > 0 && x < 0.001 ? x.toExponential() : String(x));
    return [...CONTROLS.map(({ key }) => key), "seed"].map((key) => `${key}=${text(values[key])}`).join("&");
  }

  // --- words and numbers --------------------------------------------------------------------------------------------

  const short = (x) => {
    if (!isFinite(x)) return "never";
    const [digits, power] = x.toExponential(2).split("e").map(Number);
    return x === 0 || (power >= -3 && power < 5) ? String(Number(x.toPrecision(3))) : `${digits === 1 ? "" : `${digits}·`}10${raised(power)}`;
  };
  const raised = (power) => String(power).replace(/./g, (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]);
  const exponent = (x) => (isFinite(x) ? x.toFixed(2).replace("-", "−") : "no law");
  const data = (x) => `<data value="${x}">${short(x)}</data>`;

  function summary(answer) {
    const { P, m, d, eta } = state, found = answer.learned.filter(isFinite), { loss, staircase, asymptotic } = answer.exponents;
    if (!found.length) return "No direction is learned by a pair: no neuron matches one.";
    const [first, last] = [Math.min(...answer.emergence), Math.max(...found)];
    const said = [`${found.length} of ${P} directions are learned. The first emerges at t = ${short(first)}, the last is learned at t = ${short(last)}.`];
    if (eta > 0) {
      const share = eta / answer.rateLimit;
      said.push(`In samples of SGD, t/η: ${short(first / eta)} and ${short(last / eta)}.`);
      said.push(`η is ${share < 0.995 ? `${short(100 * share)} % of` : `${short(share)} times`} the largest stable rate for large d, ${short(answer.rateLimit)}${share >= 1 ? ": SGD does not follow this flow" : share > 0.3 ? ": noise delays SGD" : ""}.`);
    }
    said.push(`Loss ~ t^x: x = ${exponent(loss)} for pairs, ${exponent(staircase)} for the sum formula, ${exponent(asymptotic)} in the limit of many directions.`);
    if (m < P) said.push(`${m} neurons learn at most ${m} directions.`);
    if (d < 4 * P) said.push("d is not much larger than P: starting overlaps are large, so that pairs interact early.");
    return said.join(" ");
  }

  // --- charts -------------------------------------------------------------------------------------------------------

  const colour = (p, P) => `hsl(${Math.round(215 + (150 * p) / Math.max(P - 1, 1))} 70% 52%)`;

  /** Return powers of ten between two numbers, at most six of them. */
  function decades([low, high]) {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9), step = Math.ceil((last - first + 1) / 6);
    const ticks = range(first, last).filter((power) => power % step === 0).map((power) => 10 ** power);
    const digits = (wanted) => range(first - 1, last + 1).flatMap((power) => wanted.map((digit) => digit * 10 ** power)).filter((x) => x >= low && x <= high);
    const few = ticks.length > 2 ? ticks : digits([1, 2, 5]);
    return few.length > 1 ? few : digits(range(1, 9));
  }

  /** A chart of one size in pixels; x and y are [low, high], y linear where `linear` says so. */
  class Chart {
    constructor(figure, x, y, { linear = false, names, upper = null }) {
      this.svg = figure.querySelector("svg");
      const width = Math.max(this.svg.clientWidth, 240), height = this.svg.clientHeight, { left, right, bottom } = MARGIN;
      const top = MARGIN.top + (upper ? 26 : 0);
      const scale = (log, [low, high], begin, end) => {
        const f = log ? Math.log : (z) => z;
        return (z) => begin + ((end - begin) * (f(z) - f(low))) / (f(high) - f(low));
      };
      this.x = scale(true, x, left, width - right);
      this.y = scale(!linear, y, height - bottom, top);
      this.parts = [`<rect class="frame" x="${left}" y="${top}" width="${width - left - right}" height="${height - top - bottom}"/>`];
      const text = (at, up, words, anchor = "middle", more = "") => `<text x="${at.toFixed(1)}" y="${up.toFixed(1)}" text-anchor="${anchor}"${more}>${words}</text>`;
      const label = (z) => (z >= 0.01 && z < 9999 ? String(Number(z.toPrecision(2))) : `${z.toExponential(0)[0] === "1" ? "" : `${z.toExponential(0)[0]}·`}10${raised(Math.floor(Math.log10(z) + 1e-9))}`);
      for (const z of decades(x)) this.parts.push(`<path class="tick" d="M${this.x(z).toFixed(1)},${height - bottom}v4"/>`, text(this.x(z), height - bottom + 17, label(z)));
      for (const z of linear ? [0, 0.25, 0.5, 0.75, 1] : decades(y)) this.parts.push(`<path class="tick" d="M${left - 4},${this.y(z).toFixed(1)}h4"/>`, text(left - 7, this.y(z) + 4, z ? label(z) : "0", "end"));
      this.parts.push(text((left + width - right) / 2, height - 6, names[0]));
      this.parts.push(text(13, (top + height - bottom) / 2, names[1], "middle", ` transform="rotate(-90 13 ${((top + height - bottom) / 2).toFixed(1)})"`));
      if (upper) {
        for (const z of decades(x.map((t) => t * upper.factor))) {
          this.parts.push(`<path class="tick" d="M${this.x(z / upper.factor).toFixed(1)},${top}v-4"/>`, text(this.x(z / upper.factor), top - 7, label(z)));
        }
        this.parts.push(text(left, 11, upper.name, "start"));
      }
      Object.assign(this, { width, height, top, xRange: x, yRange: y });
    }

    line(x, y, kind, style = "", title = "") {
      const points = x.map((z, i) => [this.x(z), this.y(y[i])]).filter((point) => point.every(isFinite));
      if (points.length < 2) return;
      const path = points.map(([at, up]) => `${at.toFixed(1)},${up.toFixed(1)}`).join("L");
      this.parts.push(`<path class="${kind}" style="${style}" d="M${path}">${title && `<title>${title}</title>`}</path>`);
    }

    dot(x, y, kind, style, title) {
      if (isFinite(x) && isFinite(y)) this.parts.push(`<circle class="${kind}" style="${style}" cx="${this.x(x).toFixed(1)}" cy="${this.y(y).toFixed(1)}" r="4"><title>${title}</title></circle>`);
    }

    show() {
      const { left, right, bottom } = MARGIN, clip = `clip-${this.svg.id}`;
      this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
      const inside = this.parts.filter((part) => !part.startsWith("<text") && !part.startsWith('<path class="tick'));
      const box = `<rect x="${left}" y="${this.top - 5}" width="${this.width - left - right}" height="${this.height - this.top - bottom + 10}"/>`;
      this.svg.innerHTML = `<clipPath id="${clip}">${box}</clipPath><g clip-path="url(#${clip})">${inside.join("")}</g>${this.parts.filter((part) => !inside.includes(part)).join("")}`;
    }
  }

  function draw(answer) {
    const { P, beta, eta } = state, { times, loss, staircase, shares, window, exponents } = answer;
    const [curves, decay, law] = ["curves", "decay", "law"].map((name) => root.querySelector(`#explorer-${name}`).closest("figure"));
    const isAny = times.length > 0;
    root.querySelector(".charts").hidden = !isAny;
    if (!isAny) return;
    const t = [Math.max(times[0], 0.3 * Math.min(...answer.emergence)), times[times.length - 1]], upper = eta > 0 ? { factor: 1 / eta, name: "samples t/η" } : null;
    const tell = (p) => `direction ${p + 1}: a = ${short(answer.coefficients[p])}, emerges at t = ${short(answer.emergence[p])}, learned at t = ${short(answer.learned[p])}`;
    const first = new Chart(curves, t, [0, 1.04], { linear: true, names: ["flow time t", "share n g(C)/a"], upper });
    shares.forEach((share, p) => first.line(times, share, "curve", `stroke:${colour(p, P)}`, tell(p)));
    answer.emergence.forEach((T, p) => isFinite(T) && first.line([T, T], [0, 0.06], "curve", `stroke:${colour(p, P)}`, tell(p)));
    first.show();

    const least = Math.max(Math.min(...loss.filter((L) => L > 0)), 0.1 * Math.min(...staircase.filter((L) => L > 0)), 1e-12);
    const second = new Chart(decay, t, [least, loss[0] * (loss[0] / least) ** 0.05], { names: ["flow time t", "loss"], upper });
    const steps = times.flatMap((time, i) => (i && staircase[i] !== staircase[i - 1] ? [[time, staircase[i - 1]], [time, staircase[i]]] : [[time, staircase[i]]]));
    second.line(steps.map(([x]) => x), steps.map(([, y]) => Math.max(y, least / 10)), "thin");
    second.line(times, loss, "main");
    if (window && isFinite(exponents.asymptotic)) {
      const middle = Math.sqrt(window[0] * window[1]), at = times.findIndex((time) => time >= middle), ends = [window[0] / 1.5, window[1] * 1.5];
      second.line(ends, ends.map((time) => loss[at] * (time / times[at]) ** exponents.asymptotic), "dashed");
    }
    second.show();

    const order = answer.emergence.map((T, p) => p).filter((p) => answer.emergence[p] > 0 && isFinite(answer.emergence[p]));
    const all = order.flatMap((p) => [answer.emergence[p], answer.learned[p]]).filter((T) => T > 0 && isFinite(T));
    if (all.length) {
      const third = new Chart(law, [0.85, 1.2 * Math.max(P, 2)], [0.7 * Math.min(...all), 1.4 * Math.max(...all)], { names: ["direction p", "flow time"] });
      const mean = order.reduce((sum, p) => sum + Math.log(answer.emergence[p]) - beta * Math.log(p + 1), 0) / order.length;
      third.line([1, P], [Math.exp(mean), Math.exp(mean) * P ** beta], "dashed");
      order.forEach((p) => third.dot(p + 1, answer.learned[p], "open", `stroke:${colour(p, P)}`, tell(p)));
      order.forEach((p) => third.dot(p + 1, answer.emergence[p], "full", `fill:${colour(p, P)}`, tell(p)));
      third.show();
    }
  }

  function table(answer) {
    const rate = state.eta > 0 ? state.eta : NaN;
    const rows = answer.coefficients.map((a, p) => {
      const cells = [a, answer.overlap[p], answer.emergence[p], answer.learned[p]].map((x, i) => `<td>${i === 1 && isNaN(x) ? "none" : data(x)}</td>`);
      const samples = rate ? `<td>${data(answer.learned[p] / rate)}</td>` : "";
      return `<tr><th scope="row">${p + 1}</th>${cells.join("")}${samples}</tr>`;
    });
    const names = ["p", "a<sub>p</sub>", "overlap C at the start", "emerges at t", "learned at t", ...(rate ? ["learned after samples"] : [])];
    return `<thead><tr>${names.map((name) => `<th scope="col">${name}</th>`).join("")}</tr></thead><tbody>${rows.join("")}</tbody>`;
  }

  // --- the page -----------------------------------------------------------------------------------------------------

  function build() {
    const slider = ({ key, label, choices }) =>
      `<div class="control"><label for="explorer-${key}">${label}</label><span class="value" id="explorer-${key}-value"></span>` +
      `<input type="range" id="explorer-${key}" data-key="${key}" min="0" max="${choices.length - 1}" step="1"></div>`;
    const chart = (name, title, caption, kind = "") =>
      `<figure class="${kind}"><svg id="explorer-${name}" role="img" aria-label="${title}"></svg><figcaption>${caption}</figcaption></figure>`;
    root.innerHTML =
      `<div class="controls" role="group" aria-label="Parameters">${CONTROLS.map(slider).join("")}` +
      `<div class="control"><label for="explorer-seed">seed of the random start</label>` +
      `<input type="number" id="explorer-seed" min="0" max="${LARGEST_SEED}" step="1"></div></div>` +
      `<p class="summary" role="status"></p><div class="charts">` +
      chart("curves", "Share of each direction that is learned, over time", "Share of each direction that its neuron carries. Ticks: emergence, C² = ½.", "wide") +
      chart("decay", "Loss over time, both logarithmic", "Thick: loss of the pairs. Thin: sum formula, a step for each direction. Dashed: exponent (1 − 2β)/β, for β > ½.") +
      chart("law", "Emergence and learned times of the directions, both logarithmic", "Full: emergence. Open: learned. Dashed: p<sup>β</sup>.") +
      `</div><p><label for="explorer-command">The same problem with all interactions:</label></p>` +
      `<textarea id="explorer-command" rows="2" readonly spellcheck="false"></textarea>` +
      `<p class="buttons"><button type="button" data-does="command">Copy the command</button> ` +
      `<button type="button" data-does="link">Copy a link to this state</button> <button type="button" data-does="reset">Reset</button> ` +
      `<span class="told" role="status"></span></p>` +
      `<details><summary>Table of all directions</summary><div class="scroll" tabindex="0" role="region" aria-label="Table of all directions"><table></table></div></details>`;
  }

  /** Show `values`; the address follows unless it is where they come from. */
  function update(values, keepAddress = false) {
    const d = CONTROLS.find(({ key }) => key === "d").choices.find((choice) => choice >= Math.max(values.d, values.P));
    state = { ...values, d };
    const begin = performance.now(), answer = PairEquation.solve(state);
    for (const { key, choices, words = String } of CONTROLS) {
      const input = root.querySelector(`#explorer-${key}`), said = words(state[key]);
      input.value = choices.indexOf(state[key]);
      input.setAttribute("aria-valuetext", said);
      root.querySelector(`#explorer-${key}-value`).textContent = said;
    }
    root.querySelector("#explorer-seed").value = state.seed;
    root.querySelector(".summary").textContent = summary(answer);
    root.querySelector("#explorer-command").value = PairEquation.command(state);
    root.querySelector("table").innerHTML = table(answer);
    root.querySelector(".told").textContent = "";
    draw(answer);
    root.dataset.milliseconds = performance.now() - begin;
    if (!keepAddress) history.replaceState(null, "", `#${address(state)}`);
  }

  async function copy(text, name) {
    const told = root.querySelector(".told");
    try {
      await navigator.clipboard.writeText(text);
      told.textContent = `The ${name} is copied.`;
    } catch {
      const field = root.querySelector("#explorer-command");
      if (name === "command") field.select();
      told.textContent = name === "command" ? "The command is selected: press Ctrl+C." : "Copy the address of this page: it holds the state.";
    }
  }

  build();
  update(fromAddress(), true);
  root.addEventListener("input", ({ target }) => {
    const control = CONTROLS.find(({ key }) => key === target.dataset.key);
    if (control) update({ ...state, [control.key]: control.choices[Number(target.value)] });
  });
  root.querySelector("#explorer-seed").addEventListener("change", ({ target }) => {
    const seed = Math.min(Math.max(Math.round(Number(target.value)) || 0, 0), LARGEST_SEED);
    update({ ...state, seed });
  });
  root.addEventListener("click", ({ target }) => {
    if (target.dataset.does === "command") copy(PairEquation.command(state), "command");
    if (target.dataset.does === "link") {
      history.replaceState(null, "", `#${address(state)}`);
      copy(location.href, "link");
    }
    if (target.dataset.does === "reset") update({ ...Object.fromEntries(CONTROLS.map(({ key, usual }) => [key, usual])), seed: 0 });
  });
  // Anchors of the page itself, which hold no state, leave the sliders as they are.
  addEventListener("hashchange", () => location.hash.includes("=") && update(fromAddress(), true));
  let width = root.clientWidth;
  new ResizeObserver(() => {
    if (root.clientWidth !== width) update(state, true);
    width = root.clientWidth;
  }).observe(root);
})();
