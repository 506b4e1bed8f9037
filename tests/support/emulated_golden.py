"""Kernels of golden chains compiled for the CPU: see emulated_gpu.h. An SM is a block, and each of its threads a thread."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiled import WHOLE_BLOCKS, library
from emulated_gpu import shape_of, tables

from accprobe.build.golden import GoldenShape, golden_source

MULTIPLY_CHAIN = """#define MULTIPLY(d, a, b, c, ...) multiply(d, a, b, c __VA_OPT__(,) __VA_ARGS__)
#define MULTIPLY_CHAIN(d, a, b, e, turn) \\
    if (!ADDENDS) for (auto& word : d) word = 0; \\
    for (unsigned step = 0; step < CHAIN; step++) multiply(d, a[step], b[step], e[step])
"""
ENTRIES = """
extern "C" void prepare(Shape s, const Operand* o) {
    shape = s, operand_a = o[0], operand_b = o[1], operand_c = o[2], operand_d = o[3], operand_e = o[4];
}
extern "C" void run_fold(const DElement* words, unsigned* folded) {
    launch({CHAINS, 1}, [=] { fold_words(words, folded); }, 1, GROUP_THREADS);
}
extern "C" void run(unsigned blocks, const Word* a, const Word* b, const unsigned char* metadata, const CElement* addends,
                    const unsigned* folded, const DElement* words, Tally* tally, Record* records, DElement* peek,
                    const unsigned* j) {
    launch({blocks, 1}, [=] {
        golden(a, b, metadata, addends, folded, words, tally, records, peek, j[0], j[1], j[2], j[3], j[4], j[5], j[6], j[7]);
    }, 1, THREADS, j[4]);
}
"""


@dataclass(frozen=True)
class Planted:
    """A planted error, a flipped bit in one register of one thread of one SM.

    It occurs in the last instruction of a chain, if word number `word` of A, masked by `mask`, equals a, and the word of B that
    it is multiplied by, masked by `mask`, equals b. A sparse A must have elements of 8 or 16 bits.
    """

    sm: int
    thread: int
    register: int
    bit: int
    word: int
    mask: int
    a: int
    b: int


def planted_source(shape: GoldenShape, planted: Planted | None) -> str:
    """Return the CUDA C++ of the kernel with that error."""
    errors = vars(planted) if planted else {}
    return "".join(f"#define PLANTED_{name.upper()} {value}\n" for name, value in errors.items()) + golden_source(shape)


def compiled_for_cpu(shape: GoldenShape, planted: Planted | None = None) -> ctypes.CDLL:
    """Return the library with the functions `run` and `run_fold`."""
    text = re.sub(r"#define MULTIPLY.*\n", "", planted_source(shape, planted))
    shared = f"static Word shared[{shape.shared_bytes} / sizeof(Word)];"
    text = re.sub(r"extern __shared__.*?;", shared, text)
    text = re.sub(r'asm volatile\("mov[^;]*;"[^;]*;', "sm = blockIdx.x;", text)
    text = re.sub(r'asm volatile\("(?:fence|bar)[^\n]*?\);', ";", text)
    made = library(f'#include "emulated_gpu.h"\n{MULTIPLY_CHAIN}{text}{ENTRIES}', (*WHOLE_BLOCKS, f"-I{Path(__file__).parent}"))
    operands, made.memory = tables(shape.inst)
    made.prepare(shape_of(shape.inst), operands)
    return made


def pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
