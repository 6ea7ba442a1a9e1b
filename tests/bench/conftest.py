"""A suite of a few seconds, on generated data."""

import pytest

SUITE = """
title = "Small"
reference = "nobody"

[datasets.A]
load = "miml"
options = { n_bags = 40, n_labels = 3, random_state = 0 }
note = "generated data"
[datasets.B]
load = "miml"
options = { n_bags = 50, n_labels = 3, random_state = 1 }
[datasets.C]
absent = "nobody has it"
[datasets.D]
load = "miml"
options = { n_bags = 40, n_labels = 3, random_state = 2 }
target = "class"

[methods.ours]
estimator = "ORedLogisticRegression"
params = { max_iter = 20 }
[methods.tuned]
estimator = "ORedLogisticRegression"
params = { max_iter = 5 }
settings = { alpha = [0.1, 1000.0] }
short = { settings = { alpha = [0.1] } }
[methods.searched]
estimator = "ORedLogisticRegression"
params = { max_iter = 5 }
steps = ["standard"]
search = { cv = 2, scoring = "average_precision", grid = { alpha = [0.1, 100.0] } }
[methods.floor]
estimator = "MIMLDummy"
[methods.other]
absent = "not implemented yet"
[methods.broken]
estimator = "ORedLogisticRegression"
params = { alpha = -1.0 }

[protocols.folds]
title = "3 folds"
kind = "folds"
n_splits = 3
[protocols.halves]
kind = "holdout"
train = 0.5
repeats = 4
short = { repeats = 2 }
[protocols.all]
kind = "all"

[tables.1]
title = "Quality"
protocol = "folds"
datasets = ["A", "B", "C"]
methods = ["ours", "tuned", "floor", "other", "broken"]
measures = ["ranking_loss", "instance_accuracy_inductive_percent"]
best = "ranking_loss"

[tables.2]
title = "Counts"
protocol = "all"
datasets = ["A", "C"]
measures = ["n_bags", "n_labels"]

[tables.3]
title = "Same fits as in table 1, and known label sets"
protocol = "folds"
datasets = ["A"]
methods = ["ours", "searched"]
measures = ["one_minus_average_precision"]

[figures.1]
title = "Curve"
protocol = "halves"
x_label = "share"
datasets = ["A", "B"]
methods = ["ours", "floor"]
measures = ["ranking_loss", "train_time_s"]
points = [{ x = 0.3, split = { train = 0.3 } }, { x = 0.6, split = { train = 0.6 } }]

[[notes]]
experiments = ["1"]
datasets = ["B"]
methods = ["ours"]
text = "Said by hand."
"""

PUBLISHED = """table,dataset,method,measure,direction,mean,std,mark
1,A,ours,ranking_loss,lower,0.900,0.010,
1,A,floor,ranking_loss,lower,0.500,0.500,worse
1,A,other,ranking_loss,lower,0.300,0.010,worse
1,B,ours,ranking_loss,lower,0.001,0.001,
1,C,ours,ranking_loss,lower,0.100,0.010,
1,A,other,instance_accuracy_inductive_percent,higher,NA,,
2,A,-,n_bags,none,40,,
"""


@pytest.fixture(scope="session")
def suite_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suite")
    (folder / "published.csv").write_text(PUBLISHED)
    (folder / "small.toml").write_text(SUITE)
    return folder / "small.toml"
