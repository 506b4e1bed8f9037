"""The lines that install what accprobe can use."""

GPU_STACK = "pip install 'accprobe[cuda13]'"
EITHER_GPU_STACK = f"{GPU_STACK} (or [cuda12])"
NUMBA = "pip install 'accprobe[fast]'"
SASS = "pip install 'accprobe[sass]'"
TRITON = "pip install 'accprobe[sweep]'"
TRITON_AGAIN = "pip install --force-reinstall triton"
PROGRAMS = {
    "nvdisasm": SASS,
    "cuobjdump": SASS,
    "ptxas": f"{TRITON}, or nvidia-cuda-nvcc",
    "ncu": "install Nsight Compute: https://developer.nvidia.com/nsight-compute",
}
DRIVER = "https://www.nvidia.com/drivers"
