"""Every word that a report uses, with what it means."""

from __future__ import annotations

from accprobe.model.fields import FEATURES

_WORDS = {
    "instruction": "one PTX matrix multiply-accumulate, D = A·B + C, named by its qualifiers: D, A, B, C of mma.sync;"
    " D, A, B of wgmma and tcgen05, where C is D. .rs is a wgmma that takes A from registers",
    "PTX, SASS": "the instructions that a kernel is written in, and those that the GPU runs",
    "opcode": "a SASS instruction: HMMA, QGMMA, UTCQMMA, …",
    "lowering": "all of the SASS that one PTX instruction becomes: converts, several matrix opcodes, a separate add of C",
    "cubin": "the compiled file that was launched, and disassembled; its sha256 names it",
    "A, B, C, D": "the operands A and B, of which K products are made, the addend C, and the result D",
    "m, n, k": "the shape of the tiles: D is m × n, and each of its numbers is a sum of k products and C",
    "f16, bf16, tf32, f32, f64": "binary floats; with 10, 7, 10, 23 and 52 fraction bits",
    "e4m3, e5m2": "FP8, floats of 8 bits: exponent bits and fraction bits",
    "e8m13": "a float with 8 exponent and 13 fraction bits; with the sign 22 bits, hence FP22",
    "s8, u8, s32": "signed and unsigned integers",
    "fused sum": "one hardware addition of many terms: aligned to the largest exponent, cut to F fraction bits, added exactly,"
    " rounded once",
    "summation tree": "the order of addition: leaves are the K products and C, inner nodes are fused sums",
    "RZ, RNE, RU, RD": "rounding toward zero; to nearest, ties to even; up; down",
    "truncate, floor, nearest, sticky": "what becomes of the bits of a term below F: dropped; dropped in two's complement;"
    " rounded; or-ed into the last bit kept",
    "subnormal": "a number too small for a leading one",
    "promotion": "adding the matrix unit's partial sum to a separate register every so many products",
    "exact": "of a value: known; of a sum: every bit of every term is kept",
    "at least, ≥": "the experiment ran out of operands before the hardware ran out of bits",
    "suggested, ~": "in a row that is not confirmed: what explains most of the answers; no fact, any other value is possible",
    "undetermined, ?": "several values explain everything seen; `left` has them",
    "any": "a feature that no operands can show, such as the order of integer sums that wrap",
    "evidence": "dot products that the device was asked, and its answers: bit patterns in hex, values in brackets",
    "M": "in evidence: a number so large that a unit beside it is lost",
    "verification": "random dot products that the model was compared with the device on, bit for bit",
    "operands": "kinds of random ones: uniform bit patterns, normal values, wide, near and close exponents, cancelling, tiny,"
    " huge, sparse and special values",
    "cells": "of the tile that an instruction computes: one lies in a lane's register, and a fault may be in a few of them",
    "events": "what sums of the model can do: shifts, carries, ties, cancellation, overflow; a dot product makes some happen",
    "95 %": "the chance with which faults as frequent as said would have shown: n dot products without a mismatch exclude more"
    " than 3 in n",
    "rival": "a model that differs in one respect; one that no operands contradict is left",
    "confirmed": "the expected unit ran, every answer of the device is the model's, every cell was read, every event was met",
    "inferred": "there is a model, but some answer contradicts it, or not all that it can do was seen",
    "unstable": "the device gave two answers to one question",
    "unverified": "there is no model, the expected unit did not run, or which one ran is not known",
    "simulated": "computed from models; no hardware answered",
    "words explained": "results that others recorded on the real chip, and that the published model has, bit for bit",
}

GLOSSARY: dict[str, str] = _WORDS | {feature.title: feature.says for feature in FEATURES.values()}
"""By word: those of every report first, then its features."""
