"""Kernels of a call, and what computes on this machine."""

from __future__ import annotations

import numpy as np

from accprobe.gemm.blackbox import Spec
from accprobe.gemm.callables import machine
from accprobe.gemm.callables.adapter import CallableAdapter
from accprobe.gemm.callables.arrays import open_arrays
from accprobe.gemm.callables.machine import device_record, empty_report, library_versions
from accprobe.isa.formats import FORMATS


def test_a_cpu_has_no_kernels_and_says_whose_product_it_is() -> None:
    f32 = FORMATS["f32"]
    library = open_arrays("numpy")
    mine = CallableAdapter(Spec(2, 2, 4, f32, f32, f32), np.matmul, library, "mine")
    assert machine.kernels_of(mine) == ((), "")
    versions = library_versions(library)
    assert versions["numpy"] == np.__version__
    assert "BLAS" in versions["blas"].upper() or "MKL" in versions["blas"].upper()
    assert int(versions["threads"]) >= 1
    record = device_record(library)
    assert (record.kind, bool(record.name), bool(record.architecture)) == ("cpu", True, True)
    assert empty_report(library, 3).device == record
