"""The recipes of the images share their lower layers: what is the same text, a builder makes and a node keeps once.

Spark and Java are 0.9 GB, which two images have.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RECIPES = Path(__file__).resolve().parents[2] / "hack/dockerfiles"


def stages(recipe: str) -> dict[str, str]:
    """The stages of a recipe without comments, by name; the last one, which has none, is the image."""
    text = re.sub(r"^#.*\n", "", (RECIPES / f"Dockerfile.{recipe}").read_text(), flags=re.MULTILINE)
    parts = re.split(r"^(?=FROM )", text, flags=re.MULTILINE)[1:]
    names = (re.match(r"FROM \S+ AS (\w+)", part) for part in parts)
    return {name[1] if name else "image": part.strip() for name, part in zip(names, parts, strict=True)}


@pytest.mark.parametrize(
    ("stage", "recipes"),
    [
        ("python", ["broker", "operator", "lag", "spark-operator"]),
        ("tools", ["broker", "operator", "lag", "spark-operator"]),
        ("application", ["broker", "operator", "lag"]),
        ("java", ["lag", "spark-operator"]),
        ("dependencies", ["lag", "spark-operator"]),
    ],
)
def test_a_stage_is_the_same_text_wherever_it_is(stage: str, recipes: list[str]) -> None:
    assert len({stages(recipe)[stage] for recipe in recipes}) == 1


def test_the_spark_operator_is_made_on_the_layers_of_the_lag_job() -> None:
    spark, image = stages("lag")["spark"].splitlines(), stages("spark-operator")["image"].splitlines()
    assert spark[0] == "FROM java AS spark"
    assert image[0] == "FROM java"
    assert [line.split()[0] for line in spark[1:3]] == ["RUN", "COPY"]
    assert image[1:3] == spark[1:3]
