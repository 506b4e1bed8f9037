"""What tests that need a GPU are marked with."""

from __future__ import annotations

import pytest

from accprobe.build import driver

NO_GPU = driver.why_no_gpu()
only_on_a_gpu = [pytest.mark.gpu, pytest.mark.skipif(NO_GPU is not None, reason=str(NO_GPU))]
