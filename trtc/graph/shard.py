"""Tensor parallelism (Shoeybi et al., https://arxiv.org/abs/1909.08053): which channels of the model a rank computes.

Attention is divided by heads, the MLP by its inner channels, embedding and logits by rows of the vocabulary. What lies
between two such regions, the residual stream, is the same on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from trtc.checkpoint.model_config import ModelConfig
from trtc.errors import ConfigError


@dataclass(frozen=True)
class Shard:
    """Rank ``rank`` of the ``world`` that share a model."""

    rank: int = 0
    world: int = 1

    @property
    def whole(self) -> bool:
        """Whether there is nobody to share with."""
        return self.world == 1


@dataclass(frozen=True)
class Channels:
    """A run of channels that ranks divide: ``units`` of ``width`` neighbours each.

    With ``shared`` units, several ranks may hold the same one where there are more ranks than units.
    """

    what: str  # for the error message
    units: int
    width: int = 1
    shared: bool = False

    @property
    def total(self) -> int:
        return self.units * self.width

    def of(self, shard: Shard) -> range:
        """The channels of one rank. Raises ConfigError when the units cannot be dealt evenly."""
        rank, world = shard.rank, shard.world
        if self.units % world == 0:
            count = self.units // world
            first = rank * count
        elif self.shared and world % self.units == 0:
            count, first = 1, rank * self.units // world
        else:
            raise ConfigError(
                f"tp_size {world} does not divide the model's {self.units} {self.what}; choose a tp_size that does"
            )
        return range(first * self.width, (first + count) * self.width)


def query_heads(cfg: ModelConfig) -> Channels:
    return Channels("attention heads", cfg.num_heads, cfg.head_dim)


def kv_heads(cfg: ModelConfig) -> Channels:
    """A rank holds the key and value heads that its query heads read."""
    return Channels("key and value heads", cfg.num_kv_heads, cfg.head_dim, shared=True)


def mlp_channels(cfg: ModelConfig) -> Channels:
    return Channels("intermediate channels", cfg.intermediate_size)


def vocabulary_rows(vocab_size: int, shard: Shard) -> range:
    """Rows of the vocabulary of one rank; the last ranks' may lie beyond ``vocab_size``, where zeros stand."""
    count = -(-vocab_size // shard.world)
    return range(shard.rank * count, (shard.rank + 1) * count)
