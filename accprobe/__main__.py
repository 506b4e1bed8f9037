"""The entry point of `accprobe` and `python -m accprobe`."""

from __future__ import annotations

try:
    import signal
except KeyboardInterrupt:
    raise SystemExit(130) from None


def main() -> None:
    """Run the command line. Ctrl-C while it is imported ends the process at once, and has no effect after the result."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import atexit
    import faulthandler

    from accprobe.cli import main as command
    from accprobe.cli.streams import replace_streams, skip_exit_handlers_of_torch

    replace_streams()
    faulthandler.enable(all_threads=False)  # a segmentation fault in a user's function prints its file and line
    atexit.register(skip_exit_handlers_of_torch)
    try:
        command(prog_name="accprobe")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process unloads its packages, and its exit status is known


if __name__ == "__main__":
    main()
