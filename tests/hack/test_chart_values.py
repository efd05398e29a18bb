"""The tables of values in the charts' READMEs say what values.yaml says, which names what the schema allows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from releasing.chart_values import BEGIN, END, Value, described, differences, with_table

ROOT = Path(__file__).resolve().parents[2]
VALUES = """\
# The image,
# in two lines.
image:
  # Or none.
  tag: ""
  digest: ""

labels:
  a: "1"
# Such as
#   {orders: {type: Topic}}
exchanges: {}
"""
SCHEMA = {
    "definitions": {
        "image": {
            "additionalProperties": False,
            "properties": {"tag": {"type": "string"}, "digest": {"type": "string"}},
        }
    },
    "properties": {
        "image": {"$ref": "#/definitions/image"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "exchanges": {"type": "object"},
    },
}


def test_the_comment_above_a_key_describes_it_and_its_group() -> None:
    assert described(VALUES, SCHEMA) == [
        Value("image", None, "The image, in two lines."),
        Value("image.tag", '""', "Or none."),
        Value("image.digest", '""', ""),
        Value("labels", '{"a": "1"}', ""),
        Value("exchanges", "{}", "Such as `{orders: {type: Topic}}`"),
    ]


def test_what_nothing_describes_or_values_do_not_name_is_told() -> None:
    assert differences(VALUES, SCHEMA) == ["labels: no comment in values.yaml describes it"]
    assert differences("# It.\nlabels: {}\n", SCHEMA) == [
        "image.tag: values.yaml does not have it",
        "image.digest: values.yaml does not have it",
        "exchanges: values.yaml does not have it",
    ]


def test_the_table_takes_the_place_between_its_marks() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    made = with_table(page, [Value("a", "1", "one"), Value("b", None, "two"), Value("b.c", "2", "")])
    assert made.splitlines() == [
        "before",
        BEGIN,
        "",
        "| value | default | what it is |",
        "| --- | --- | --- |",
        "| `a` | `1` | one |",
        "| `b` | | two |",
        "| `b.c` | `2` | |",
        "",
        END,
        "after",
    ]
    with pytest.raises(ValueError, match="needs the lines"):
        with_table("no marks", [])


def test_the_readmes_of_the_charts_are_up_to_date() -> None:
    done = subprocess.run([ROOT / "hack/charts", "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("chart", ["penstock-broker", "penstock-operator"])
def test_every_default_of_a_chart_passes_its_own_schema_of_names(chart: str) -> None:
    folder = ROOT / "helm" / chart
    schema = json.loads((folder / "values.schema.json").read_text(encoding="utf-8"))
    values = (folder / "values.yaml").read_text(encoding="utf-8")
    assert {row.path.partition(".")[0] for row in described(values, schema)} <= set(schema["properties"])
