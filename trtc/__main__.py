"""The ``trtc`` command, and ``python -m trtc``. Modules are imported inside, so that Ctrl-C is quiet from the start."""

import signal
import sys


def main() -> None:
    """Entry point."""
    try:
        from trtc.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
