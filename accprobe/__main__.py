"""`python -m accprobe`."""

from accprobe.cli import main

main(prog_name="accprobe")
