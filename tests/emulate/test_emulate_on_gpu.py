"""Matrix products on a GPU equal those of the hardware and of the CPU."""

from __future__ import annotations

import pytest
from marks import only_on_a_gpu

from accprobe import emulate

pytestmark = [*only_on_a_gpu, pytest.mark.usefixtures("h200")]

GEMM = 4096


@pytest.mark.parametrize(("fast", "promote_every"), [(True, None), (False, 128)])
@pytest.mark.parametrize("values", ["normal", "wide"])
def test_products_are_those_of_torch(fast: bool, promote_every: int | None, values: str) -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator(device="cuda").manual_seed(6)
    a, b = (torch.randn((GEMM, GEMM), device="cuda", generator=generator) for _ in range(2))
    if values == "wide":
        a, b = (x * torch.exp2(torch.randint(-6, 7, x.shape, device="cuda", generator=generator)) for x in (a, b))
    a, b = a.clamp(-448, 448).to(torch.float8_e4m3fn), b.clamp(-448, 448).to(torch.float8_e4m3fn)
    one = torch.ones((), device="cuda")
    theirs = torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.float32, use_fast_accum=fast)
    like = "h200:wgmma.m64n256k32.f32.e4m3.e4m3"
    ours = emulate.predict(like, a, b.t(), promote_every=promote_every)
    assert int((ours.view(torch.int32) != theirs.view(torch.int32)).sum()) == 0
    corner = emulate.predict(like, a[:32].cpu(), b[:32].t().cpu(), promote_every=promote_every)
    assert torch.equal(ours[:32, :32].cpu().view(torch.int32), corner.view(torch.int32))


def test_products_with_addend_and_odd_sizes() -> None:
    torch = pytest.importorskip("torch")
    for like, dtype in (
        ("h200:mma.sync.m16n8k16.f32.f16.f16.f32", torch.float16),
        ("h200:wgmma.m64n8k32.f16.e4m3.e4m3", torch.float8_e4m3fn),
        ("h200:wgmma.m64n8k32.f32.e4m3.e4m3", torch.float8_e4m3fn),
    ):
        a, b = torch.randn(70, 333).to(dtype), torch.randn(333, 45).to(dtype)
        a[3, 5] = float("nan")
        for promote_every in (None, 64):
            c = torch.randn(70, 45).to(torch.float16 if ".f16.e4m3" in like and not promote_every else torch.float32)
            ours = emulate.predict(like, a.cuda(), b.cuda(), c.cuda(), promote_every=promote_every)
            theirs = emulate.predict(like, a, b, c, promote_every=promote_every)
            whole = torch.int16 if theirs.element_size() == 2 else torch.int32
            assert torch.equal(ours.cpu().view(whole), theirs.view(whole))


@pytest.mark.parametrize(
    "row", ["16x128x4096 bf16 -> bf16", "256x256x4096 bf16 -> bf16", "512x512x512 f32 -> f32", "127x253x1031 f16 -> f16"]
)
def test_a_recorded_product_is_that_of_torch(row: str) -> None:
    torch = pytest.importorskip("torch")
    m, n, k = map(int, row.split()[0].split("x"))
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[row.split()[1]]
    a, b = (torch.randn(shape, device="cuda").to(dtype) for shape in ((m, k), (k, n)))
    report = "products-h200" if "H200" in torch.cuda.get_device_name() else "products-h100"
    assert torch.equal(emulate.predict(f"{report}:torch:mm {row}", a, b), torch.mm(a, b))
