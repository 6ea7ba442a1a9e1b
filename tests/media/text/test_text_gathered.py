"""A table of texts and their labels becomes a data set, and a model takes such tables."""

import warnings

import numpy as np
import pytest

from bagwise.io import read, write
from bagwise.media import gather
from bagwise.media.recipe import transformer_of


def test_one_table_of_texts_and_labels(tmp_path):
    rows = ["id,text,topics", '1,"Soil and roots. It rains.",garden', '2,"A goal, a keeper.",sport;garden']
    table = tmp_path / "articles.csv"
    table.write_text("\n".join(rows) + "\n")
    data = gather(table, table, medium="text", params={"column": "text", "n_features": 64}, cache=False)
    assert data.bags.bag_ids.tolist() == ["articles.csv#1", "articles.csv#2"]
    assert data.label_sets == [["garden"], ["garden", "sport"]]
    assert data.bags.instance_info["text"].tolist() == ["Soil and roots.", "It rains.", "A goal, a keeper."]


@pytest.mark.parametrize("features", ["hashing", "tf-idf"])
def test_models_take_raw_texts_as_they_were_fed(tmp_path, features):
    (tmp_path / "files").mkdir()
    for k in range(12):
        (tmp_path / "files" / f"{k:02d}.txt").write_text(
            f"A {'wren' if k % 2 else 'robin'} sang. It flew {k}."
        )
    lines = [f"{k:02d}.txt,{'wren' if k % 2 else 'robin'}" for k in range(12)]
    (tmp_path / "labels.csv").write_text("file,labels\n" + "\n".join(lines) + "\n")
    params = {"features": features}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that tf-idf is learned from all files
        data = gather(tmp_path / "files", tmp_path / "labels.csv", params=params, cache=False)
    write(data, tmp_path / "d.parquet")
    made = transformer_of(read(tmp_path / "d.parquet").recipe)
    new = made.transform(["A wren sang. Words unheard."])
    assert new.n_features == data.bags.n_features and new.sizes.tolist() == [2]
    assert np.array_equal(made.transform(tmp_path / "files").X.toarray(), data.bags.X.toarray())
