"""What a pass is: a pattern, a check that may refuse it with a reason, and a rewrite.

The shape follows onnxscript's rewriter (https://github.com/microsoft/onnxscript): a pass edits the model in place and
reports what it did. A broken condition before or after is a typed error that names the pass.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar, final

import onnx_ir as ir

from trtc.errors import GraphError, TrtcError


class PreconditionError(GraphError):
    """A pass was given a graph that it must not see."""


class PostconditionError(GraphError):
    """A pass left a graph that breaks what it promises."""


@dataclass(frozen=True)
class Refusal:
    """A place where the pattern stands but the rewrite would be wrong."""

    node: str
    reason: str


@dataclass(frozen=True)
class PassReport:
    """What one run of a pass did."""

    name: str
    rewrites: int
    refusals: tuple[Refusal, ...] = ()


class Pass(ABC):
    """Edits a model in place. Subclasses give :meth:`apply` and, where they have them, conditions."""

    @property
    def name(self) -> str:
        """The class name in file-name form: ``FuseQkvPass`` is ``fuse_qkv``."""
        stem = type(self).__name__.removesuffix("Pass")
        return re.sub(r"(?<!^)(?=[A-Z])", "_", stem).lower()

    def requires(self, model: ir.Model) -> str | None:
        """What is wrong with the graph before the pass, or None."""
        return None

    def ensures(self, model: ir.Model) -> str | None:
        """What is wrong with the graph after the pass, or None."""
        return None

    @abstractmethod
    def apply(self, model: ir.Model) -> PassReport:
        """Edit the model."""

    @final
    def __call__(self, model: ir.Model) -> PassReport:
        """Run the pass between its conditions.

        Raises:
            PreconditionError, PostconditionError: a condition does not hold.
            GraphError: the pass itself failed; the cause is chained.
        """
        if problem := self.requires(model):
            raise PreconditionError(f"pass {self.name} cannot run: {problem}")
        bindings = _bindings(model)
        try:
            report = self.apply(model)
        except TrtcError:
            raise
        except Exception as error:
            raise GraphError(f"pass {self.name} failed: {error}") from error
        if (after := _bindings(model)) != bindings:
            raise PostconditionError(f"pass {self.name} changed the step's bindings from {bindings} to {after}")
        if problem := self.ensures(model):
            raise PostconditionError(f"pass {self.name} left a broken graph: {problem}")
        return report


Match = TypeVar("Match")


class RewritePass(Pass, Generic[Match]):
    """Visits every node once, in order, and rewrites the patterns rooted there."""

    @abstractmethod
    def pattern(self, node: ir.Node) -> Match | None:
        """The pattern rooted at ``node``, or None where it does not stand."""

    def check(self, match: Match) -> str | None:
        """Why this match must stay as it is, or None when the rewrite is right."""
        return None

    @abstractmethod
    def rewrite(self, graph: ir.Graph, match: Match) -> None:
        """Replace the matched nodes and remove the ones that became dead."""

    def apply(self, model: ir.Model) -> PassReport:
        rewrites = 0
        refusals: list[Refusal] = []
        for node in tuple(model.graph):
            if node.graph is None:  # removed by an earlier rewrite
                continue
            match = self.pattern(node)
            if match is None:
                continue
            reason = self.check(match)
            if reason is None:
                self.rewrite(model.graph, match)
                rewrites += 1
            else:
                refusals.append(Refusal(node.name or node.op_type, reason))
        return PassReport(self.name, rewrites, tuple(refusals))


def _bindings(model: ir.Model) -> tuple[tuple[str | None, ...], tuple[str | None, ...]]:
    return tuple(v.name for v in model.graph.inputs), tuple(v.name for v in model.graph.outputs)
