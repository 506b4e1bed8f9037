"""Source to cubin: probes, the compiler, its cache on disk, the toolchain, the driver, and recorded SASS."""
