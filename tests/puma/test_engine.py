"""Running the network: alone on a CPU, packed for a GPU, one thread, the caller's afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from puma.models import untrained

from puma_coffea.exceptions import BadConfig
from puma_coffea.flat import flatten
from puma_coffea.puma.engine import TorchEngine, choose_device, one_thread, pack
from puma_coffea.puma.inputs import prepare


@pytest.fixture(scope="module")
def model():
    return untrained()


@pytest.fixture(scope="module")
def events(model, ttbar):
    """Features of real events: whole ones and pieces, one of them empty."""
    inputs = prepare(flatten(ttbar[:3])[2], model.card)
    whole = [inputs.event(i)[1] for i in range(3)]
    return [*whole, whole[0][:0], whole[0][:1], whole[1][:500]]


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(1, 300))
def test_packed_batches_hold_every_event_once_within_the_limit(lengths, limit):
    batches = list(pack(lengths, limit))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or longest * len(batch) <= limit
        assert lengths[batch[0]] == longest


def test_packing_wastes_little_on_real_lengths():
    lengths = np.random.default_rng(1).normal(8300, 1500, 500).astype(int).tolist()
    batches = list(pack(lengths, 200_000))
    places = sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)
    assert places < 1.1 * sum(lengths)
    assert len(batches) < 30


@pytest.mark.parametrize("limit", [1, 12_000, 200_000])
def test_packed_events_equal_single_ones_in_any_company(model, events, limit, monkeypatch):
    monkeypatch.setattr("puma_coffea.puma.engine.BATCH_TOKENS", limit)
    engine = TorchEngine(model.network(), "cpu")
    alone = engine(events)
    for together in (engine.packed(events), engine.packed(events[::-1])[::-1]):
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_allclose(other, one, atol=1e-5, rtol=0)


def test_the_number_of_threads_changes_no_bit_and_is_left_as_it_was(model, ttbar):
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(model(ttbar[:1]))
            assert torch.get_num_threads() == threads
        assert found[0].to_list() == found[1].to_list()
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_the_limit_to_one_thread_is_said(model, caplog):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        TorchEngine(model.network(), "cpu")
    finally:
        torch.set_num_threads(before)
    assert "PUMA runs on one thread" in caplog.text


def test_auto_is_a_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == "cuda"
    assert choose_device("cpu") == "cpu"


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(device, ttbar):
    with pytest.raises(BadConfig, match=f"Device '{device}' cannot be used here"):
        untrained(device=device)(ttbar[:1])
