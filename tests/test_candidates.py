"""Candidates are the same whatever collection, schema or release of Delphes they come from."""

from __future__ import annotations

import awkward as ak
import numpy as np
import pytest

from puma_coffea import candidates, open_events, physical, sample_path
from puma_coffea.candidates import COLUMNS
from puma_coffea.layouts import EFLOW, PARTICLE_FLOW, Collection, Layout, mass_of
from puma_coffea.vertexing import estimate_npv


def assert_identical(first, second, fields):
    assert ak.num(first).to_list() == ak.num(second).to_list()
    for name in fields:
        assert ak.all(first[name] == second[name]), name


def test_columns_have_the_documented_types(ttbar):
    assert ttbar.fields == [*COLUMNS, "hard_fraction"]
    for name, dtype in COLUMNS.items():
        assert ak.flatten(ttbar[name]).layout.dtype == dtype, name


def test_candidates_behave_as_four_vectors(ttbar):
    first = ttbar[0, 0]
    assert first.px == pytest.approx(first.pt * np.cos(first.phi), rel=1e-5)
    assert (ttbar[:, 0] + ttbar[:, 1]).mass[0] >= 0


def test_order_is_tracks_photons_neutral_hadrons_of_the_file():
    events = open_events(sample_path("ttbar_pu140"))
    pf = candidates(events)
    expected = ak.concatenate(
        [events.EFlowTrack.PT, events.EFlowPhoton.ET, events.EFlowNeutralHadron.ET], axis=1
    )
    assert ak.all(pf.pt == expected)


def test_particle_flow_branch_equals_eflow_branches(data):
    events = open_events(data / "particle_flow.root")
    one, three = candidates(events, layout=PARTICLE_FLOW), candidates(events, layout=EFLOW)
    assert_identical(one, three, three.fields)


@pytest.mark.shared
def test_particle_flow_branch_equals_eflow_branches_on_the_full_file(shared):
    events = open_events(shared / "root" / "delphes_ttbar_pu140_pfc.root")
    one, three = candidates(events, layout=PARTICLE_FLOW), candidates(events, layout=EFLOW)
    assert_identical(one, three, three.fields)


def test_particle_flow_branch_is_found_where_it_stands_alone(data):
    events = open_events(data / "particle_flow.root")
    alone = events[["ParticleFlowCandidate", "Vertex"]]
    assert_identical(candidates(alone), candidates(events), COLUMNS)


def test_true_vertex_marks_hard_tracks_pileup_tracks_and_neutrals(ttbar):
    neutral = ttbar.charge == 0
    assert ak.all(ttbar.vertex[neutral] == -1)
    assert set(ak.flatten(ttbar.vertex[~neutral]).to_list()) == {0, 1}
    assert ak.all((ttbar.hard_fraction[~neutral] == 1) == (ttbar.vertex[~neutral] == 0))


def test_reconstructed_vertex_confuses_some_tracks():
    events = open_events(sample_path("ttbar_pu140"))
    true, reco = candidates(events), candidates(events, vertexing="reco")
    tracks = true.charge != 0
    agreement = ak.mean((true.vertex == reco.vertex)[tracks])
    assert 0.98 < agreement < 1
    assert ak.all(reco.vertex[~tracks] == -1)


def test_reference_to_the_generated_particle_equals_is_pu():
    events = open_events(sample_path("ttbar_pu140"))
    assert_identical(candidates(events, vertexing="reference"), candidates(events), ["vertex"])


@pytest.mark.shared
@pytest.mark.parametrize("name", ["ttbar_pu140_genpu", "zvv_pu140", "vbfhinv_pu0", "dijet_pu140"])
def test_reference_equals_is_pu_with_and_without_stored_pileup_particles(shared, name):
    events = open_events(shared / "root" / f"delphes_{name}.root")
    assert_identical(candidates(events, vertexing="reference"), candidates(events), ["vertex"])


def test_older_file_without_is_pu_mass_and_vertices_works(data, ttbar):
    older = candidates(open_events(data / "older_delphes.root"))
    assert "hard_fraction" not in older.fields
    assert_identical(older, ttbar[:2], ["pt", "eta", "phi", "charge", "pid", "vertex"])
    assert ak.max(abs(older.mass - ttbar[:2].mass)) < 0.03  # the file's masses are rounded


def test_number_of_vertices_is_counted_or_estimated(data, ttbar):
    events = open_events(sample_path("ttbar_pu140"))
    assert ttbar.npv[:, 0].to_list() == ak.num(events.Vertex.Z).to_list()
    estimated = candidates(open_events(data / "older_delphes.root")).npv[:, 0]
    assert ak.all(abs(estimated / ttbar.npv[:2, 0] - 1) < 0.1)


def test_estimated_number_of_vertices_is_one_without_pileup_tracks():
    npv = estimate_npv(np.array([5.0]), np.array([0.1]), np.array([0]), np.array([0, 1, 1]))
    assert npv.tolist() == [1, 1]


def test_coffeas_own_schema_gives_the_same_candidates(ttbar):
    from coffea.nanoevents import DelphesSchema, NanoEventsFactory

    events = NanoEventsFactory.from_root(
        {sample_path("ttbar_pu140"): "Delphes"}, schemaclass=DelphesSchema
    ).events()
    assert_identical(candidates(events), ttbar, ttbar.fields)


def test_a_mapping_reads_a_collection_under_other_names(ttbar):
    renamed = ak.zip(
        {"Flow": ak.zip({"p": ttbar.pt, "h": ttbar.eta, "f": ttbar.phi, "q": ttbar.charge,
                         "id": ttbar.pid, "origin": ttbar.vertex})},
        depth_limit=1,
    )  # fmt: skip
    mine = Layout(
        "mine",
        (Collection("Flow", pt="p", eta="h", phi="f", mass=None, charge="q", pid="id",
                    hard_fraction=None, vertexing={"own": lambda _events, flow: flow.origin}),),
    )  # fmt: skip
    read = candidates(renamed, vertexing="own", layout=mine)
    assert_identical(read, ttbar, ["pt", "eta", "phi", "charge", "pid", "vertex"])


def test_vertexing_may_be_a_function(ttbar):
    events = open_events(sample_path("ttbar_pu140"))
    everything_hard = candidates(events, vertexing=lambda tracks: tracks.IsPU * 0)
    assert ak.all(everything_hard.vertex[ttbar.charge != 0] == 0)


def test_unphysical_entries_are_recognised():
    nan, inf = np.nan, np.inf
    bad = ak.Array(
        [[{"pt": p, "eta": e, "phi": f} for p, e, f in
          [(1, 0, 0), (0, 0, 0), (-1, 0, 0), (nan, 0, 0), (inf, 0, 0), (1, 999.9, 0), (1, nan, 0), (1, 0, inf)]]]
    )  # fmt: skip
    assert physical(bad).to_list() == [[True] + [False] * 7]


def test_masses_follow_the_particle_id():
    assert mass_of(np.array([-2212, 22, 0, 999])).round(4).tolist() == [0.9383, 0, 0, 0.1396]


def test_selected_and_empty_events_keep_their_layout(ttbar):
    events = open_events(sample_path("ttbar_pu140"))
    some = candidates(events[[5, 2]])
    assert_identical(some, ttbar[[5, 2]], ttbar.fields)
    assert len(candidates(events[:0])) == 0
