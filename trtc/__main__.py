"""``python -m trtc`` is the ``trtc`` command."""

from trtc.cli.main import main

main()
