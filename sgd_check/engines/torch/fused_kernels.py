r"""Triton kernels: many steps of online SGD per launch, samples made and used on the chip; and the samples alone.

One program is one run. A block of K steps walks once over the coordinates in chunks: it brings a chunk of the weights
up to date with the block before, and adds the chunk's share to Z = V X^T, G = X X^T, the lengths and the labels of the
block to come; the K steps themselves are then recursions on m×K numbers (`sgd_check.engines.torch.engine` has the
equations). So weights are read and written once in K steps, and samples, a function of seed, sample and coordinate,
never leave the registers: made twice, for the block to come and for the block before.

Triton is imported here alone; `engine` and `samples` launch.
"""
# Arguments and results of these functions have Triton's types, and a branch on constants needs its `else`.
# ruff: noqa: ANN001, ANN201, RET505
# mypy: ignore-errors

import triton
import triton.language as tl

# Coordinates that share one number of Philox's counter lie this far apart; another distance gives other samples.
CHUNK = tl.constexpr(32)
TWO_PI = tl.constexpr(6.283185307179586)
ROOT_HALF = tl.constexpr(0.7071067811865476)
ROOT_TWO_OVER_PI = tl.constexpr(0.7978845608028654)


@triton.jit
def uniform(bits, dtype: tl.constexpr):
    """Return 32 random bits as a number in (0, 1]."""
    return (bits.to(dtype) + 1.0) * 2.3283064365386963e-10


@triton.jit
def normals(seed, sample, counter, stream, dtype: tl.constexpr):
    """Return four independent standard normal numbers per sample (int64) and counter (int32), which broadcast.

    Philox4x32-10 keyed by the seed at (counter, sample mod 2^32, sample div 2^32, stream), then Box and Muller.
    """
    zero = (sample * 0).to(tl.int32) + counter * 0
    low, high = (sample & 0xFFFFFFFF).to(tl.uint32), (sample >> 32).to(tl.uint32)
    c0, c1 = (zero + counter).to(tl.uint32), zero.to(tl.uint32) + low
    c2, c3 = zero.to(tl.uint32) + high, (zero + stream).to(tl.uint32)
    a, b, c, d = tl.philox(seed, c0, c1, c2, c3)
    first, second = tl.sqrt(-2.0 * tl.log(uniform(a, dtype))), tl.sqrt(-2.0 * tl.log(uniform(c, dtype)))
    angle, second_angle = uniform(b, dtype) * TWO_PI, uniform(d, dtype) * TWO_PI
    return first * tl.cos(angle), first * tl.sin(angle), second * tl.cos(second_angle), second * tl.sin(second_angle)


@triton.jit
def link(z, LINK: tl.constexpr, HERMITE: tl.constexpr):
    """Return σ(z) and σ'(z): a named function, or Σ_j c_j h_j by the recurrence, unrolled for the c_j of `HERMITE`."""
    if LINK == "relu":
        return tl.maximum(z, 0.0), tl.where(z > 0.0, z * 0.0 + 1.0, z * 0.0)
    elif LINK == "tanh":
        value = 1.0 - 2.0 / (tl.exp(2.0 * z) + 1.0)
        return value, 1.0 - value * value
    elif LINK == "erf":
        return tl.erf(z * ROOT_HALF), tl.exp(-0.5 * z * z) * ROOT_TWO_OVER_PI
    elif LINK == "gelu":
        share = 0.5 * (1.0 + tl.erf(z * ROOT_HALF))
        return z * share, share + z * tl.exp(-0.5 * z * z) * (0.5 * ROOT_TWO_OVER_PI)
    else:
        before, now = z * 0.0, z * 0.0 + 1.0
        value, slope = now * HERMITE[0], before
        for j in tl.static_range(1, len(HERMITE)):
            slope += now * (j**0.5 * HERMITE[j])
            later = (z * now - before * (j - 1) ** 0.5) * (1.0 / j**0.5)
            before = now
            now = later
            value += now * HERMITE[j]
        return value, slope


@triton.jit
def recursion(
    Z, G, norm, labels, rates, count, live, LINK: tl.constexpr, HERMITE: tl.constexpr, FREE: tl.constexpr
):  # fmt: skip
    """Take `count` steps of a block; return the coefficients of its samples, (M, K), and the scale of the weights."""
    ks = tl.arange(0, Z.shape[1])
    C = Z * 0.0
    norm = tl.where(live, norm, 1.0)
    ratio = tl.rsqrt(norm)
    for k in range(count):
        rate = tl.load(rates + k)
        mine = ks == k
        row = tl.sum(tl.where(mine[:, None], G, 0.0), axis=0)
        z = tl.sum(tl.where(mine[None, :], Z, 0.0), axis=1)
        label = tl.sum(tl.where(mine, labels, 0.0), axis=0)
        if FREE:
            sigma, slope = link(z, LINK, HERMITE)
            c = rate * (tl.sum(tl.where(live, sigma, 0.0), axis=0) - label) * slope
        else:
            z = z * ratio
            sigma, slope = link(z, LINK, HERMITE)
            error = rate * (tl.sum(tl.where(live, norm * sigma, 0.0), axis=0) - label)
            g = error * slope
            h = 1.0 - error * (2.0 * sigma - z * slope)
            growth = h * (h - 2.0 * g * z) + g * g * tl.sum(tl.where(mine, row, 0.0), axis=0)
            ratio = ratio * h
            c = g / ratio
            ratio = ratio / tl.sqrt(growth)
            norm = norm * growth
        Z -= c[:, None] * row[None, :]
        C = tl.where(mine[None, :], c[:, None], C)
    if FREE:
        return C, norm * 0.0 + 1.0
    else:
        return C, ratio * tl.sqrt(norm)


# Numbers that change from launch to launch must not be compiled for; that takes seconds.
@triton.jit(do_not_specialize=["first", "steps"])
def advance(
    weights, rates, seeds, teacher, first, steps, m, d, pitch, P, noise,
    K: tl.constexpr, M: tl.constexpr, LINK: tl.constexpr, HERMITE: tl.constexpr, FREE: tl.constexpr,
    NOISY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Take `steps` steps of every run.

    weights (runs, m, pitch), rates η (steps,), seeds (runs,) int64, teacher a (P,), first: number of the first sample.
    """
    run = tl.program_id(0).to(tl.int64)
    dtype: tl.constexpr = weights.dtype.element_ty
    seed = tl.load(seeds + run)
    neurons, ks, cs = tl.arange(0, M), tl.arange(0, K), tl.arange(0, CHUNK)
    live = neurons < m
    run_weights = weights + run * m * pitch
    C = tl.zeros((M, K), dtype)
    scale = tl.full((M,), 1.0, dtype)
    blocks = tl.cdiv(steps, K)
    for block in range(blocks + 1):
        Z, G = tl.zeros((M, K), dtype), tl.zeros((K, K), dtype)
        norm, labels = tl.zeros((M,), dtype), tl.zeros((K,), dtype)
        now = block * K + ks.to(tl.int64)
        for group in range(tl.cdiv(d, 4 * CHUNK)):
            counter = group * CHUNK + cs
            four = normals(seed, (first + now)[:, None], counter[None, :], 0, dtype)
            last_four = normals(seed, (first + now - K)[:, None], counter[None, :], 0, dtype)
            for part in tl.static_range(4):
                column = (group * 4 + part) * CHUNK + cs
                inside = column < d
                x = tl.where(inside[None, :], four[part], 0.0)
                last = tl.where(inside[None, :], last_four[part], 0.0)
                addresses = run_weights + neurons[:, None] * pitch + column[None, :]
                kept = live[:, None] & inside[None, :]
                w = tl.load(addresses, mask=kept, other=0.0)
                w = scale[:, None] * (w - tl.dot(C, last, input_precision=PRECISION))
                tl.store(addresses, w, mask=kept)
                transposed = tl.trans(x)
                Z += tl.dot(w, transposed, input_precision=PRECISION)
                G += tl.dot(x, transposed, input_precision=PRECISION)
                norm += tl.sum(w * w, axis=1)
                if (group * 4 + part) * CHUNK < P:
                    a = tl.load(teacher + column, mask=column < P, other=0.0)
                    sigma, _ = link(x, LINK, HERMITE)
                    labels += tl.sum(a[None, :] * sigma, axis=1)
        if NOISY:
            xi, _, _, _ = normals(seed, first + now, ks * 0, 1, dtype)
            labels += noise * xi
        count = tl.maximum(tl.minimum(K, steps - block * K), 0)
        C, scale = recursion(Z, G, norm, labels, rates + block * K, count, live, LINK, HERMITE, FREE)
        tl.debug_barrier()


@triton.jit(do_not_specialize=["first", "rows"])
def fill(out, noises, seeds, first, rows, d, pitch, ROWS: tl.constexpr, NOISY: tl.constexpr):
    """Write the samples first, … of every run to out (runs, rows, pitch), and their noise to noises (runs, rows)."""
    run = tl.program_id(0).to(tl.int64)
    group = tl.program_id(2)
    dtype: tl.constexpr = out.dtype.element_ty
    seed = tl.load(seeds + run)
    row = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cs = tl.arange(0, CHUNK)
    counter = group * CHUNK + cs
    four = normals(seed, (first + row)[:, None], counter[None, :], 0, dtype)
    for part in tl.static_range(4):
        column = (group * 4 + part) * CHUNK + cs
        kept = (row < rows)[:, None] & (column < d)[None, :]
        tl.store(out + (run * rows + row)[:, None] * pitch + column[None, :], four[part], mask=kept)
    if NOISY:
        xi, _, _, _ = normals(seed, first + row, tl.arange(0, ROWS) * 0, 1, dtype)
        tl.store(noises + run * rows + row, xi, mask=row < tl.where(group == 0, rows, 0))
