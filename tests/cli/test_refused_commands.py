"""What commands refuse: exit status 2, nothing on standard output, and one sentence that says what to do."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from commands import assert_refused, invoke
from compiled import needs

UNKNOWN_DEVICE = "devices are auto, gpu, cpu, cuda:N, sim:NAME and replay:FILE (see"

TEXT = "-o cannot write .txt: let the name end in {}, or redirect: > x.txt"

REFUSED = [
    ("rum", "No such command 'rum'. Did you mean 'run'?"),
    ("list --instructions H200", "unknown architecture 'H200'; it is of sm_90a"),
    ("show ''", "no report is named: give a file, a recorded report, "),
    ("show h2000", "there is no file and no recorded report 'h2000'; did you mean h200 or h100?"),
    ("show h200 wgmma.m64n12k32.f32.e4m3.e4m3", "h200 has no instruction"),
    ("show h200 -o absent/x.html", "there is no folder absent; create it: mkdir -p absent"),
    ("diff h200 sim:z9", "no published model of 'sim:z9'; known are sim:"),
    ("diff h200 h200 --only efective_bits", "there is no field 'efective_bits' to compare; did you mean effective_bits"),
    ("predict QGMMA a.npy b.npy -o y.txt", "-o y.txt: the result is written as .npy; let the name end in .npy"),
    ("check h200", "there is nothing to check: give --require LINE or --file FILE"),
    ("check h200 --file nowhere.toml", "there is no file nowhere.toml"),
    ("run --device sim:h100 --select e9m9", "'e9m9' selects no instruction of sm_90a; "),
    ("run --device sim:h100 --dots 0", "'0' is not a positive whole number"),
    ("run --divice x", "No such option '--divice'. Did you mean '--device'?"),
    ("run --device cuda", f"unknown device 'cuda' (did you mean cuda:0?); {UNKNOWN_DEVICE}"),
    ("run --device h200", f"unknown device 'h200' (did you mean sim:h200?); {UNKNOWN_DEVICE}"),
    ("run --device cuda:x", "'cuda:x' is not a device; a GPU is named cuda:0, cuda:1, …"),
    ("run --device cpu --ncu", "--ncu needs a GPU: cpu executes no GPU code"),
    (
        "verify sim:v100 --device sim:h100 --select 'wgmma*'",
        "sim:v100 has no model of a selected instruction that simulated H100 can run",
    ),
    ("health --device sim:h100 --like products-h200", "products-h200 has no model of any instruction; name a report that has"),
    ("health --device sim:h100 --minutes nan", "nan is not a finite number"),
    ("run --device sim:h100 --time-limit 1e18", "1e+18 is not in the range 0<x<=31536000"),
    ("health --level quick --minutes 1", "--level and --minutes both give the duration: leave out one of them"),
    ("health --patience 9", "--patience has no effect without --ray"),
    ("health --device auto", "'auto' is not a GPU; give all, or some of cuda:N, sim:NAME and faulty:NAME with commas between"),
    ("health --device sim:h100,", "'' is not a GPU; "),
    ("budget", "Missing argument 'NAME...'."),
    ("budget HMMA --dtype s8", "HMMA has no operands of s8; it has f16, bf16, tf32"),
    ("budget XGMMA", "accprobe has no model of 'XGMMA'; did you mean QGMMA, IGMMA or HGMMA?"),
    ("budget IMMA", "give a dense float instruction"),
    ("budget h200:mma.sync.m8n8k4.f64.f64.f64.f64", "float64 does not hold their exact sums"),
    ("budget products-h200:torch:mm", "products: add words of one of them, such as torch:mm"),
    ("budget 'products-h200:torch:mm 256x256x4096 bf16 -> bf16' --dtype e4m3", "no product of operands e4m3"),
    ("budget products-h200:nothing", "products-h200 has no product 'nothing'"),
    ("budget QGMMA --k ,", "no value is given"),
    ("budget QGMMA --k 1e12", "would not fit in memory; give a K of at most"),
    ("budget QGMMA --split-k 1000", "there are only 32 groups of 32 products"),
    ("budget QGMMA --out e4m3", "is not supported; give one of f32, f16, bf16"),
    ("budget QGMMA --data norml", "and not a kind of data; did you mean normal"),
    ("budget QGMMA HGMMA --scale none,row", "--scale supports operands of at most 8 bits"),
    ("budget QGMMA --data ./w.txt", "give a matrix as .npy, .pt or .safetensors"),
    ("tolerance QGMMA", "K of the product is missing"),
    ("tolerance QGMMA --k 100 --promote-every 100", "products are added in groups of 32; the nearest are 96 and"),
    ("tolerance QGMMA --k 128 --split-k 9", "in 9 slices"),
    ("tolerance QGMMA --k 4e7", "is too large: give a smaller --m, --n or --k"),
    ("tolerance QGMMA --k 128 --data normal,same-sign", "'normal,same-sign' is several kinds of data: give one"),
    ("tolerance QGMMA --k 128 --out e4m3", "give a float format with infinities"),
    ("tolerance QGMMA --k 128 --false-alarms 0", "--false-alarms"),
    ("tolerance h200:mma.sync.m8n8k4.f64.f64.f64.f64 --k 64 --split-k 2", "promotion and split-K need"),
    ("gemm", "no CALLABLE is given; `accprobe gemm --list` lists the built-in ones"),
    ("gemm --list numpy:matmul", "--list prints every built-in callable: leave out numpy:matmul"),
    ("gemm numpy:matmul --data none.npy", "there is no file none.npy"),
    ("gemm numpy:matmul --shape 8x8x100000000000", "K is 100000000000: give 1 to 1048576"),
    ("gemm numpy:matmul --arrays jax", "numpy:matmul takes arrays of numpy only, not of jax"),
    ("reduce numpy:sum --sweep rows=8,8", "--sweep 'rows=8,8' has one size, with which nothing is compared"),
    ("gemm numpy:matmul --sweep k=1", "--sweep 'k=1' is not a list of m; give for example m=1,8,64"),
    ("gemm numpy:matmul --shape 4x4x16 --sweep m=1,2 --versus numpy:matmul", "--sweep compares sizes of one callable"),
    ("reduce numpy:max --shape 4x32", "is not a sum or mean"),
    ("reduce numpy:mean --shape 4x24", "give a K that is a power of two"),
    ("reduce numpy:sum --dim all", "--dim all adds every element: give --shape 1xK"),
    ("reduce numpy:exp --shape 8x4", "numpy:exp is not a reduction of x along axis"),
    ("reduce torch.distributed:all_reduce", "give --ranks N, its number of processes"),
    ("reduce torch.distributed:all_reduce --ranks 1", "one rank adds nothing"),
    ("reduce torch.distributed:reduce_scatter --ranks 3 --shape 8", "8 elements are not divisible by 3 ranks"),
    ("reduce torch:mm", "is a matrix product: use `accprobe gemm torch:mm`"),
    ("reduce torch.distributed:all_reduce --ranks 2 --dim first", "--dim has no effect on a collective"),
    ("function --dtype bf16", "--versus, --dtype, --scale, --arrays and --exhaustive need a CALLABLE"),
    ("function numpy:exp --scale row --exhaustive", "--exhaustive has no effect with --scale"),
    ("reduce numpy:sum --op avg", "--op belongs to collectives"),
    ("gemm numpy:matmul --option every", "'every' is not an option: give NAME=VALUE, such as use_fast_accum=True,False"),
    ("explain --a missing.npy --b b.npy d.npy", "there is no file missing.npy"),
    ("sass absent.cubin", "there is no file absent.cubin"),
    ("show h200 -o x.txt", TEXT.format(".html, .md, .csv or .json")),
]

REFUSED_SWEEPS = [
    ("--block-k 48", "--block-k 48: Triton takes powers of two, here from 32 to 4096"),
    ("--promote-every 48", "--promote-every 48 is not a multiple of 32, the products of one QGMMA"),
    ("--k 1000", "--k 1000 is not a multiple of block-K 32; give 1024"),
    ("--dtype fp9", "there is no operand type 'fp9'; "),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED, ids=[arguments for arguments, _ in REFUSED])
def test_a_refusal_is_one_sentence(arguments: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(*shlex.split(arguments))
    assert_refused(result, sentence)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED_SWEEPS, ids=[arguments for arguments, _ in REFUSED_SWEEPS])
def test_a_refused_sweep_is_one_sentence(
    arguments: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    needs("nvdisasm")
    test_a_refusal_is_one_sentence(f"sweep --device sim:h100 {arguments}", sentence, tmp_path, monkeypatch)
