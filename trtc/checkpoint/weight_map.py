"""``WeightMap``: a recipe takes each tensor of a checkpoint by name and shape; what is left over is an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np

from trtc.checkpoint.tensor_handle import Array, TensorHandle, Transposed, check_rows, first_not_finite
from trtc.errors import CheckpointError

_FLOATS = {"float32": "float32", "float16": "float32", "float64": "float32", "bfloat16": "bfloat16"}


@dataclass(frozen=True)
class Weight:
    """A tensor that a recipe has taken. ``read`` gives C-contiguous float32, or bfloat16 where the file stores that.

    ``shape`` is what the recipe asked for: of the stored tensor, or of its transpose.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    handle: TensorHandle
    recipe: str
    transposed: bool = False

    def read(self) -> Array:
        """The whole weight, ``shape``. Raises CheckpointError naming tensor and recipe on NaN or Inf."""
        values = self.handle.read()
        return self._checked(values.T if self.transposed else values, row=0)

    def read_rows(self, start: int, stop: int) -> Array:
        """Rows ``start`` to ``stop``: [stop - start, *shape[1:]]. Raises as ``read`` does."""
        check_rows(self.name, self.shape, start, stop)
        values = self.handle.read()[:, start:stop].T if self.transposed else self.handle.read_rows(start, stop)
        return self._checked(values, row=start)

    def _checked(self, values: Array, row: int) -> Array:
        if values.dtype.name != "bfloat16":
            values = values.astype(np.float32, copy=False)
        values = np.require(values, requirements=("C", "A"))
        found = first_not_finite(values)
        if found is not None:
            index, kind = found
            place = [index[0] + row, *index[1:]] if index else []
            raise CheckpointError(
                f"tensor {self.name} (recipe {self.recipe}) holds {kind} at {place}; "
                "the checkpoint is damaged or was saved from a diverged run: fetch or export it again"
            )
        return values


class WeightMap:
    """The tensors of a checkpoint, as one recipe consumes them.

    ``take`` and ``ignore`` mark tensors as used; ``finish`` refuses a checkpoint with tensors that nothing used,
    because a weight the recipe does not know changes the model's mathematics.
    """

    def __init__(self, tensors: Mapping[str, TensorHandle], recipe: str) -> None:
        self.recipe = recipe
        self._tensors = tensors
        self._used: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds ``name``; does not use it."""
        return name in self._tensors

    @overload
    def take(
        self, name: str, shape: tuple[int, ...], *, optional: Literal[False] = False, transpose: bool = False
    ) -> Weight: ...
    @overload
    def take(self, name: str, shape: tuple[int, ...], *, optional: bool, transpose: bool = False) -> Weight | None: ...

    def take(
        self, name: str, shape: tuple[int, ...], *, optional: bool = False, transpose: bool = False
    ) -> Weight | None:
        """The weight ``name`` of ``shape``, counted after ``transpose`` (which needs two dimensions).

        Returns None when it is absent and ``optional``. Raises CheckpointError when it is missing, has another shape or
        does not hold floating-point numbers.
        """
        handle = self._tensors.get(name)
        if handle is None:
            if optional:
                return None
            raise CheckpointError(
                f"tensor {name} is missing; recipe {self.recipe} expects it with shape {list(shape)}"
                + self._nearest(name)
            )
        stored = tuple(reversed(shape)) if transpose else tuple(shape)
        if handle.shape != stored:
            raise CheckpointError(
                f"tensor {name} has shape {list(handle.shape)}, but recipe {self.recipe} expects {list(stored)}; "
                "config.json and the weights do not belong together"
            )
        dtype = _FLOATS.get(handle.dtype)
        if dtype is None:
            raise CheckpointError(
                f"tensor {name} is stored as {handle.storage}, but recipe {self.recipe} expects floating point "
                "(F32, F16 or BF16); use the unquantized checkpoint"
            )
        self._used.add(name)
        if transpose and isinstance(handle, Transposed):
            handle, transpose = handle.base, False
        return Weight(name, tuple(shape), dtype, handle, self.recipe, transpose)

    def ignore(self, pattern: str) -> None:
        """Mark as used every tensor whose whole name matches the regular expression ``pattern``."""
        compiled = re.compile(pattern)
        self._used.update(name for name in self._tensors if compiled.fullmatch(name))

    def finish(self) -> None:
        """Raises CheckpointError listing the tensors that the recipe did not use."""
        unused = [name for name in self._tensors if name not in self._used]
        if unused:
            shown = ", ".join(f"{name} {list(self._tensors[name].shape)}" for name in unused[:8])
            more = f" and {len(unused) - 8} more" if len(unused) > 8 else ""
            raise CheckpointError(
                f"recipe {self.recipe} does not use {len(unused)} tensor(s) of the checkpoint: {shown}{more}; "
                "the model has parts that this recipe does not build"
            )

    def _nearest(self, name: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(name, self._tensors, n=1)
        return (
            f"; the nearest name in the checkpoint is {near[0]}" if near else "; the checkpoint holds nothing like it"
        )
