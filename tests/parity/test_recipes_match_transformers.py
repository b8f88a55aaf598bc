"""Every recipe, run by the numpy evaluator, against transformers in float32."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_recipes import known_recipes
from tests.parity.cases import CASES, ParityCase
from tests.parity.harness import ReferenceRunner, assert_parity, build_case_graph


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_recipe_gives_the_logits_of_transformers(case: ParityCase, tmp_path: Path) -> None:
    model = build_case_graph(case, tmp_path)
    assert_parity(case, lambda: ReferenceRunner(model))


def test_every_recipe_has_a_case() -> None:
    assert {case.model_type for case in CASES} == set(known_recipes())
