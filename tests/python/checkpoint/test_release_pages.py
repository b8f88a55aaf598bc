import sys
from pathlib import Path

import numpy as np
import pytest

from trtc.checkpoint.reader import open_checkpoint

SIZE = 4 << 20  # float32 values: 16 MiB


def file_pages_of_this_process():
    """Bytes of mapped files in memory now."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssFile"))
    return 1024 * int(line.split()[1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_released_pages_leave_memory_and_views_stay_valid(tmp_path):
    from safetensors.numpy import save_file

    values = np.arange(SIZE, dtype=np.float32)
    save_file({"w": values}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    checkpoint = open_checkpoint(tmp_path)
    view = checkpoint.tensors["w"].read()
    assert view.sum() > 0
    touched = file_pages_of_this_process()
    checkpoint.release_pages()
    assert touched - file_pages_of_this_process() > 0.9 * values.nbytes
    np.testing.assert_array_equal(view, values)
