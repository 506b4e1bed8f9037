"""Causes of planted products: operands that one side rounds to TF32, a bias, and plans that have no order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from planted_plans import FMAS, FP8
from planted_products import Planted

from accprobe.callables.spec import Spec
from accprobe.evaluate.any_order import on_cpu
from accprobe.gemm.blackbox import Call
from accprobe.gemm.characterise import characterise
from accprobe.gemm.known_plans import Candidate, KnownPlan, f64_references, steps_to_try
from accprobe.isa.formats import FORMATS
from accprobe.trace import plans
from accprobe.trace.mapping import Mapped
from accprobe.trace.plans import PLANS, RecordedProduct, RegionPlans, infer, mismatches
from accprobe.trace.products import _recorded_product, cause_of_plans, cause_of_products, find_fixes
from accprobe.trace.records import RecordedTrace, TensorValue, TracedOperation
from accprobe.trace.replay import Operand, RecordedCall
from accprobe.trace.sides import KeptCalls, OriginSide

torch = pytest.importorskip("torch")

M, N, K = 8, 16, 64
F32, BF16 = FORMATS["f32"], FORMATS["bf16"]


def drawn(fmt: Any) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(0)
    return tuple(random.standard_normal(shape).astype(fmt.ml_dtype) for shape in ((M, K), (N, K), (N,)))


def test_tf32_operands_are_the_cause() -> None:
    a, b, _ = drawn(F32)
    spec = Spec(M, N, K, F32, F32, F32)
    rounded = replace(spec, a=FORMATS["tf32"], b=FORMATS["tf32"])
    words = a.view(np.uint32), b.view(np.uint32)
    plain, tf32 = (
        replace(FMAS, m=M, n=N, k=K)(a, b.T).view(np.uint32),
        on_cpu(KnownPlan(steps_to_try([rounded])[0], K).model(), *words, None),
    )
    sides = (
        RecordedProduct(spec, Call(*words, None, tf32), "cpu", is_tf32=True),
        RecordedProduct(spec, Call(*words, None, plain), "cpu"),
    )
    plans = infer(sides[0]), infer(sides[1])
    wrong = mismatches(plans[0], sides[0]), mismatches(plans[1], sides[1])
    found = cause_of_plans(plans, wrong, M * N)
    assert (found.kind, found.text, found.verified) == ("cast", "TF32 operands against f32 operands", True)


def test_a_plan_in_any_order_explains_no_order() -> None:
    """A product with K = 2048 was called verified: "instruction f64 sum, in any order against None"."""
    spec = Spec(M, N, K, BF16, BF16, BF16)
    whole = np.arange(M), np.arange(N)
    reference = next(f64_references(spec))
    chain = KnownPlan(steps_to_try([spec])[0], K)
    sides = [RegionPlans(((*whole, x.model),), x.findings) for x in (reference, Candidate("", {}, chain.model()))]
    found = cause_of_plans((sides[0], sides[1]), (0, 0), M * N)
    assert (found.kind, found.verified) == ("unknown", False)
    assert found.text == "not explained: accprobe infers no order of the additions of side A"


def test_products_that_are_equal_without_the_bias_differ_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch 1 against 8: their shapes differ, and a false cause was called verified: "f64 sum against None"."""
    monkeypatch.setattr(PLANS, "of", lambda *_: pytest.fail("a plan is inferred"))
    a, w, bias = torch.ones(8, 2), torch.ones(2, 4), torch.ones(4)
    sides = [added(a[:1], w, bias, bias + 2, 1), added(a, w, bias, bias + 3, 8)]
    found = cause_of_products(sides[0], sides[1])
    assert (found.kind, found.verified) == ("order", False)
    assert found.text == "without the bias both products are equal: it is added at another place of the sum"


def test_a_bias_of_each_row_is_padded_with_the_batch() -> None:
    """The smaller product could not be called with more rows than its bias, and the cause was lost."""
    bias = torch.ones(8, 4)
    sides = [added(torch.ones(n, 2), torch.ones(2, 4), bias[:n], bias[0] + 2, n) for n in (2, 8)]
    assert list(find_fixes(*sides)) == ["pad the batch to 8 rows"]


def added(a: Any, w: Any, bias: Any, result: Any, batch: int) -> OriginSide:
    """Return the side of a call of aten.addmm that gave a result in another batch."""
    operands = [Operand(i, x) for i, x in enumerate((bias, a, w))]
    made = Operand(3, result.expand(len(a), 4))
    values = [TensorValue(x.value, "", x.shape, x.tensor.stride(), "float32") for x in (*operands, made)]
    operation = TracedOperation(0, "aten.addmm.default", "", "forward", tuple(values[:3]), tuple(values[3:]))
    call = RecordedCall(torch.ops.aten.addmm.default, tuple(operands), {}, {}, [made])
    return OriginSide((operation,), (call,), made, KeptCalls(RecordedTrace([]), (), {}.get, Mapped("batch", batch)))


@dataclass
class PlantedCall(RecordedCall):
    """A call of aten._scaled_mm whose bits are planted."""

    plan: Planted | None = None

    def __call__(self, replaced: Mapping[int, Any] | None = None) -> list[Any]:
        given = [x.tensor for x in self.operands()]
        for place, tensor in (replaced or {}).items():
            given[place] = tensor
        a, b, *scales = given
        e4m3 = [x.contiguous().view(torch.uint8).numpy().view(FORMATS["e4m3"].ml_dtype) for x in (a, b)]
        made = self.plan(*e4m3, *(x.numpy() for x in scales))
        return [torch.from_numpy(made.view(np.int16)).view(torch.bfloat16)]


def test_a_scaled_product_is_called_again_with_its_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """An FP8 layer that is promoted to f32 every 128 products; the recorded scales multiply the sums.

    A plan that a probe contradicts is None, though it gives the few recorded words: it was called a verified cause.
    """
    outcomes = []

    def inferred_once(*arguments: Any, **options: Any) -> Any:
        outcomes.append(outcomes[0] if outcomes else characterise(*arguments, **options))
        return outcomes[-1]

    monkeypatch.setattr(plans, "characterise", inferred_once)
    monkeypatch.setattr(plans, "_FRESH", {"cpu": 1 << 10})
    product = _recorded_product(scaled(replace(FP8, m=8, n=8, k=256, scales="row", out="bf16", promote_every=128), 1))
    found = infer(product)
    assert (found.findings["promote_every"], mismatches(found, product)) == (128, 0)
    outcomes[0].main.mismatches = 1
    assert infer(product) is None
    assert len(outcomes) == 2


def scaled(plan: Planted, batch: int) -> OriginSide:
    random = torch.Generator().manual_seed(0)
    a, b = (torch.randn(8, 256, generator=random).to(torch.float8_e4m3fn) for _ in range(2))
    tensors = (a, b.t(), *(torch.rand(shape, generator=random) + 0.5 for shape in ((8, 1), (1, 8))))
    operands = tuple(Operand(i, x) for i, x in enumerate(tensors))
    call = PlantedCall(torch.ops.aten._scaled_mm.default, operands, {}, {}, plan=plan)
    call.results.append(Operand(4, call()[0]))
    values = [TensorValue(x.value, "", x.shape, x.tensor.stride(), str(x.tensor.dtype)) for x in (*operands, *call.results)]
    operation = TracedOperation(0, "aten._scaled_mm.default", "", "forward", tuple(values[:4]), (values[4],))
    return OriginSide((operation,), (call,), call.results[0], KeptCalls(RecordedTrace([]), (), {}.get, Mapped("batch", batch)))


def test_a_product_of_another_machine_is_not_probed_on_this_one() -> None:
    """If this machine gives other words, a plan that is probed here would be called that of the other one."""
    side = scaled(replace(FP8, m=8, n=8, k=64, scales="row", out="bf16"), 1)
    side.run = replace(side.run, from_folder=True)
    assert _recorded_product(side) is not None
    side.calls[0].results[0].tensor[0, 0] += 1
    assert _recorded_product(side) is None
