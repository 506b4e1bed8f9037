"""Device code: the kernels that put an instruction to work. Compiled by `accprobe.build.compiler`."""
