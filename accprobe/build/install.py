"""Commands that install missing dependencies.

accprobe is in no registry, and anyone could register its name there. So its extras are installed from a checkout.
"""


def _extra(name: str) -> str:
    return f"python3 -m pip install -e '.[{name}]' in accprobe's checkout"


GPU_STACK = _extra("cuda13")
EITHER_GPU_STACK = f"{GPU_STACK} (or [cuda12])"
NVML = "python3 -m pip install nvidia-ml-py"
RAY = _extra("fleet")
NUMBA = _extra("fast")
SASS = _extra("sass")
TRITON = _extra("sweep")
PROGRAMS = {
    "nvdisasm": SASS,
    "cuobjdump": SASS,
    "ncu": "install Nsight Compute: https://developer.nvidia.com/nsight-compute",
}
DRIVER = "https://www.nvidia.com/drivers"
