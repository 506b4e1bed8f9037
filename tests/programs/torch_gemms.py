"""Three products of torch and no other kernel on the GPU: fp8 with and without fast accumulation, and f16.

Operands are made on the CPU, so that no other kernel is launched.
What ncu printed of it is tests/pages/torch_gemms.csv.gz.
"""

import torch

N = 512

torch.manual_seed(0)
a, b = (torch.randn(N, N) for _ in range(2))
a8, b8 = (x.to(torch.float8_e4m3fn).cuda() for x in (a, b))
a16, b16 = (x.half().cuda() for x in (a, b))
one = torch.ones(()).cuda()
for fast in (True, False):
    torch._scaled_mm(a8, b8.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast)
torch.mm(a16, b16)
torch.cuda.synchronize()
