"""What is told of reports, comparisons and kernels: words and their tones, the same for every output form."""
