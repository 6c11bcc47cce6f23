"""Parquet samples give the same records as ROOT files."""

from __future__ import annotations

import awkward as ak
import numpy as np
import pytest

from puma_coffea import met, method, read_candidates, read_truth
from puma_coffea.exceptions import NoEvents, NotParquetSample


def write_sample(path, with_optional=True):
    rows = {
        "pt": [[1.0, 2.0], [3.0]],
        "eta": [[0.0, 1.0], [-1.0]],
        "phi": [[0.0, np.pi / 2], [1.0]],
        "pid": [[211, 22], [0]],
        "charge": [[1, 0], [0]],
        "vertex": [[0, -1], [-1]],
        "npv": [3, 1],
        "gen_met_x": [3.0, 0.0],
        "gen_met_y": [4.0, 1.0],
    }
    if with_optional:
        rows |= {"y": [[1.0, 0.5], [0.25]], "boson_pt": [5.0, np.nan], "boson_phi": [0.5, np.nan]}
        rows |= {f"genjet_{k}": [[10.0], []] for k in ("pt", "eta", "phi", "mass")}
    ak.to_parquet(ak.Array(rows), path)
    return path


def test_rows_become_candidates_and_truth(tmp_path):
    path = write_sample(tmp_path / "a.parquet")
    pf, true = read_candidates(path), read_truth(path)
    assert pf.pt.to_list() == [[1, 2], [3]]
    assert pf.npv.to_list() == [[3, 3], [1]]
    assert pf.mass[0].to_list() == pytest.approx([0.13957, 0], abs=1e-5)
    assert pf.hard_fraction.to_list() == [[1, 0.5], [0.25]]
    assert true.met.pt.to_list() == [5, 1]
    assert true.boson.pt.to_list() == [5, None]
    assert true.jets.pt.to_list() == [[10], []]


def test_lists_and_globs_are_read_in_order(tmp_path):
    first, second = (write_sample(tmp_path / n) for n in ("a.parquet", "b.parquet"))
    assert len(read_candidates([first, second])) == 4
    assert len(read_truth(str(tmp_path / "*.parquet"))) == 4


def test_optional_columns_may_be_absent(tmp_path):
    path = write_sample(tmp_path / "a.parquet", with_optional=False)
    assert "hard_fraction" not in read_candidates(path).fields
    true = read_truth(path)
    assert ak.all(ak.is_none(true.boson.pt))
    assert "jets" not in true.fields


def test_bad_paths_and_files_are_refused_in_one_sentence(tmp_path):
    with pytest.raises(NotParquetSample, match="There is no file"):
        read_candidates(tmp_path / "absent.parquet")
    with pytest.raises(NoEvents, match="No file matches"):
        read_candidates(str(tmp_path / "*.parquet"))
    with pytest.raises(NoEvents, match="is empty"):
        read_truth([])
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(NotParquetSample, match="cannot be read as a Parquet file"):
        read_truth(tmp_path / "text.parquet")
    ak.to_parquet(ak.Array({"pt": [[1.0]]}), tmp_path / "half.parquet")
    with pytest.raises(NotParquetSample, match="lacks the column"):
        read_candidates(tmp_path / "half.parquet")


@pytest.mark.shared
def test_delphes_missing_et_comes_out_of_the_rounded_columns(shared):
    path = shared / "val" / "val_ttbar_pu140.parquet"
    pf = read_candidates(path)
    rows = ak.from_parquet(path, columns=["delphes_met_x", "delphes_met_y"])
    ours = met(pf, method("none")(pf))
    assert ak.max(abs(ours.px - rows.delphes_met_x)) < 1  # columns are rounded to 0.4 % in pT
    assert ak.max(abs(ours.py - rows.delphes_met_y)) < 1


def test_visible_decay_products_survive_the_way_through_parquet(tmp_path):
    from puma_coffea.parquet import rows_of
    from puma_coffea.truth import momentum2d, momentum4d

    path = write_sample(tmp_path / "a.parquet")
    pf, boson = read_candidates(path), momentum2d([40.0, 50.0], [1.0, 2.0])
    products = momentum4d([[30.0, 12.0], []], [[0.5, 0.0], []], [[0.3, 0.1], []], [[0.1, 0.1], []])
    products = ak.with_field(products, [[1, -1], []], "charge")
    true = ak.zip({"met": boson, "boson": boson, "boson_products": products}, depth_limit=1)
    ak.to_parquet(rows_of(ak.Array({"x": [0, 0]}), pf, true), tmp_path / "b.parquet")
    again = read_truth(tmp_path / "b.parquet").boson_products
    assert again.charge.to_list() == [[1, -1], []]
    assert again.pt.to_list() == [[30.0, 12.0], []]
