"""Instructions that have a probe, chosen apart from the catalog."""

from __future__ import annotations

FP8 = ("e4m3", "e5m2")
INT8 = ("s8", "u8")
INT4 = ("s4", "u4")


def required_on_hopper() -> list[str]:
    """Names of the instructions that must have a probe, spelled out apart from the catalog."""
    names = [f"mma.sync.m16n8k{k}.{d}.f16.f16.{d}" for k in (8, 16) for d in ("f32", "f16")]
    names += [f"mma.sync.m16n8k{k}.f32.bf16.bf16.f32" for k in (8, 16)]
    names += [f"mma.sync.m16n8k{k}.f32.tf32.tf32.f32" for k in (4, 8)]
    names += [f"mma.sync.{shape}.f64.f64.f64.f64" for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")]
    names += [f"mma.sync.m16n8k{k}.{d}.{a}.{b}.{d}" for k in (16, 32) for d in ("f32", "f16") for a in FP8 for b in FP8]
    for shape in ("m8n8k16", "m16n8k16", "m16n8k32"):
        names += [f"mma.sync.{shape}{sat}.s32.{a}.{b}.s32" for sat in ("", ".satfinite") for a in INT8 for b in INT8]
    names += [f"mma.sync.m8n8k4.{types}" for types in ("f16.f16.f16.f16", "f32.f16.f16.f16", "f32.f16.f16.f32")]
    for shape in ("m8n8k32", "m16n8k32", "m16n8k64"):
        names += [f"mma.sync.{shape}{sat}.s32.{a}.{b}.s32" for sat in ("", ".satfinite") for a in INT4 for b in INT4]
    for shape in ("m8n8k128", "m16n8k128", "m16n8k256"):
        names += [f"mma.sync.{shape}.s32.b1.b1.s32.{op}.popc" for op in ("and", "xor")]
    names += sparse_on_hopper()
    for n in (8, 256):
        for rs in ("", ".rs"):
            names += [f"wgmma.m64n{n}k16.{d}.f16.f16{rs}" for d in ("f32", "f16")]
            names += [f"wgmma.m64n{n}k16.f32.bf16.bf16{rs}", f"wgmma.m64n{n}k8.f32.tf32.tf32{rs}"]
            names += [f"wgmma.m64n{n}k32.{d}.{a}.{b}{rs}" for d in ("f32", "f16") for a in FP8 for b in FP8]
            names += [f"wgmma.m64n{n}k32{sat}.s32.{a}.{b}{rs}" for sat in ("", ".satfinite") for a in INT8 for b in INT8]
            names += [f"wgmma.m64n{n}k256.s32.b1.b1.and.popc{rs}"]
    return names


def sparse_on_hopper() -> list[str]:
    """Those with a sparse A."""
    names = [f"mma.sp.m16n8k{k}.{d}.f16.f16.{d}" for k in (16, 32) for d in ("f32", "f16")]
    names += [f"mma.sp.m16n8k{k}.f32.bf16.bf16.f32" for k in (16, 32)]
    names += [f"mma.sp.m16n8k{k}.f32.tf32.tf32.f32" for k in (8, 16)]
    names += [f"mma.sp.m16n8k64.f32.{a}.{b}.f32" for a in FP8 for b in FP8]
    for types, ks in ((INT8, (32, 64)), (INT4, (64, 128))):
        names += [
            f"mma.sp.m16n8k{k}{sat}.s32.{a}.{b}.s32" for k in ks for sat in ("", ".satfinite") for a in types for b in types
        ]
    for n in (8, 256):
        for rs in ("", ".rs"):
            names += [f"wgmma.sp.m64n{n}k32.{d}.f16.f16{rs}" for d in ("f32", "f16")]
            names += [f"wgmma.sp.m64n{n}k32.f32.bf16.bf16{rs}", f"wgmma.sp.m64n{n}k16.f32.tf32.tf32{rs}"]
            names += [f"wgmma.sp.m64n{n}k64.{d}.{a}.{b}{rs}" for d in ("f32", "f16") for a in FP8 for b in FP8]
            names += [f"wgmma.sp.m64n{n}k64{sat}.s32.{a}.{b}{rs}" for sat in ("", ".satfinite") for a in INT8 for b in INT8]
    return names


ONE_OF_EACH_LAYOUT = [
    "mma.sync.m8n8k4.f64.f64.f64.f64",
    "mma.sync.m16n8k4.f64.f64.f64.f64",
    "mma.sync.m16n8k8.f64.f64.f64.f64",
    "mma.sync.m16n8k16.f64.f64.f64.f64",
    "mma.sync.m16n8k4.f32.tf32.tf32.f32",
    "mma.sync.m16n8k8.f32.tf32.tf32.f32",
    "mma.sync.m16n8k8.f32.f16.f16.f32",
    "mma.sync.m16n8k8.f16.f16.f16.f16",
    "mma.sync.m16n8k16.f32.bf16.bf16.f32",
    "mma.sync.m8n8k16.s32.s8.u8.s32",
    "mma.sync.m16n8k16.f16.e4m3.e5m2.f16",
    "mma.sync.m16n8k32.f32.e4m3.e5m2.f32",
    "mma.sync.m8n8k32.s32.s4.u4.s32",
    "mma.sync.m16n8k32.s32.u4.s4.s32",
    "mma.sync.m16n8k64.satfinite.s32.s4.s4.s32",
    "mma.sync.m8n8k128.s32.b1.b1.s32.xor.popc",
    "mma.sync.m16n8k128.s32.b1.b1.s32.and.popc",
    "mma.sync.m16n8k256.s32.b1.b1.s32.xor.popc",
    "mma.sync.m8n8k4.f16.f16.f16.f16",
    "mma.sync.m8n8k4.f32.f16.f16.f16",
    "mma.sync.m8n8k4.f32.f16.f16.f32",
    "wgmma.m64n8k256.s32.b1.b1.and.popc",
    "wgmma.m64n8k256.s32.b1.b1.and.popc.rs",
    "wgmma.m64n8k16.f32.f16.f16",
    "wgmma.m64n8k16.f16.f16.f16.rs",
    "wgmma.m64n8k8.f32.tf32.tf32.rs",
    "wgmma.m64n256k32.f32.e4m3.e5m2",
    "wgmma.m64n256k32.f16.e4m3.e5m2.rs",
    "mma.sp.m16n8k16.f32.f16.f16.f32",
    "mma.sp.m16n8k64.kind::f8f6f4.f32.e4m3.e5m2.f32",
    "mma.sp.m16n8k32.f16.f16.f16.f16",
    "mma.sp.m16n8k8.f32.tf32.tf32.f32",
    "mma.sp.m16n8k16.f32.tf32.tf32.f32",
    "mma.sp.m16n8k32.s32.s8.u8.s32",
    "mma.sp.m16n8k64.f32.e4m3.e5m2.f32",
    "mma.sp.m16n8k64.s32.u4.s4.s32",
    "mma.sp.m16n8k128.s32.s4.s4.s32",
    "wgmma.sp.m64n8k32.f32.f16.f16",
    "wgmma.sp.m64n8k32.f16.f16.f16.rs",
    "wgmma.sp.m64n8k16.f32.tf32.tf32",
    "wgmma.sp.m64n256k64.f32.e4m3.e5m2",
    "wgmma.sp.m64n8k64.s32.u8.s8.rs",
]
