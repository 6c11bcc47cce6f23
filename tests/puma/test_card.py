"""The model card: what it does not know or cannot use is refused in one sentence naming the key."""

from __future__ import annotations

import json

import pytest
from puma.models import untrained

from puma_coffea.exceptions import BadModelCard, ModelHashMismatch
from puma_coffea.puma.card import CARD, Card, HardNeutrals, own_hash, parse_card, read_card


@pytest.fixture(scope="module")
def card():
    return untrained().card


def changed(card, key, value):
    """Text of the card with one key, given by its path, set to a value; None removes it."""
    content = json.loads(card.to_json())
    *parents, last = key.split(".")
    place = content
    for each in parents:
        place = place[each]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return json.dumps(content)


def test_a_card_survives_its_text(card):
    assert parse_card(card.to_json(), "here") == card
    assert parse_card(card.sealed({"a": b"b"}).to_json(), "here").hashes.keys() == {CARD, "a"}


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("colour", "blue", "colour: Extra inputs are not permitted, found 'blue'"),
        ("network.colour", 1, "network.colour: Extra inputs are not permitted"),
        ("name", None, "name: Field required"),
        ("inputs", None, "inputs: Field required"),
        ("network", None, "network: Field required"),
        ("network.width", "64", "network.width: Input should be a valid integer, found '64'"),
        ("network.norm", "middle", "network.norm: Input should be 'pre' or 'post'"),
        ("tokens.neutral_pt_min", -1.0, "tokens.neutral_pt_min: Input should be greater"),
        ("tokens.neutral_pt_min", True, "tokens.neutral_pt_min: Input should be a valid number"),
        ("ordering.size", 1, "ordering.size: Input should be greater than or equal to 2"),
        ("ordering.by", "eta", "ordering.by: Input should be 'clusters' or 'pt', found 'eta'"),
        ("inputs", ["pt", "flavour"], "unknown inputs flavour; a newer version"),
        ("inputs", [], "inputs: Tuple should have at least 1 item"),
        (
            "hard_neutrals",
            {"raise_from": 50.0, "raise_to": 50.0},
            "hard_neutrals: Value error, raise_to (50.0) must be above raise_from (50.0)",
        ),
        ("card_version", 2, "card_version: Input should be 1, found '2'"),
        ("name", "../other", "name: String should match pattern"),
        ("metrics", [{"sample": "x"}], "metrics.0.quantity: Field required"),
    ],
)
def test_a_card_that_cannot_be_used_is_refused_by_its_key(card, key, value, sentence):
    with pytest.raises(BadModelCard) as refusal:
        parse_card(changed(card, key, value), "some/card.json")
    text = str(refusal.value)
    assert text.startswith("some/card.json: ")
    assert sentence in text
    assert "\n" not in text


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"card"', b"\xff\xfe"])
def test_text_that_is_no_card_is_refused(text):
    with pytest.raises(BadModelCard, match=r"^here: the whole card: "):
        parse_card(text, "here")


def test_a_folder_without_a_card_is_refused(tmp_path):
    with pytest.raises(BadModelCard, match="is no model folder"):
        read_card(tmp_path)
    (tmp_path / CARD).write_bytes(b"\xff\xfe")
    with pytest.raises(BadModelCard, match="cannot be read"):
        read_card(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ordering.size", 11),
        ("tokens.neutral_pt_min", 0.5),
        ("inputs", ["eta", "pt"]),
        ("name", "other"),
        ("licence", "none"),
        ("training", {"events": 1}),
    ],
)
def test_anything_altered_in_a_sealed_card_is_noticed(card, key, value):
    with pytest.raises(ModelHashMismatch, match="altered after it was written"):
        parse_card(changed(card.sealed({}), key, value), "here")


def test_layout_of_the_text_does_not_matter(card):
    sealed = card.sealed({"model.pt": b"x"})
    shuffled = dict(reversed(json.loads(sealed.to_json()).items()))
    assert parse_card(json.dumps(shuffled, indent=7), "here") == sealed


def test_a_default_added_by_a_later_version_does_not_break_the_seal(card):
    content = json.loads(card.to_json())
    del content["tokens"]
    content["hashes"] = {CARD: own_hash(json.dumps(content))}
    assert parse_card(json.dumps(content), "here").tokens == card.tokens


def test_settings_are_what_decides_a_weight(card):
    assert card.settings() == card.model_copy(update={"description": "another"}).settings()
    assert card.settings() != untrained(by="pt").card.settings()
    raising = card.model_copy(update={"hard_neutrals": HardNeutrals(raise_from=1, raise_to=2)})
    assert card.settings() != raising.settings()
    assert Card.model_validate(card.model_dump()).settings() == card.settings()
