"""The drawn dashboards ask, name, place and write as Grafana does."""

from __future__ import annotations

import pytest
from drawing.panels import box, color, stacked
from drawing.questions import choice, filled, legend, values_question
from drawing.tables import Row, merged, organized
from drawing.units import ticks, written


def test_variables_are_put_in() -> None:
    asked = 'rate(a{broker=~"$broker",namespace=~"${namespace:regex}"}[$__rate_interval]) > $other'
    chosen = {"broker": ".*", "namespace": "shop", "__rate_interval": "20s"}
    assert filled(asked, chosen) == 'rate(a{broker=~".*",namespace=~"shop"}[20s]) > $other'


def test_a_longer_name_is_another_variable() -> None:
    assert filled("$broker_namespace/$broker", {"broker": "main", "broker_namespace": "shop"}) == "shop/main"


def test_all_values_are_chosen() -> None:
    assert choice({"allValue": ".*"}, ["a"]).pattern == ".*"
    assert choice({"allValue": None}, ["a.b", "c"]).pattern == r"(a\\.b|c)"


def test_what_a_variable_asks() -> None:
    assert values_question('label_values(up{job="a, b"}, broker)') == ('up{job="a, b"}', "broker")
    with pytest.raises(ValueError, match="only label_values"):
        values_question("query_result(up)")


def test_legends() -> None:
    labels = {"__name__": "up", "namespace": "shop", "subscription": "fraud"}
    assert legend("{{namespace}} {{ subscription }}", labels, "up") == "shop fraud"
    assert legend("{{reason}} refused", labels, "up") == "refused"
    assert legend("", labels, "up") == 'up{namespace="shop", subscription="fraud"}'
    assert legend("", {}, "count(up)") == "count(up)"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "s", "0 s"),
        (0.0042, "s", "4.2 ms"),
        (90, "s", "1.5 min"),
        (1234, "short", "1.23 K"),
        (99, "short", "99"),
        (1536, "bytes", "1.5 KiB"),
        (0.427, "percentunit", "42.7%"),
        (10, "mps", "10 mps"),
        (2500, "cps", "2.5 Kc/s"),
    ],
)
def test_figures_in_units(value: float, unit: str, text: str) -> None:
    assert written(value, unit) == text


def test_an_unknown_unit_says_where_to_add_it() -> None:
    with pytest.raises(ValueError, match="the unit 'furlong' is not known"):
        written(1, "furlong")


def test_ticks_are_round_in_one_unit() -> None:
    assert ticks(0, 1, "percentunit") == [
        (0, "0%"),
        (0.2, "20%"),
        (0.4, "40%"),
        (0.6, "60%"),
        (0.8, "80%"),
        (1, "100%"),
    ]
    assert [text for _, text in ticks(0, 170, "s")] == ["0 min", "1 min", "2 min", "3 min"]
    assert [text for _, text in ticks(0, 0, "short")] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert ticks(-3, 4, "short")[0] == (-4, "-4")


def test_place_in_the_grid() -> None:
    assert box({"x": 8, "y": 7, "w": 8, "h": 8}, 1120) == {"left": 376, "top": 199, "width": 368, "height": 218}


def test_colour_of_the_threshold_that_is_reached() -> None:
    steps = [{"color": "green", "value": None}, {"color": "orange", "value": 0.7}, {"color": "red", "value": 0.85}]
    shades = [color(value, {"steps": steps}) for value in (0.69, 0.7, 0.9)]
    assert shades == ["#56a64b", "#ff780a", "#e02f44"]


def test_stacked_lines() -> None:
    assert stacked([[1.0, None, 2.0], [3.0, 4.0, None]]) == [[1.0, 0.0, 2.0], [4.0, 4.0, 2.0]]


def test_rows_of_one_subscription_are_merged() -> None:
    states: list[Row] = [{"subscription": "fraud", "state": "Lagging"}, {"subscription": "billing", "state": "Losing"}]
    depths: list[Row] = [{"subscription": "fraud", "Value #B": 5.0}]
    assert merged([states, depths]) == [
        {"subscription": "fraud", "state": "Lagging", "Value #B": 5.0},
        {"subscription": "billing", "state": "Losing"},
    ]


def test_columns_are_ordered_and_renamed() -> None:
    options = {"indexByName": {"state": 0, "Value #B": 1}, "renameByName": {"Value #B": "messages"}}
    columns = organized(["broker", "Value #B", "state"], options)
    assert list(columns.values()) == ["state", "messages", "broker"]
