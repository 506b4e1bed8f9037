"""Source to cubin: probes, the compiler, its cache on disk, the toolchain and the driver."""
