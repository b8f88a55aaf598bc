"""What quantized rows stand for, in numpy."""

from __future__ import annotations

import numpy as np

from trtc.quantize.groupwise import QuantizedRows


def values_of(rows: QuantizedRows, group: int) -> np.ndarray:
    """float32 [n, k]: q * scale, or (q - zero) * scale."""
    columns = rows.q.shape[1]
    scale = np.repeat(rows.scale.astype(np.float32), group, axis=1)[:, :columns]
    if rows.zero is None:
        return rows.q * scale
    return (rows.q - np.repeat(rows.zero.astype(np.float32), group, axis=1)[:, :columns]) * scale
