"""Documents of each subject, such as reports, comparisons, sweeps, products, functions, traces, checks and binaries."""
