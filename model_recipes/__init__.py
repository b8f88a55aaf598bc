"""Recipes: one module per Hugging Face ``model_type``, each with ``build(g, cfg, w) -> ir.Model`` composing blocks."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Protocol, cast

from trtc.errors import ConfigError, RecipeError

if TYPE_CHECKING:
    import onnx_ir as ir

    from trtc.checkpoint.model_config import ModelConfig
    from trtc.checkpoint.weight_map import WeightMap
    from trtc.graph.builder import GraphBuilder
    from trtc.graph.shard import Shard


class Recipe(Protocol):
    def build(self, g: GraphBuilder, cfg: ModelConfig, w: WeightMap) -> ir.Model:
        """Emit the step graph of the model through ``g``, taking every tensor from ``w``."""


def known_recipes() -> list[str]:
    """Every ``model_type`` with a recipe, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find_recipe(model_type: str) -> Recipe:
    """The recipe module of a ``model_type``. Raises RecipeError listing the known ones."""
    known = known_recipes()
    if model_type not in known:
        raise RecipeError(f"no recipe for model_type {model_type!r}; known: {', '.join(known)}")
    return cast(Recipe, importlib.import_module(f"{__name__}.{model_type}"))


def build_graph(
    cfg: ModelConfig, weights: WeightMap, block_size: int, max_seq_len: int | None = None, shard: Shard | None = None
) -> ir.Model:
    """The verified step graph of a model, or of one rank's share of it, before any pass.

    ``block_size``: tokens per KV block. ``max_seq_len``: tokens; rope tables get that many rows (None: all the model's
    positions). Raises ConfigError for a ``max_seq_len`` beyond the model's positions or a ``shard`` that cannot divide
    it evenly, RecipeError without a recipe, CheckpointError for a tensor that is missing, mis-shaped or left over.
    """
    from trtc.graph.builder import GraphBuilder
    from trtc.graph.verify import verify

    recipe = find_recipe(cfg.model_type)
    if max_seq_len is not None and max_seq_len > cfg.max_position_embeddings:
        raise ConfigError(
            f"max_seq_len {max_seq_len} exceeds the {cfg.max_position_embeddings} positions the model was made for; "
            "use a smaller one"
        )
    model = recipe.build(GraphBuilder(cfg, block_size, max_seq_len=max_seq_len, shard=shard), cfg, weights)
    weights.finish()
    verify(model, "recipe")
    return model
