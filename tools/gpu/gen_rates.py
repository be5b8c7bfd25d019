#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rates that `snug plan --gpu` scales (src/measure/rates_measured.h), from a file of rates.

Usage: tools/gpu/gen_rates.py FILE.json > src/measure/rates_measured.h; make format
FILE.json is the output of `snug bench rates --device cuda --json`; its GPU must be in src/backend/gpu_models.c."""
import json
import sys

def main(path):
    with open(path) as file:
        rates = json.load(file)
    if not rates["overlaps"]:
        sys.exit(f"{path}: these are the rates of a CPU")
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Made by tools/gpu/gen_rates.py from the output of `snug bench rates --device cuda --json`. */")
    print("#ifndef SNUG_MEASURE_RATES_MEASURED_H\n#define SNUG_MEASURE_RATES_MEASURED_H\n\n#include \"measure/rates.h\"\n")
    print(f'#define SNUG_MEASURED_GPU "{rates["device"]}"\n')
    print("/* Operation, types, dropout, file; seconds per call, FLOP and byte; samples, error. */")
    print("static const struct snug_rate snug_measured_rates[] = {")
    for r in rates["seconds"]:
        if r.get("file") or r["types"] & 16:  # of the disk and of the processor of that machine
            continue
        print(f'    {{SNUG_OP_{r["operation"].upper()}, {r["types"]}, {str(r["dropout"]).lower()}, false, {r["call"]:.3g}, {r["flop"]:.3g}, '
              f'{r["byte"]:.3g}, {r["samples"]}, {r["error"]:.2g}}},')
    print("};\n\n#endif")


if __name__ == "__main__":
    sys.exit(__doc__) if len(sys.argv) != 2 else main(sys.argv[1])
