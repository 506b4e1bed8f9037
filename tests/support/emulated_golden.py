"""Kernels of golden chains compiled for the CPU: see emulated_golden.h. An SM is a block, and each of its threads a thread."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiled import WHOLE_BLOCKS, library

from accprobe.build.golden import GoldenShape, golden_source

HEADER = Path(__file__).with_suffix(".h")
CUDA_WORDS = """
#include <barrier>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>
#define __global__
#define __device__
#define __shared__
#define __launch_bounds__(...)
#define __forceinline__ inline
using Value = unsigned long long;
static thread_local struct { unsigned x; } threadIdx;
static struct { unsigned x; } blockIdx, blockDim;
static const void* shared_base;
static std::unique_ptr<std::barrier<>> block_barrier, group_barrier[32];
static void __syncthreads() { block_barrier->arrive_and_wait(); }
static Value atomicAdd(Value* target, Value value) { return __atomic_fetch_add(target, value, __ATOMIC_RELAXED); }
static std::size_t __cvta_generic_to_shared(const void* p) { return (const char*)p - (const char*)shared_base; }
static unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) { return high << by | low >> (32 - by); }
// only: the one block that is launched; ~0u: all of them
template <class Kernel> static void launch(unsigned blocks, unsigned threads, unsigned only, const Kernel& kernel) {
    blockDim.x = threads, block_barrier = std::make_unique<std::barrier<>>(threads);
    for (auto& each : group_barrier) each = std::make_unique<std::barrier<>>(32);
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        if (only != ~0u && blockIdx.x != only) continue;
        std::vector<std::thread> all;
        for (unsigned t = 0; t < threads; t++) all.emplace_back([t, &kernel] { threadIdx.x = t, kernel(); });
        for (auto& each : all) each.join();
    }
}
"""
ENTRIES = """
extern "C" void run_fold(const DElement* words, unsigned* folded) {
    launch(CHAINS, GROUP_THREADS, ~0u, [=] { fold_words(words, folded); });
}
extern "C" void run(unsigned blocks, const Word* a, const Word* b, const unsigned char* metadata, const CElement* addends,
                    const unsigned* folded, const DElement* words, Tally* tally, Record* records, DElement* peek,
                    const unsigned* j) {
    launch(blocks, THREADS, j[4], [=] {
        golden(a, b, metadata, addends, folded, words, tally, records, peek, j[0], j[1], j[2], j[3], j[4], j[5], j[6], j[7]);
    });
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
    inst = shape.inst
    text = re.sub(r"#define MULTIPLY.*\n", "", planted_source(shape, planted))
    shared = f"static Word shared[{shape.shared_bytes} / sizeof(Word)]; shared_base = shared;"
    text = re.sub(r"extern __shared__.*?;", shared, text)
    text = re.sub(r'asm volatile\("mov[^;]*;"[^;]*;', "sm = blockIdx.x;", text)
    text = re.sub(r'asm volatile\("(?:fence|bar)[^\n]*?\);', ";", text)
    emulation = HEADER.read_text(encoding="utf-8")
    text = text.replace("struct Unit {", f"{emulation}\nstruct Unit {{", 1)
    defines = f"#define ELEMENT_BITS {inst.a.storage_bits}\n"
    defines += "#define MULTIPLY(d, a, b, c, ...) multiply(d, a, b, __VA_OPT__(__VA_ARGS__ +) 0u)\n"
    defines += "#define MULTIPLY_CHAIN(d, a, b, e, turn) multiply_chain(d, a, b, e)\n"
    return library(CUDA_WORDS + defines + text + ENTRIES, WHOLE_BLOCKS)


def pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
