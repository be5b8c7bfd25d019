# SPDX-License-Identifier: Apache-2.0
"""Rewrites the parts of a .cu file that a C++ compiler cannot read: launches, dynamic shared memory, and inline PTX."""
import re
import sys


def end_of(text, at):
    """The position of the bracket that closes the one at position at."""
    depth = 0
    while True:
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at
        at += 1


def split_arguments(text):
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def convert_launches(text):
    """kernel<T><<<grid, block, shared, stream>>>(arguments) becomes emulate_call(grid, block, shared, stream, work), where
    work holds the values that the arguments have now."""
    while "<<<" in text:
        begin = text.index("<<<")
        name, depth = begin, 0
        while text[name - 1].isspace():
            name -= 1
        while True:
            c = text[name - 1]
            if c not in "<>" and depth == 0 and not (c.isalnum() or c in "_:"):
                break
            depth += (c == ">") - (c == "<")
            name -= 1
        middle = text.index(">>>", begin)
        end = end_of(text, middle + 3)
        sizes = (split_arguments(text[begin + 3 : middle]) + ["0", "NULL"])[:4]
        call = f"{text[name:begin]}(values...);"
        work = f"[=](auto... values) {{ return [=] {{ {call} }}; }}({text[middle + 4 : end]})"
        text = f"{text[:name]}emulate_call({', '.join(sizes)}, {work}){text[end + 1 :]}"
    return text


INSTRUCTIONS = [
    (r"cp\.async\.cg\.shared\.global", "emulate_copy(to, from, 16, there);"),
    (r"cp\.async\.ca\.shared\.global \[%0\], \[%1\], 4", "emulate_copy(to, from, 4, there);"),
    (r"cp\.async\.(commit|wait)_group", ";"),
    (r"ldmatrix\.sync\.aligned\.m8n8\.x4\.trans", "emulate_ldmatrix(r, emulated_shared + at, true);"),
    (r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared", "emulate_ldmatrix(r, emulated_shared + at, false);"),
    (r'BEGIN\(type, "37"', "emulate_multiply_tile(c, a, tile, add, BY_ROWS, std::is_same_v<E, f16>);"),
    (
        r'BEGIN\(type, "34"',
        "emulate_multiply_tiles(c, left, tile, add, LEFT_BY_ROWS, BY_ROWS, std::is_same_v<E, f16>);",
    ),
    (r"wgmma\.(fence|commit_group|wait_group)|fence\.proxy\.async|griddepcontrol", ";"),
    (r'volatile\(""|setmaxnreg', ";"),
    (r"mbarrier\.init", "emulate_make_barrier(emulated_shared + at, arrivals);"),
    (r"mbarrier\.arrive", "emulate_arrive(emulated_shared + at);"),
    (r"mbarrier\.try_wait", "emulate_wait(emulated_shared + at, phase);"),
    (r"stmatrix\.sync\.aligned\.m8n8\.x4\.shared", "emulate_stmatrix(emulated_shared + at, r);"),
    (r"cvt\.rn\.relu\.(bf16|f16)x2", "r = pack<E>(low < 0 ? 0 : low, high < 0 ? 0 : high);"),
    (r"prmt\.b32", "r = emulate_select_bytes(low, high, SELECTOR);"),
    (r"ex2\.approx\.ftz", "r = exp2f(x);"),
    (r"rcp\.approx\.ftz", "r = 1 / x;"),
    (r"sqrt\.approx\.ftz", "r = sqrtf(x);"),
    (r"ld\.shared\.v[24]\.b32", "emulate_load(r, emulated_shared + at);"),
    (r"cvt\.rna\.tf32\.f32", "r = emulate_round_to_tf32(x);"),
    (r"mma\.sync\.aligned\.m16n8k8.*f32\.tf32\.tf32\.f32", "emulate_mma_tf32(c, a, b0, b1);"),
    (r"mma\.sync\.aligned\.m16n8k8.*f32\.f16\.f16\.f32", "emulate_half_mma(c, a0, a1, b);"),
    (r"mma\.sync\.aligned\.m16n8k16.*f32\.f16\.f16\.f32", "emulate_mma(c, a, b0, b1, true);"),
    (r"mma\.sync\.aligned\.m16n8k16.*f32\.bf16\.bf16\.f32", "emulate_mma(c, a, b0, b1, false);"),
]


def convert_instructions(text):
    while (found := re.search(r"\basm(?: volatile)?\(", text)) is not None:
        end = end_of(text, found.end() - 1)
        body = text[found.start() : end]
        by = next((by for pattern, by in INSTRUCTIONS if re.search(pattern, body)), None)
        if by is None:
            sys.exit(f"no emulation of {body}")
        text = text[: found.start()] + by + text[text.index(";", end) + 1 :]
    return text.replace("(uint32_t)__cvta_generic_to_shared(p)", "(uint32_t)((const uint8_t *)p - emulated_shared)")


source, target = sys.argv[1:]
text = open(source).read()
text = re.sub(r"extern __shared__ (?:__align__\(\d+\) )?(\w+) shared\[\];", r"\1 *shared = (\1 *)emulated_shared;", text)
open(target, "w").write(convert_instructions(convert_launches(text)))
