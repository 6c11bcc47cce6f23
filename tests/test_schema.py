"""The repaired schema keeps what coffea's own drops, flattens or mistypes."""

from __future__ import annotations

import awkward as ak
import pytest

from puma_coffea import open_events, sample_path


@pytest.fixture(scope="module")
def events():
    return open_events(sample_path("zvv_pu140"))


def test_density_keeps_one_entry_per_eta_range(events):
    assert ak.num(events.Rho.Rho).to_list() == [5] * 12


@pytest.mark.parametrize("name", ["MissingET", "GenMissingET", "PuppiMissingET"])
def test_missing_momenta_are_one_per_event(events, name):
    assert ak.to_numpy(events[name].MET).shape == (12,)
    assert ak.all(abs(events[name].pt / events[name].MET - 1) < 1e-5)


def test_stored_tower_energy_is_kept_beside_the_vectors(events):
    tower = events.EFlowPhoton
    assert ak.max(abs(tower.Energy / tower.E - 1)) < 1e-4


def test_photon_towers_are_towers(events):
    assert events.EFlowPhoton.layout.form.content.parameters["__record__"] == "Tower"


def test_a_vertex_behaves_as_a_four_vector_where_its_branches_are_there(shared):
    vertex = open_events(shared / "root" / "delphes_zvv_pu140.root").Vertex
    assert ak.all(vertex.z == vertex.Z)
    assert ak.all(vertex.t == vertex.T)


def test_dropped_branches_cost_the_behaviour_not_the_file(events):
    assert events.Vertex.fields == ["T", "Z"]


def test_tracks_without_mass_branch_get_the_pions(data):
    tracks = open_events(data / "older_delphes.root").EFlowTrack
    assert "Mass" not in tracks.fields
    assert float(tracks.mass[0, 0]) == pytest.approx(0.13957, rel=1e-4)


def test_particle_flow_candidates_are_four_vectors(data):
    pf = open_events(data / "particle_flow.root").ParticleFlowCandidate
    assert ak.all(pf.pt == pf.PT)
    assert float(pf.px[0, 0]) == pytest.approx(float(pf.to_xyzt().x[0, 0]), rel=1e-6)
