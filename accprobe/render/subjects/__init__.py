"""Documents of each subject: reports, comparisons, sweeps, products, checks, binaries and error reports."""
