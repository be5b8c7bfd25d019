# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/adam8bit.safetensors: a few tensors after 100 steps of bitsandbytes' block-wise 8-bit AdamW.

The update is that of bitsandbytes' GPU kernel. The committed file was written by that kernel, with --device cuda. Without a
GPU it is computed here, operation by operation, in fp32: from the same state one of 980,000 codes differs from the
kernel's. The operator that bitsandbytes has for the CPU (another formula for the same update, a table of bf16 values for
the nearest code, no rule about signs) then runs beside it, and the two must agree as far as they can. Needs torch,
safetensors, bitsandbytes.
"""

import argparse
import pathlib

import numpy as np
import torch
from bitsandbytes import functional
from safetensors.torch import save_file

F = np.float32
SIZES, STEPS, KEPT, BLOCK = (4096, 5003, 700, 1), 100, (1, 10, 100), 256
LR, BETA1, BETA2, EPS, DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.01
TEST_KEY = 0x6F7073  # of ops_word() in tests/support/ops.h


def words(stream, count):
    """First words of Philox4x32-10 (src/core/philox.h) for counters 0 … count - 1."""
    low = np.uint64(0xFFFFFFFF)
    c = [np.arange(count, dtype=np.uint64)] + [np.zeros(count, np.uint64) for _ in range(3)]
    key = [stream, TEST_KEY]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]), b & low, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]), a & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0].astype(np.uint32)


def uniform(word):
    """From -1 to 1, exact."""
    return (word.astype(np.int64) - 2**31 >> 8).astype(F) * F(2.0**-23)


SCALES = np.array([1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10], F)


def gradient(tensor, step, count):
    """Half of the tensors have a size for each element, the others one for each block; a third of all is 0."""
    kind = words(1000 + tensor, count if tensor % 2 else count // BLOCK + 1)
    size = SCALES[kind % 10] if tensor % 2 else np.repeat(SCALES[kind % 10], BLOCK)[:count]
    word = words(2000 + 10 * step + tensor, count)
    return np.where(word % 3 == 0, F(0), size * uniform(word))


def quantise(qmap, has_sign, x):
    """The kernel's search: seven halvings from code 127, then the middle between the last code and its neighbour."""
    pivot, lower, upper = (np.full(x.shape, start) for start in (127, 0, 255))
    low, high = np.full(x.shape, F(-1 if has_sign else 0)), np.full(x.shape, F(1))
    value = qmap[pivot]
    for step in (64, 32, 16, 8, 4, 2, 1):
        more = x > value
        lower, low = np.where(more, pivot, lower), np.where(more, value, low)
        upper, high = np.where(more, upper, pivot), np.where(more, high, value)
        pivot = np.where(more, pivot + step, pivot - step)
        value = qmap[pivot]
    up, down = x > (high + value) * F(0.5), x < (low + value) * F(0.5)
    return np.where(x > value, np.where(up, upper, pivot), np.where(down, lower, pivot))


def fma(a, b, c):
    return (np.float64(a) * np.float64(b) + np.float64(c)).astype(F)


def blocks(x, fill):
    return np.concatenate([x, np.full(-len(x) % BLOCK, fill, x.dtype)]).reshape(-1, BLOCK)


def kernel_step(state, g, t, maps, decay):
    p, m8, v8, absmax_m, absmax_v = state
    n, b1, b2, lr = len(p), F(BETA1), F(BETA2), F(LR)
    correction1, correction2 = F(1 - float(b1) ** t), F(np.sqrt(1 - float(b2) ** t))
    m = blocks(maps[0][m8], 0) * absmax_m[:, None]
    v = blocks(maps[1][v8], 0) * absmax_v[:, None]
    grid = blocks(g, 0)
    v = fma(v, b2, (F(1) - b2) * grid * grid)
    m = fma(m, b1, (F(1) - b1) * grid)
    absmax_m, absmax_v = np.abs(m).max(1), v.max(1)
    update = (m / (np.sqrt(v) + correction2 * F(EPS))).reshape(-1)[:n]
    p = fma(-lr * correction2 / correction1, update, p)
    if decay > 0:
        p = p * (F(1) - lr * F(decay))
    with np.errstate(divide="ignore", invalid="ignore"):
        m8 = quantise(maps[0], True, m * (F(1) / absmax_m)[:, None])
        v8 = quantise(maps[1], False, v * (F(1) / absmax_v)[:, None])
    wrong = np.signbit(maps[0][m8]) != np.signbit(m)
    m8 = np.where(wrong, np.where(m > 0, m8 + 1, m8 - 1), m8).astype(np.uint8)
    return p, m8.reshape(-1)[:n], v8.astype(np.uint8).reshape(-1)[:n], absmax_m, absmax_v


def library_step(state, g, t, maps, decay, device):
    tensors = [torch.from_numpy(x.copy()).to(device) for x in (*state, g, *maps)]
    p, m8, v8, absmax_m, absmax_v, g, book_m, book_v = tensors
    functional.optimizer_update_8bit_blockwise(
        "adam", g, p, m8, v8, BETA1, BETA2, 0.0, 0.0, EPS, t, LR, book_m, book_v, absmax_m, absmax_v,
        weight_decay=decay, gnorm_scale=1.0, skip_zeros=False,
    )  # fmt: skip
    return tuple(x.cpu().numpy() for x in (p, m8, v8, absmax_m, absmax_v))


def compare(a, b):
    """The kernel's step and the CPU operator's, from the same state; counts the codes that differ."""
    # The operator has 1 - 0.999 as 0.001, the kernel 1e-5 off; where the code of v is 0, p moves by m / eps.
    off = np.abs(a[0] - b[0]) / np.maximum(1, np.abs(a[0]))
    assert off.mean() <= 1e-5, off.mean()
    apart = []
    for code, absmax in ((1, 3), (2, 4)):
        np.testing.assert_allclose(a[absmax], b[absmax], rtol=2e-5, atol=1e-38)
        live = np.repeat(a[absmax] > 0, BLOCK)[: len(a[0])]
        difference = np.abs(a[code].astype(int) - b[code])[live]
        apart.append((difference > 0).sum())
    return np.array([*apart, len(a[0])])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).parents[2] / "tests/golden/adam8bit.safetensors")  # fmt: skip
    args = parser.parse_args()
    maps = [functional.create_dynamic_map(signed=signed).numpy() for signed in (True, False)]
    # The names under which tests/golden/adam8bit.safetensors has the maps.
    golden = {"signed_book": torch.from_numpy(maps[0]), "unsigned_book": torch.from_numpy(maps[1])}
    apart = np.zeros(3, int)
    for tensor, size in enumerate(SIZES):
        many, decay = -(-size // BLOCK), DECAY if tensor < 2 else 0.0
        state = (uniform(words(tensor, size)), np.zeros(size, np.uint8), np.zeros(size, np.uint8), np.zeros(many, F),
                 np.zeros(many, F))  # fmt: skip
        for t in range(1, STEPS + 1):
            g = gradient(tensor, t, size)
            if args.device == "cuda":
                state = library_step(state, g, t, maps, decay, "cuda")
            else:
                other = library_step(state, g, t, maps, decay, "cpu")
                state = kernel_step(state, g, t, maps, decay)
                apart += compare(state, other)
            if t in KEPT:
                for name, value in zip(("p", "state1", "state2", "absmax1", "absmax2"), state, strict=True):
                    # snug reads codes as F16, which holds them exactly
                    kept = torch.from_numpy(value.astype(np.float16) if value.dtype == np.uint8 else value)
                    golden[f"{tensor}.{t}.{name}"] = kept.contiguous()
    if args.device == "cpu":
        print(f"codes of m, of v that the CPU operator rounds otherwise: {apart[0]}, {apart[1]} of {apart[2]}")
    save_file(golden, args.out)


main()
