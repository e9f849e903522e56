// Matched pairs of a neuron and a direction, each alone: when they emerge and are learned, and the loss that follows.
//
// The link is h_k, k >= 3, with g(s) = s^k, inputs are isotropic, and directions have a_p ~ p^-beta, sum a_p^2 = 1.
// A pair obeys C' = a g'(C) (1 - C^2), (ln n)' = 4 (a g(C) - n). With xi = ln(C^2 / (1 - C^2)) and tau = a t
//
//   R(xi) = integral of dtau from xi to 0, in closed form,   e^(4 Gamma) = (1 + e^xi)^(2/k),
//   X(xi) = integral of e^(4 Gamma) - 1 over tau from xi to 0, by Gauss-Legendre quadrature,
//   v(xi) = a / n = e^(-4 Gamma) (v_0 e^(4 Gamma_0) + 4 (tau + X_0 - X(xi))).
//
// `dynamics.predict_emergence`, `dynamics.solve_decoupled` and `dynamics.learning_rate_limit` compute the same numbers.
"use strict";

const PairEquation = (() => {
  const INITIAL_NORM = 0.01, FEWEST_POINTS = 6, FEWEST_DIRECTIONS = 4, WINDOW_POWER = 0.75, TIMES = 150, LAST = 2.5;

  // --- random numbers: those of numpy.random.default_rng(seed), bit by bit ---------------------------------------

  const word = (x) => x >>> 0;

  /** Return the eight words of 32 bits that numpy's SeedSequence makes of a seed below 2^32. */
  function seedWords(seed) {
    let factor = 0x43b0d7e5;
    const mixed = (value) => {
      value = word(value ^ factor);
      factor = word(Math.imul(factor, 0x931e8875));
      value = word(Math.imul(value, factor));
      return word(value ^ (value >>> 16));
    };
    const pool = [seed, 0, 0, 0].map(mixed);
    for (let from = 0; from < 4; from++) {
      for (let to = 0; to < 4; to++) {
        if (from === to) continue;
        const value = word(Math.imul(0xca01f9dd, pool[to]) - Math.imul(0x4973f715, mixed(pool[from])));
        pool[to] = word(value ^ (value >>> 16));
      }
    }
    let key = 0x8b51f9dd;
    return Array.from({ length: 8 }, (_, i) => {
      let value = word(pool[i % 4] ^ key);
      key = word(Math.imul(key, 0x58f38ded));
      value = word(Math.imul(value, key));
      return word(value ^ (value >>> 16));
    });
  }

  /** Return a ziggurat of 256 layers: edges x_i, their heights, and the table of layer 0. */
  function ziggurat(last, area, density, inverse, bits) {
    const x = new Float64Array(256), size = 2 ** bits;
    x[255] = last;
    for (let i = 255; i > 1; i--) x[i - 1] = inverse(area / x[i] + density(x[i]));
    x[0] = area / density(last);
    const edge = x.map((value, i) => (i === 0 ? (last / x[0]) * size : i === 1 ? 0 : (x[i - 1] / value) * size));
    const height = x.map((value, i) => (i === 0 ? 1 : density(value)));
    return { step: x.map((value) => value / size), edge: edge.map(Math.floor), height, last };
  }

  const NORMAL = ziggurat(3.6541528853610088, 4.92867323397465524494e-3, (x) => Math.exp(-0.5 * x * x),
    (y) => Math.sqrt(-2 * Math.log(y)), 52);
  const EXPONENTIAL = ziggurat(7.69711747013104972, 3.9496598225815571993e-3, (x) => Math.exp(-x),
    (y) => -Math.log(y), 53);
  // Limbs of 16 bits, lowest first, of the multiplier of PCG64, 0x2360ed051fc65da44385df649fccf645.
  const MULTIPLIER = Float64Array.of(0xf645, 0x9fcc, 0xdf64, 0x4385, 0x5da4, 0x1fc6, 0xed05, 0x2360);

  /** numpy's PCG64: `next` draws 64 bits as the words `high` and `low`. */
  class Generator {
    constructor(seed) {
      const words = seedWords(seed);
      // Four words of 64 bits, the low half of each first: high and low part of the state, then of the increment.
      const limbs = (high, low) => [low, low + 1, high, high + 1].flatMap((i) => [words[i] & 0xffff, words[i] >>> 16]);
      const increment = limbs(4, 6);
      this.increment = Float64Array.from(increment, (limb, i) => ((limb << 1) & 0xffff) | (i ? increment[i - 1] >>> 15 : 1));
      this.state = Float64Array.from(this.increment);
      this.spare = new Float64Array(8);
      let carry = 0;
      limbs(0, 2).forEach((limb, i) => {
        const sum = this.state[i] + limb + carry;
        carry = Math.floor(sum / 65536);
        this.state[i] = sum - 65536 * carry;
      });
      this.step();
    }

    step() {
      const { state, spare, increment } = this;
      let carry = 0;
      for (let column = 0; column < 8; column++) {
        let sum = increment[column] + carry;
        for (let i = 0; i <= column; i++) sum += state[i] * MULTIPLIER[column - i];
        carry = Math.floor(sum / 65536);
        spare[column] = sum - 65536 * carry;
      }
      this.state = spare;
      this.spare = state;
    }

    next() {
      this.step();
      const s = this.state;
      let high = ((s[7] ^ s[3]) << 16) | (s[6] ^ s[2]), low = ((s[5] ^ s[1]) << 16) | (s[4] ^ s[0]);
      const turn = s[7] >>> 10, swapped = high;
      if (turn >= 32) {
        high = low;
        low = swapped;
      }
      // Shifts count modulo 32.
      this.high = turn % 32 ? (high >>> turn) | (low << (32 - turn)) : high;
      this.low = turn % 32 ? (low >>> turn) | (high << (32 - turn)) : low;
    }

    uniform() {
      this.next();
      return (word(this.high) * 2 ** 21 + (this.low >>> 11)) * 2 ** -53;
    }

    normal() {
      for (;;) {
        this.next();
        const { high, low } = this, layer = low & 0xff, size = (high & 0x1fffffff) * 2 ** 23 + (low >>> 9);
        const x = size * NORMAL.step[layer] * ((low >>> 8) & 1 ? -1 : 1);
        if (size < NORMAL.edge[layer]) return x;
        if (layer === 0) {
          for (;;) {
            const beyond = -Math.log1p(-this.uniform()) / NORMAL.last, wait = -Math.log1p(-this.uniform());
            if (2 * wait > beyond * beyond) return ((low >>> 17) & 1 ? -1 : 1) * (NORMAL.last + beyond);
          }
        }
        const { height } = NORMAL, y = (height[layer - 1] - height[layer]) * this.uniform() + height[layer];
        if (y < Math.exp(-0.5 * x * x)) return x;
      }
    }

    exponential() {
      for (;;) {
        this.next();
        const layer = (this.low >>> 3) & 0xff, size = word(this.high) * 2 ** 21 + (this.low >>> 11);
        const x = size * EXPONENTIAL.step[layer];
        if (size < EXPONENTIAL.edge[layer]) return x;
        if (layer === 0) return EXPONENTIAL.last - Math.log1p(-this.uniform());
        const { height } = EXPONENTIAL;
        if ((height[layer - 1] - height[layer]) * this.uniform() + height[layer] < Math.exp(-x)) return x;
      }
    }

    gamma(shape) {
      if (shape === 1) return this.exponential();
      while (shape < 1) {
        const u = this.uniform(), wait = this.exponential();
        if (u <= 1 - shape) {
          const x = u ** (1 / shape);
          if (x <= wait) return x;
        } else {
          const y = -Math.log((1 - u) / shape), x = (1 - shape + shape * y) ** (1 / shape);
          if (x <= wait + y) return x;
        }
      }
      const b = shape - 1 / 3, c = 1 / Math.sqrt(9 * b);
      for (;;) {
        let x, cube;
        do {
          x = this.normal();
          cube = 1 + c * x;
        } while (cube <= 0);
        cube *= cube * cube;
        const u = this.uniform();
        if (u < 1 - 0.0331 * x ** 4 || Math.log(u) < 0.5 * x * x + b * (1 - cube + Math.log(cube))) return b * cube;
      }
    }
  }

  /** Return the overlaps C_ip of m random neurons with P axes of R^d, row by row, as `dynamics.Problem.start` has them. */
  function startOverlaps(m, P, d, seed) {
    const random = new Generator(seed), overlap = new Float64Array(m * P), square = new Float64Array(m);
    const few = d < m + P;
    for (let i = 0; i < m; i++) {
      for (let p = 0; p < (few ? d : P); p++) {
        const x = random.normal();
        square[i] += x * x;
        if (p < P) overlap[i * P + p] = x;
      }
    }
    for (let i = 0; i < m && !few; i++) for (let j = 0; j < i; j++) square[i] += random.normal() ** 2;
    for (let i = 0; i < m && !few; i++) square[i] += 2 * random.gamma((d - P - i) / 2);
    return overlap.map((x, at) => x / Math.sqrt(square[Math.floor(at / P)]));
  }

  // --- pairs -----------------------------------------------------------------------------------------------------

  /** Return for each direction its neuron, -1 for none: the pair of largest a_p |C_ip|^(k-2) is matched first. */
  function matchGreedily(a, overlap, m, k) {
    const P = a.length, isFree = new Array(m).fill(true), neuron = new Array(P).fill(-1);
    const strength = (i, p) => (k % 2 ? Math.max(overlap[i * P + p], 0) : Math.abs(overlap[i * P + p]));
    const strongest = (p) => {
      const found = { score: -Infinity, i: -1, p };
      for (let i = 0; i < m; i++) {
        const score = isFree[i] ? Math.log(a[p]) + (k - 2) * Math.log(strength(i, p)) : -Infinity;
        if (score > found.score) Object.assign(found, { score, i });
      }
      return found;
    };
    let open = Array.from(a, (_, p) => strongest(p));
    while ((open = open.filter((candidate) => candidate.i >= 0)).length) {
      const first = open.reduce((x, y) => (y.score > x.score || (y.score === x.score && y.i < x.i) ? y : x));
      neuron[first.p] = first.i;
      isFree[first.i] = false;
      open = open.filter((x) => x !== first).map((x) => (x.i === first.i ? strongest(x.p) : x));
    }
    return neuron;
  }

  // Nodes and weights of Gauss and Legendre on (0, 1), and the width of a panel in xi.
  const NODES = [0.033765242898423975, 0.16939530676686776, 0.3806904069584015, 0.6193095930415985, 0.8306046932331322,
    0.966234757101576];
  const WEIGHTS = [0.08566224618958517, 0.18038078652406928, 0.23395696728634552, 0.23395696728634552,
    0.18038078652406928, 0.08566224618958517];
  const PANEL = 0.5, LARGEST_LOGIT = 300;

  /** The functions R, e^(4 Gamma), g and X of xi for the link h_k, from `lowest` on; beyond LARGEST_LOGIT C is 1. */
  class Transit {
    constructor(k, lowest) {
      this.k = k;
      this.first = Math.floor(lowest / PANEL);
      const count = Math.ceil(LARGEST_LOGIT / PANEL) - this.first;
      this.knotExcess = new Float64Array(count + 1);
      for (let i = -this.first; i > 0; i--) {
        this.knotExcess[i - 1] = this.knotExcess[i] + this.quadrature((this.first + i - 1) * PANEL, PANEL);
      }
      for (let i = -this.first; i < count; i++) {
        this.knotExcess[i + 1] = this.knotExcess[i] - this.quadrature((this.first + i) * PANEL, PANEL);
      }
      this.origin = this.primitive(0);
    }

    /** Return dtau/dxi = C^(2-k) / (2 k); e is e^xi. */
    pace(e) {
      const inverse = 1 + 1 / e;
      let power = this.k % 2 ? Math.sqrt(inverse) : 1;
      for (let j = this.k - 2; j > 1; j -= 2) power *= inverse;
      return power / (2 * this.k);
    }

    primitive(xi) {
      const isEven = this.k % 2 === 0, inverse = 1 + Math.exp(-xi);
      let sum = isEven ? 0.5 * xi : Math.asinh(Math.exp(0.5 * xi)), power = isEven ? inverse : Math.sqrt(inverse);
      for (let j = isEven ? 2 : 1; j <= this.k - 2; j += 2, power *= inverse) sum -= power / j;
      return sum;
    }

    remaining(xi) {
      return (this.origin - this.primitive(xi)) / this.k;
    }

    growth(xi) {
      return Math.exp((2 / this.k) * Math.log1p(Math.exp(xi)));
    }

    signal(xi) {
      return Math.exp(-0.5 * this.k * Math.log1p(Math.exp(-xi)));
    }

    /** Return 1 - g without cancellation near C = 1. */
    gap(xi) {
      return -Math.expm1(-0.5 * this.k * Math.log1p(Math.exp(-xi)));
    }

    quadrature(from, width) {
      let sum = 0;
      for (let i = 0; i < 6; i++) {
        const e = Math.exp(from + width * NODES[i]);
        sum += WEIGHTS[i] * this.pace(e) * Math.expm1((2 / this.k) * Math.log1p(e));
      }
      return sum * width;
    }

    excess(xi) {
      const panel = Math.min(Math.max(Math.floor(xi / PANEL) - this.first, 0), this.knotExcess.length - 2);
      const start = (this.first + panel) * PANEL;
      return this.knotExcess[panel] - this.quadrature(start, xi - start);
    }

    /** Return xi where R is `remaining`, by Newton's method from `guess`; R falls and is convex for xi < 0. */
    logitAt(remaining, guess) {
      let xi = guess;
      for (let i = 0; i < 200; i++) {
        const move = (this.remaining(xi) - remaining) / this.pace(Math.exp(xi));
        xi += Math.min(Math.max(move, -2), 2);
        if (Math.abs(move) < 1e-8) break; // convergence is quadratic
      }
      return xi;
    }
  }

  /** One pair: `times` of emergence and learning, and its state at any time; all in units of tau = a t. */
  class Pair {
    constructor(transit, overlap, ratio) {
      this.transit = transit;
      const size = Math.abs(overlap);
      this.start = 2 * Math.log(size) - Math.log1p(-size) - Math.log1p(size);
      this.ratio = ratio;
      this.waiting = transit.remaining(this.start);
      this.level = ratio * transit.growth(this.start) + 4 * (this.waiting + transit.excess(this.start));
      this.end = this.waiting - transit.remaining(LARGEST_LOGIT);
    }

    inverseNorm(xi) {
      const { transit } = this;
      return (this.level - 4 * (transit.remaining(xi) + transit.excess(xi))) / transit.growth(xi);
    }

    emergence() {
      return this.start >= 0 ? 0 : this.waiting;
    }

    /** Return the first tau at which n g = a / 2, where 2 g passes v. */
    learned() {
      const { transit } = this, lack = (xi) => this.inverseNorm(xi) - 2 * transit.signal(xi);
      if (this.ratio <= 2 * transit.signal(this.start)) return 0;
      let low = this.start, high = Math.max(low + PANEL, PANEL);
      while (high < LARGEST_LOGIT && lack(high) > 0) [low, high] = [high, high + 8 * PANEL];
      if (lack(high) > 0) return this.end + 0.25 * Math.log(this.inverseNorm(LARGEST_LOGIT) - 1);
      for (let i = 0; i < 60 && high - low > 1e-14 * Math.abs(high); i++) {
        const middle = 0.5 * (low + high);
        if (lack(middle) > 0) low = middle;
        else high = middle;
      }
      return Math.max(this.waiting - transit.remaining(high), 0);
    }

    /** Return the loss over a^2 and the learned share n g / a at tau; `guess` is xi at an earlier time. */
    at(tau, guess) {
      const { transit } = this;
      if (tau >= this.end) {
        const v = 1 + (this.inverseNorm(LARGEST_LOGIT) - 1) * Math.exp(-4 * (tau - this.end));
        return { xi: LARGEST_LOGIT, loss: (1 - 1 / v) ** 2, share: 1 / v };
      }
      const xi = Math.max(transit.logitAt(this.waiting - tau, guess), this.start), v = this.inverseNorm(xi);
      return { xi, loss: (1 - 1 / v) ** 2 + (2 * transit.gap(xi)) / v, share: transit.signal(xi) / v };
    }
  }

  // --- curves and laws ---------------------------------------------------------------------------------------------

  function linear(x, y) {
    const mean = (z) => z.reduce((sum, value) => sum + value, 0) / z.length, mx = mean(x), my = mean(y);
    return x.reduce((sum, value, i) => sum + (value - mx) * (y[i] - my), 0) / x.reduce((sum, value) => sum + (value - mx) ** 2, 0);
  }

  /** Return the exponent of y ~ x^s on a window, as `dynamics.fit_power_law`; NaN with fewer than 6 positive points. */
  function fitExponent(x, y, [low, high]) {
    const kept = x.map((_, i) => i).filter((i) => x[i] >= low && x[i] <= high && x[i] > 0 && y[i] > 0 && isFinite(y[i]));
    if (kept.length < FEWEST_POINTS) return NaN;
    const logX = kept.map((i) => Math.log(x[i])), logY = kept.map((i) => Math.log(y[i])), last = kept.length - 1;
    let piece = 0;
    const grid = kept.map((_, i) => logX[0] + ((logX[last] - logX[0]) * i) / last);
    const onGrid = grid.map((at) => {
      while (piece < last - 1 && logX[piece + 1] <= at) piece++;
      return logY[piece] + ((logY[piece + 1] - logY[piece]) * (at - logX[piece])) / (logX[piece + 1] - logX[piece]);
    });
    return linear(grid, onGrid);
  }

  /** Return the limit of d times the largest stable learning rate of SGD for large d. */
  function stableRate(a, k) {
    let fourth = 0, part = 1; // E h_n^4 = sum_r (r! binom(n, r)^2 / n!)^2 (2n - 2r)!, n = k - 1
    const factorial = (n) => (n < 2 ? 1 : n * factorial(n - 1)), n = k - 1;
    for (let r = 0; r <= n; part = (part * (n - r)) / (r + 1), r++) {
      fourth += ((factorial(r) * part * part) / factorial(n)) ** 2 * factorial(2 * (n - r));
    }
    let value = 0, x = Array.from(a);
    for (let i = 0; i < 500; i++) {
      const sum = x.reduce((total, entry, p) => total + a[p] * entry, 0);
      const y = x.map((entry, p) => k * k * (sum + (fourth - 1) * a[p] * entry)), size = Math.hypot(...y);
      if (Math.abs(size - value) < 1e-14 * size) break;
      value = size;
      x = y.map((entry) => entry / size);
    }
    return (2 * k) / value;
  }

  let kept = { key: "", overlap: null };

  /** Return what matched pairs alone do; `problem` holds k, beta, P, m, d and seed. Times are flow times. */
  function solve({ k, beta, P, m, d, seed }) {
    const key = [m, P, d, seed].join();
    if (kept.key !== key) kept = { key, overlap: startOverlaps(m, P, d, seed) };
    const powers = Array.from({ length: P }, (_, i) => (i + 1) ** -beta), length = Math.hypot(...powers);
    const a = powers.map((x) => x / length), neuron = matchGreedily(a, kept.overlap, m, k);
    const overlap = neuron.map((i, p) => (i < 0 ? NaN : kept.overlap[i * P + p]));
    const sizes = overlap.filter((C) => !isNaN(C)).map(Math.abs);
    const lowest = sizes.length ? 2 * Math.log(Math.min(...sizes)) - 1 : -1, transit = new Transit(k, lowest);
    const pairs = overlap.map((C, p) => (isNaN(C) ? null : new Pair(transit, C, a[p] / INITIAL_NORM ** 2)));
    const leading = overlap.map((C, p) => (isNaN(C) ? Infinity : Math.abs(C) ** (2 - k) / (k * (k - 2) * a[p])));
    const emergence = pairs.map((pair, p) => (pair ? pair.emergence() / a[p] : Infinity));
    const learned = pairs.map((pair, p) => (pair ? pair.learned() / a[p] : Infinity));
    const answer = { coefficients: a, neuron, overlap, leading, emergence, learned, rateLimit: stableRate(a.slice(0, m), k) / d };
    return Object.assign(answer, curves(a, pairs, emergence, learned, beta));
  }

  /** Return times, the loss, the sum formula, learned shares (P, T), the window of the law, and exponents. */
  function curves(a, pairs, emergence, learned, beta) {
    const found = learned.filter(isFinite), first = Math.min(...emergence), last = LAST * Math.max(...found, first);
    const asymptotic = beta > 0.5 ? (1 - 2 * beta) / beta : NaN;
    if (!found.length) return { times: [], loss: [], staircase: [], shares: [], window: null, exponents: { asymptotic } };
    const begin = Math.log(Math.max(0.1 * first, (1e-3 * last) / TIMES)), step = (Math.log(last) - begin) / (TIMES - 1);
    const times = Array.from({ length: TIMES }, (_, i) => Math.exp(begin + step * i));
    const loss = new Array(TIMES).fill(0), shares = a.map(() => new Array(TIMES).fill(0));
    pairs.forEach((pair, p) => {
      let xi = pair ? pair.start : 0;
      times.forEach((t, i) => {
        const state = pair ? pair.at(a[p] * t, xi) : { xi: 0, loss: 1, share: 0 };
        xi = state.xi;
        loss[i] += a[p] ** 2 * state.loss;
        shares[p][i] = state.share;
      });
    });
    const staircase = times.map((t) => a.reduceRight((sum, x, p) => sum + (t < learned[p] ? x * x : 0), 0));
    const order = found.filter((t) => t > 0).sort((x, y) => x - y);
    const isEnough = order.length >= FEWEST_DIRECTIONS;
    const window = isEnough ? [order[0], order[Math.round(order.length ** WINDOW_POWER) - 1]] : null;
    const exponents = {
      asymptotic,
      loss: window ? fitExponent(times, loss, window) : NaN,
      staircase: window ? fitExponent(times, staircase, window) : NaN,
    };
    return { times, loss, staircase, shares, window, exponents };
  }

  /** Return the command that solves the same problem, with all interactions; `eta` is 0 for the flow. */
  function command({ k, beta, P, m, d, eta, seed }) {
    const rate = eta > 0 ? ` --learning-rate ${eta.toExponential()}` : "";
    return `python -m dynamics.solve --k ${k} --beta ${beta} --directions ${P} --width ${m} --dimension ${d} --seed ${seed}${rate}`;
  }

  return { solve, command };
})();

if (typeof module !== "undefined") module.exports = PairEquation;
