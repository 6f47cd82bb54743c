"""Pages of metrics as three servers write them, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.backends.llm_server.load_metrics import MAX_WAITING, load_of
from headstart.engine.placement import Load

VLLM = """\
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 3.0
vllm:num_requests_waiting{engine="1",model_name="tiny"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
"""
SGLANG = 'sglang:num_queue_reqs{model_name="m"} 7.0\nsglang:token_usage{model_name="m"} 0.5\n'
LLAMACPP = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n"


@pytest.mark.parametrize(
    ("page", "load"),
    [
        (VLLM, Load(waiting=4, kv_share=0.25)),
        (SGLANG, Load(waiting=7, kv_share=0.5)),
        (LLAMACPP, Load(waiting=0, kv_share=0.0)),
        ("llamacpp:requests_processing 1\n", Load()),
        (VLLM + 'vllm:kv_cache_usage_perc{engine="1"} 0.75\n', Load(waiting=4, kv_share=0.5)),
        ('vllm:num_requests_waiting{m="a {b} c"} 3 1395066363000\n', Load(waiting=3)),
        (2 * "sglang:num_queue_reqs 1e308\n", Load(waiting=MAX_WAITING)),
        ("vllm:num_requests_waiting NaN\nvllm:num_requests_running 1\n", Load()),
    ],
)
def test_each_servers_names_are_known(page: str, load: Load) -> None:
    """Of the engines of one server what waits is added up, and the share of their memory is a mean;
    a time behind a value is none, and what is no number is left out."""
    assert load_of(page) == load


@pytest.mark.parametrize("page", ["", "{}", "<html>", "process_cpu_seconds_total 3\n", "vllm:"])
def test_another_page_tells_no_load(page: str) -> None:
    """Then our own counts are all there is."""
    assert load_of(page) is None


@given(st.text())
def test_no_page_is_an_error(page: str) -> None:
    """Whatever a server sends."""
    load_of(page)
