"""What `accprobe` and `python -m accprobe` run."""

from __future__ import annotations

try:
    import signal
except KeyboardInterrupt:
    raise SystemExit(130) from None


def main() -> None:
    """The command line. While it is imported there is nothing to keep, and Ctrl-C ends the process at once."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import atexit

    from accprobe.cli import main as command
    from accprobe.cli.ending import leave_libraries_alone
    from accprobe.cli.streams import guard
    from accprobe.cli.supervision import enable

    guard()
    enable()
    atexit.register(leave_libraries_alone)
    command(prog_name="accprobe")


if __name__ == "__main__":
    main()
