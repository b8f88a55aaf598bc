"""The ``trtc`` command, also ``python -m trtc``. Ctrl-C is quiet from the first moment, while modules are imported."""

import signal
import sys


def main() -> None:
    try:
        from trtc.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
