"""Model folders: saved, loaded, sent elsewhere; anything altered is refused by name."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys

import awkward as ak
import numpy as np
import pytest
from puma.models import INPUTS, untrained

import puma_coffea.puma.model as model_module
from puma_coffea import Puma, method
from puma_coffea.exceptions import (
    BadConfig,
    BadModelCard,
    BadOutput,
    MissingExtra,
    ModelHashMismatch,
)
from puma_coffea.puma.card import CARD, SCRIPT, WEIGHTS, HardNeutrals, Tokens
from puma_coffea.puma.export import export_program
from puma_coffea.puma.inputs import prepare


@pytest.fixture(scope="module")
def model():
    return untrained()


@pytest.fixture
def folder(model, tmp_path):
    return model.save(tmp_path / "tiny")


@pytest.fixture
def shipped(model, tmp_path, monkeypatch):
    """The folder of a model that counts as shipped."""
    monkeypatch.setattr(model_module, "SHIPPED", tmp_path / "models")
    monkeypatch.setattr(model_module, "_SHIPPED", {})
    return model.save(tmp_path / "models" / "tiny")


def test_a_saved_model_is_the_same_model(model, folder, ttbar):
    assert sorted(path.name for path in folder.iterdir()) == [CARD, SCRIPT, WEIGHTS]
    assert list(folder.parent.iterdir()) == [folder]
    weights = model(ttbar[:2])
    for place in (folder, str(folder), folder / SCRIPT):
        loaded = Puma.load(place)
        assert loaded.identity == model.identity
        assert ak.array_equal(loaded(ttbar[:2]), weights)
    (folder / SCRIPT).unlink()
    assert ak.array_equal(Puma.load(folder)(ttbar[:2]), weights)


def test_saving_again_replaces_the_model_and_keeps_other_files(folder):
    (folder / "README.md").write_text("about")
    other = untrained(seed=2)
    assert Puma.load(other.save(folder)).identity == other.identity
    assert (folder / "README.md").read_text() == "about"
    assert list(folder.parent.iterdir()) == [folder]


def test_a_place_that_cannot_be_written_is_refused(model, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadOutput, match="cannot be written"):
        model.save(tmp_path / "file" / "tiny")


@pytest.mark.parametrize("name", ["no-such-model", "no/such/folder", "absent"])
def test_an_unknown_model_is_refused_by_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadModelCard, match=f"There is no model '{name}'"):
        Puma.load(name)
    with pytest.raises(BadModelCard, match="There is no model"):
        method(f"puma:{name}")


def test_folders_and_files_that_hold_no_model_are_refused(tmp_path, folder):
    with pytest.raises(BadModelCard, match="is no model folder"):
        Puma.load(tmp_path)
    with pytest.raises(BadModelCard, match=r"absent\.pt cannot be read as TorchScript"):
        Puma.load(tmp_path / "absent.pt")
    (tmp_path / "text.pt").write_text("no model")
    with pytest.raises(BadModelCard, match=r"text\.pt cannot be read as TorchScript"):
        Puma.load(tmp_path / "text.pt")
    (folder / WEIGHTS).unlink()
    with pytest.raises(BadModelCard, match=r"Model 'tiny': .*weights\.safetensors cannot be read"):
        Puma.load(folder)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_torchscript_without_a_card_is_refused(tmp_path, model):
    import torch

    torch.jit.save(torch.jit.script(model.network()), tmp_path / "bare.pt")
    with pytest.raises(BadModelCard, match=r"bare\.pt carries no card\.json"):
        Puma.load(tmp_path / "bare.pt")


@pytest.mark.parametrize("name", [WEIGHTS, SCRIPT])
@pytest.mark.parametrize("place", [0.1, 0.5, 0.999])
def test_one_altered_byte_is_refused_by_name(folder, name, place):
    content = bytearray((folder / name).read_bytes())
    content[int(place * len(content))] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ModelHashMismatch, match=rf"Model 'tiny': .*{name} is not the file"):
        Puma.load(folder)


def test_every_altered_byte_of_the_card_is_refused(folder):
    text = (folder / CARD).read_bytes()
    for place in range(0, len(text), 37):
        if text[place : place + 1].isspace():
            continue
        (folder / CARD).write_bytes(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
        with pytest.raises((ModelHashMismatch, BadModelCard)):
            Puma.load(folder)


def test_altered_numbers_in_a_lone_torchscript_file_are_refused(folder, tmp_path):
    other = untrained(seed=3).save(tmp_path / "other")
    import zipfile

    # The numbers of one file under the card of another.
    with (
        zipfile.ZipFile(other / SCRIPT) as numbers,
        zipfile.ZipFile(folder / SCRIPT) as mine,
        zipfile.ZipFile(tmp_path / "mixed.pt", "w") as mixed,
    ):
        for name in numbers.namelist():
            source, key = (numbers, name)
            if name.endswith(f"extra/{CARD}"):
                source, key = mine, name
            mixed.writestr(name, source.read(key))
    with pytest.raises(ModelHashMismatch, match=r"Model 'tiny': .*mixed\.pt is not the file"):
        Puma.load(tmp_path / "mixed.pt")


def test_a_card_without_hashes_is_refused(folder):
    content = json.loads((folder / CARD).read_text())
    del content["hashes"]
    (folder / CARD).write_text(json.dumps(content))
    with pytest.raises(BadModelCard, match=r"hashes\.card\.json is missing"):
        Puma.load(folder)


def test_card_and_numbers_that_do_not_fit_are_refused_at_once(model, tmp_path):
    wider = model.card.network.model_copy(update={"width": 32})
    wrong = Puma(model.card.model_copy(update={"network": wider}), model._weights)
    with pytest.raises(BadModelCard, match="Model 'tiny': card and numbers do not fit"):
        wrong.save(tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()
    with pytest.raises(BadModelCard, match="do not fit"):
        Puma(model.card, b"no numbers").network()
    odd = model.card.network.model_copy(update={"heads": 3})
    with pytest.raises(BadModelCard, match="multiple of heads"):
        Puma(model.card.model_copy(update={"network": odd}), model._weights).network()


def test_numbers_that_are_not_finite_are_refused(model):
    from puma_coffea.puma.export import weights_bytes

    network = model.network()
    network.decode.bias.data.fill_(np.nan)
    with pytest.raises(BadModelCard, match=r"decode\.bias holds numbers that are not finite"):
        Puma(model.card, weights_bytes(network)).network()


def test_no_code_of_a_strangers_folder_runs(folder, monkeypatch):
    import torch

    def forbidden(*_args, **_options):
        pytest.fail("a folder is loaded without its TorchScript")

    monkeypatch.setattr(torch.jit, "load", forbidden)
    monkeypatch.setattr(torch, "load", forbidden)
    assert Puma.load(folder).identity == untrained().identity


def test_a_shipped_model_travels_as_name_and_hash(shipped, ttbar):
    loaded = Puma.load("tiny")
    sent = pickle.dumps(loaded)
    assert len(sent) < 500
    assert pickle.loads(sent)._shipped == "tiny"
    assert ak.array_equal(pickle.loads(sent)(ttbar[:1]), loaded(ttbar[:1]))
    shutil.rmtree(shipped)  # read once, never again in this process
    assert pickle.loads(sent).identity == loaded.identity


def test_a_local_folder_does_not_hide_a_shipped_model(shipped, tmp_path, monkeypatch):
    other = untrained(seed=2)
    monkeypatch.chdir(tmp_path)
    other.save("tiny")
    assert Puma.load("tiny").identity == untrained().identity
    assert Puma.load("./tiny").identity == other.identity
    assert Puma.load(shipped)._shipped is None


def test_a_worker_with_another_version_refuses_by_name(shipped):
    sent = pickle.dumps(Puma.load("tiny"))
    untrained(seed=2).save(shipped)
    with pytest.raises(ModelHashMismatch, match="Model 'tiny' of this worker is not the one"):
        pickle.loads(sent)


def test_a_worker_with_an_altered_file_refuses_by_name(shipped):
    sent = pickle.dumps(Puma.load("tiny"))
    content = (shipped / WEIGHTS).read_bytes()
    (shipped / WEIGHTS).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ModelHashMismatch, match=r"Model 'tiny': .*weights\.safetensors"):
        pickle.loads(sent)


def test_another_model_travels_with_its_numbers(model, folder):
    sent = pickle.dumps(Puma.load(folder, charged="model", device="cpu"))
    shutil.rmtree(folder)
    code = "import pickle, sys; m = pickle.load(sys.stdin.buffer); print(m.identity, m.charged, m.device)"
    answer = subprocess.run(
        [sys.executable, "-c", code], input=sent, capture_output=True, check=True
    )
    expected = pickle.loads(sent)
    assert answer.stdout.decode().split() == [expected.identity, "model", "cpu"]
    assert len(sent) < len(model._weights) + 5000


def test_a_missing_package_is_named_with_its_remedy(model, folder, ttbar, monkeypatch):
    sent = pickle.dumps(model)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "safetensors", None)
        for use in (lambda: method(f"puma:{folder}"), lambda: pickle.loads(sent)):
            with pytest.raises(MissingExtra, match="PUMA needs the package safetensors: pip"):
                use()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"Reading .*model\.pt needs the package torch: pip"):
        Puma.load(folder / SCRIPT)
    with pytest.raises(MissingExtra, match="Device 'cuda' needs the package torch: pip"):
        Puma.load(folder, device="cuda")(ttbar[:1])


def test_weights_need_no_torch_and_are_those_of_torch(folder, ttbar, tmp_path):
    code = """
import sys
sys.modules["torch"] = None  # importing it fails
import awkward as ak
from puma_coffea import Puma
weights = Puma.load(sys.argv[1])(ak.from_parquet(sys.argv[2], behavior=None))
ak.to_parquet(weights, sys.argv[3])
"""
    pf = ttbar[:2]
    ak.to_parquet(pf, tmp_path / "pf.parquet")
    arguments = [str(folder), str(tmp_path / "pf.parquet"), str(tmp_path / "weights.parquet")]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True)
    found = ak.from_parquet(tmp_path / "weights.parquet")
    assert ak.array_equal(found, Puma.load(folder, device="cpu")(pf))
    by_torch = Puma.load(folder, device="torch-cpu")(pf)
    np.testing.assert_allclose(ak.flatten(found), ak.flatten(by_torch), atol=1e-5, rtol=0)


def test_a_model_is_built_once_per_process(model, ttbar, monkeypatch):
    monkeypatch.setattr(model_module, "_ENGINES", {})
    built = []
    original = Puma.tensors
    monkeypatch.setattr(Puma, "tensors", lambda self: built.append(1) or original(self))
    for _ in range(3):
        pickle.loads(pickle.dumps(model))(ttbar[:1])
    assert len(built) == 1


def test_charged_candidates_take_the_vertex_or_the_models_value(model, ttbar):
    by_model = untrained(charged="model")
    tracks = ttbar[:2].charge != 0
    vertex, value = model(ttbar[:2]), by_model(ttbar[:2])
    assert ak.all(vertex[tracks] == (ttbar[:2].vertex[tracks] == 0))
    assert ak.array_equal(vertex[~tracks], value[~tracks])
    assert ak.mean((value[tracks] > 0) & (value[tracks] < 1)) > 0.99
    assert by_model.identity != model.identity
    with pytest.raises(BadConfig, match="charged must be 'vertex' or 'model', not 'both'"):
        untrained(charged="both")


def test_weights_differ_from_candidate_to_candidate(model, ttbar):
    neutrals = model(ttbar[:1])[ttbar[:1].charge == 0]
    assert ak.std(neutrals) > 0.1
    assert len(np.unique(ak.flatten(neutrals))) > 1000


def test_an_event_without_pileup_tracks_is_left_alone(model, ttbar, ttbar_pu0):
    mixed = ak.concatenate([ttbar_pu0[:2], ttbar[:1]])
    weights = model(mixed)
    assert ak.all(weights[:2] == 1)
    assert ak.array_equal(weights[2:], model(ttbar[:1]))


def test_a_neutral_that_is_no_token_gets_zero_and_others_follow_the_tokens(ttbar):
    model = untrained(tokens=Tokens(neutral_pt_min=1.0, pileup_pt_min=2.0))
    pf = ttbar[:1]
    weights = model(pf)
    soft = (pf.charge == 0) & (pf.pt < 1)
    assert ak.all(weights[soft] == 0)
    assert ak.all(weights[(pf.charge == 0) & (pf.pt >= 1)] > 0)
    assert ak.all(weights[pf.charge != 0] == (pf.vertex[pf.charge != 0] == 0))


def test_hard_neutrals_are_raised_and_nothing_else_is(model, ttbar):
    raising = HardNeutrals(raise_from=2.0, raise_to=6.0)
    raised = Puma(model.card.model_copy(update={"hard_neutrals": raising}), model._weights)
    pf = ttbar[:2]
    before, after = model(pf), raised(pf)
    neutral, share = pf.vertex < 0, (pf.pt - 2) / 4
    same = ~neutral | (pf.pt <= 2)
    assert ak.all(after[same] == before[same])
    assert ak.all(after[neutral & (pf.pt >= 6)] == 1)
    between = neutral & (pf.pt > 2) & (pf.pt < 6)
    assert ak.sum(between) > 100
    expected = before + (1 - before) * share
    np.testing.assert_allclose(ak.flatten(after[between]), ak.flatten(expected[between]), rtol=1e-5)


def test_a_very_hard_neutral_is_kept_by_the_default_model(ttbar):
    # Few events it was trained on have one; an analysis with photons must not lose it.
    pf = ttbar[:4]
    chosen = pf.pt == ak.max(pf.pt[(pf.vertex < 0) & (pf.pt < 3)], axis=1)
    pf = ak.with_field(pf, ak.where(chosen, 300.0, pf.pt), "pt")
    assert ak.all(Puma.load()(pf)[chosen] == 1)


def test_the_order_of_the_card_is_used(ttbar):
    clusters, by_pt = untrained()(ttbar[:1]), untrained(by="pt")(ttbar[:1])
    assert not ak.array_equal(clusters, by_pt)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_torchscript_safetensors_and_torch_export_agree_on_real_events(
    model, folder, ttbar, tmp_path
):
    import torch

    from puma_coffea.flat import flatten

    flat = flatten(ttbar[:3])[2]
    inputs = prepare(flat, model.card)
    scripted = torch.jit.load(folder / SCRIPT)
    torch.export.save(export_program(model.network()), tmp_path / "model.pt2")
    exported = torch.export.load(tmp_path / "model.pt2").module()
    loaded = Puma.load(folder).network()
    for number in range(3):
        x = torch.from_numpy(inputs.event(number)[1])[None]
        assert x.shape[2] == len(INPUTS)
        with torch.no_grad():
            expected = loaded(x)
            torch.testing.assert_close(scripted(x), expected, atol=1e-5, rtol=0)
            torch.testing.assert_close(exported(x), expected, atol=1e-5, rtol=0)


def test_every_shipped_model_can_be_loaded():
    for name in model_module.shipped_names():
        assert Puma.load(name).card.name == name
        assert (model_module.SHIPPED / name / SCRIPT).is_file()
