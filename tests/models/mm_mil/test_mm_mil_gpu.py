"""MM-MIL with tensors against the compiled loops, and whole fits; on a GPU where there is one."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'bagwise[torch]')")

from mm_mil_problems import label_problem, losses_of  # noqa: E402
from sklearn.model_selection import ParameterGrid  # noqa: E402
from small_gpu import full, no_room_beyond  # noqa: E402

from bagwise import Bags  # noqa: E402
from bagwise.base import fit_several  # noqa: E402
from bagwise.compute.devices import gpu_there  # noqa: E402
from bagwise.compute.scaling import Scaling  # noqa: E402
from bagwise.compute.torch_ops import Segments  # noqa: E402
from bagwise.datasets import make_sub_concepts  # noqa: E402
from bagwise.models import MMMIL, OneVsRestMIL  # noqa: E402
from bagwise.models.mm_mil import estimator  # noqa: E402
from bagwise.models.mm_mil import gpu as gpu_steps  # noqa: E402
from bagwise.models.mm_mil.fit import inherited_losses  # noqa: E402
from bagwise.models.mm_mil.fit_features import (  # noqa: E402
    drawn_numbers,
    gaussian_kernel,
    kernel_of,
)
from bagwise.models.mm_mil.fit_smooth import BagLosses  # noqa: E402
from bagwise.models.mm_mil.gpu import Answers, FeaturesOf, GpuFeatures  # noqa: E402
from bagwise.models.mm_mil.kernels import instance_posteriors  # noqa: E402

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))
DEVICES = pytest.mark.parametrize("device", ["cpu", GPU])
PLAIN = Scaling("none", np.zeros(4), np.ones(4))


def generated(n_bags=160, n_labels=3, seed=0):
    return make_sub_concepts(
        n_bags, n_labels, 2, min_size=1, max_size=6, cardinality=0.5 * n_labels, random_state=seed
    )


def small(seed=0, n_bags=30, n_labels=3):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 7, n_bags))])
    Y = (rng.random((n_bags, n_labels)) < 0.4).astype(np.int8)
    return rng.normal(size=(offsets[-1], 4)), offsets, Y, rng


def answers(X, offsets, Y, device, **how):
    return Answers(GpuFeatures(X, FeaturesOf(torch.device(device), PLAIN), 4, **how), offsets, Y)


def on_device(monkeypatch, device):
    """What ``device="cuda"`` stands for: torch's processor where there is no GPU."""
    if device == "cpu":
        monkeypatch.setattr(
            estimator, "gpu_for", lambda name, _: torch.device("cpu") if name == "cuda" else None
        )


@DEVICES
@pytest.mark.parametrize("M", [1, 3])
@pytest.mark.parametrize("size", [1.0, 300.0])
def test_losses_and_gradients_are_those_of_the_compiled_loops(device, M, size):
    _, offsets, Y, rng = small(M)
    sharpness = np.array([1.0, 30.0, 3.0])
    F = size * rng.normal(size=(offsets[-1], 2 * M, 3))
    there = torch.as_tensor(F.copy()).to(device)
    signs = torch.as_tensor(1.0 - 2.0 * Y).to(device)
    smooth, hard, G = gpu_steps.losses(
        there, Segments.of(offsets, device), signs, torch.as_tensor(sharpness).to(device)
    )
    for q in range(3):
        given, expected = np.ascontiguousarray(F[:, :, q]), np.empty((len(F), 2 * M))
        values = losses_of(given, offsets, Y[:, q].astype(float), np.ones(len(Y)), sharpness[q], expected)
        np.testing.assert_allclose((float(smooth[q]), float(hard[q])), values, rtol=1e-12)
        np.testing.assert_allclose(G[:, :, q].cpu().numpy(), expected, atol=1e-11)
        r, plus = np.empty(len(F)), np.empty((len(F), M))
        instance_posteriors(given, r, plus)
        found = gpu_steps.log_odds(torch.as_tensor(F).to(device))
        np.testing.assert_allclose(found[0][:, q].cpu().numpy(), r, rtol=1e-9, atol=1e-11 * size)
        np.testing.assert_allclose(found[1][:, :, q].cpu().numpy(), plus, atol=1e-11)


@DEVICES
def test_bags_too_long_for_one_thread(device, monkeypatch):
    _, offsets, Y, rng = small(5)
    F = torch.as_tensor(rng.normal(size=(offsets[-1], 4, 3))).to(device)
    given = Segments.of(offsets, device), torch.as_tensor(1.0 - 2.0 * Y).to(device)
    v = torch.tensor([1.0, 3.0, 10.0], dtype=torch.float64, device=device)
    expected = gpu_steps.losses(F.clone(), *given, v)
    monkeypatch.setattr(gpu_steps, "_LONGEST", 2)
    for one, other in zip(gpu_steps.losses(F, *given, v), expected):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@DEVICES
@pytest.mark.parametrize("resident", [True, False])
def test_questions_of_several_labels_are_answered_as_one_by_one(device, resident, monkeypatch):
    X, offsets, Y, rng = small(1)
    monkeypatch.setattr(gpu_steps, "_CELLS", 100)  # several pieces
    asked = answers(X, offsets, Y, device, resident=resident)
    labels = Y.astype(np.float64)
    points = [rng.normal(size=(5, 4)) for _ in range(2)]
    weights = (0.7, 1.8)
    expert, centres = rng.normal(size=5), rng.normal(size=(5, 2))
    bags, rows = np.array([0, 4, 29]), np.array([7, 2])
    found = asked(
        [
            ("losses", 2, points[0], 3.0, None),
            ("losses", 1, points[0][:, :2], 1.0, weights),
            ("activation", centres),
            ("losses", 0, points[1], 10.0, None),
            ("rows", expert, {0: (bags, rows)}),
        ]
    )
    expected = [
        BagLosses(X, offsets, labels[:, 2])(points[0], 3.0),
        inherited_losses(X, offsets, labels[:, 1], weights)(points[0][:, :2], 1.0),
        None,
        BagLosses(X, offsets, labels[:, 0])(points[1], 10.0),
    ]
    for k in (0, 1, 3):
        np.testing.assert_allclose(found[k][:2], expected[k][:2], rtol=1e-12)
        np.testing.assert_allclose(found[k][2], expected[k][2], atol=1e-11)
    problem = label_problem(X, offsets, labels[:, 0], 2, 0.1, 0.1)
    assert found[2][0] / found[2][1] == pytest.approx(problem.activation(centres))
    best = [offsets[b] + np.argmax(X[offsets[b] : offsets[b + 1]] @ expert[:-1]) for b in bags]
    np.testing.assert_allclose(found[4][0][0], X[best])
    np.testing.assert_allclose(found[4][1][0], X[rows])
    assert len(asked._pieces[1]) > 1


@DEVICES
def test_a_pass_that_does_not_fit_is_made_in_smaller_pieces(device, monkeypatch):
    X, offsets, Y, rng = small(2)
    asked = answers(X, offsets, Y, device)
    question = [("losses", 0, rng.normal(size=(5, 6)), 3.0, None)]
    expected = asked(question)[0]
    tried = no_room_beyond(monkeypatch, gpu_steps, "losses", 20)
    asked.cells = 6 * len(X)
    for _ in range(2):
        found = asked(question)[0]
        np.testing.assert_allclose(found[:2], expected[:2], rtol=1e-12)
        np.testing.assert_allclose(found[2], expected[2], atol=1e-12)
    assert sum(n > 20 for n in tried) <= 4  # and stay so
    monkeypatch.setattr(gpu_steps, "losses", full)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="use device='cpu'"):
        asked(question)


@DEVICES
def test_features_that_do_not_fit_are_made_in_every_pass(device, monkeypatch):
    X, _, _, _ = small(3)

    monkeypatch.setattr(gpu_steps, "moved", full)
    drawn = drawn_numbers(len(X), 10, np.random.RandomState(0))
    kernel = kernel_of(lambda rows: X[rows], *drawn, 0.5)
    features = GpuFeatures(X, FeaturesOf(torch.device(device), PLAIN, kernel), kernel.whitening.shape[1])
    assert features.kept is None
    expected = gaussian_kernel(X, kernel.landmarks, kernel.sigma2) @ kernel.whitening
    found = torch.cat(list(features.runs([(0, 11), (11, len(X))]))).cpu().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(features.some(np.array([3, 1])).cpu().numpy(), expected[[3, 1]], atol=1e-9)


@DEVICES
@pytest.mark.parametrize("settings", [{}, {"kernel": "rbf", "n_landmarks": 40}, {"n_clusters": 1}])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_whole_fit_is_that_of_the_processor(device, settings, dtype, monkeypatch):
    data = generated()
    bags = data.bags.with_X((data.bags.X + 30.0).astype(dtype))
    settings = {"n_clusters": 2, "random_state": 0, "max_iter": 40, "tol": 1e-4, **settings}
    here = MMMIL(device="cpu", **settings).fit(bags, data.Y)
    on_device(monkeypatch, device)
    there = MMMIL(device="cuda", **settings).fit(bags, data.Y)
    for name in ("decision_function", "instance_scores", "cluster_proba"):
        expected = getattr(here, name)(bags)
        found = getattr(there, name)(bags)
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max(), err_msg=name)
    scores = here.decision_function(bags)
    sure = np.abs(scores) > 1e-3 * np.abs(scores).max()
    assert (there.predict(bags) == here.predict(bags))[sure].all()
    again = MMMIL(device="cuda", **settings).fit(bags, data.Y)
    assert (again.expert_coef_ == there.expert_coef_).all() and (again.gate_coef_ == there.gate_coef_).all()


@DEVICES
@pytest.mark.parametrize("n_labels", [1, 2])
def test_models_that_learn_side_by_side_are_those_that_learn_alone(device, n_labels, monkeypatch):
    data = generated(80, n_labels)
    shared = {"random_state": 0, "max_iter": 10, "tol": 1e-3, "kernel": "rbf", "n_landmarks": 30}
    grid = ParameterGrid(
        {"n_clusters": [1, 3], "gate_penalty": [0.1, 1.0], "expert_penalty": [0.3], "width_scale": [0.5, 1.0]}
    )
    on_device(monkeypatch, device)
    alone = [MMMIL(device="cuda", **shared, **each).fit(data.bags, data.Y) for each in grid]
    passes = []
    answer = Answers.__call__

    def counted(self, questions):
        passes.append(len(questions))
        return answer(self, questions)

    monkeypatch.setattr(Answers, "__call__", counted)
    monkeypatch.setattr(gpu_steps, "_SIDE_BY_SIDE", 9 * n_labels)  # 3 models with 3 starts at a time
    together = [MMMIL(device="cuda", **shared, **each) for each in grid]
    fit_several(together, data.bags, data.Y)
    assert max(passes) > 3 * n_labels  # more than one model asks at a time
    for one, other in zip(alone, together):
        expected = one.decision_function(data.bags)
        found = other.decision_function(data.bags)
        np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())
        assert other.n_iter_ == one.n_iter_


@DEVICES
def test_scores_do_not_depend_on_pieces(device, monkeypatch):
    data = generated()
    model = MMMIL(2, kernel="rbf", n_landmarks=20, random_state=0, max_iter=5, tol=1e-2, device="cpu")
    model.fit(data.bags, data.Y)
    expected = model.decision_function(data.bags), model.instance_scores(data.bags)
    clusters = model.bag_clusters(data.bags)
    on_device(monkeypatch, device)
    tried = no_room_beyond(monkeypatch, gpu_steps, "log_odds", 50)
    model.device = "cuda"
    np.testing.assert_allclose(model.decision_function(data.bags), expected[0], atol=1e-9)
    np.testing.assert_allclose(model.instance_scores(data.bags), expected[1], atol=1e-9)
    assert (model.bag_clusters(data.bags) == clusters).all()
    assert max(tried) > 50 and min(tried) <= 50


@DEVICES
def test_model_files_load_on_either_device(device, tmp_path, monkeypatch):
    pytest.importorskip("skops", reason="skops is not installed")
    from bagwise import load, save

    data = generated(60, 1)
    on_device(monkeypatch, device)
    model = MMMIL(2, random_state=0, max_iter=5, tol=1e-2, device="cuda").fit(data.bags, data.Y[:, 0])
    scores = model.decision_function(data.bags)
    save(model, tmp_path / "model.bagwise")
    monkeypatch.undo()
    loaded = load(tmp_path / "model.bagwise")
    assert loaded.device == ("cuda" if gpu_there() else "auto")  # where there is no GPU, it does without
    np.testing.assert_allclose(
        loaded.set_params(device="cpu").decision_function(data.bags), scores, atol=1e-9
    )


@pytest.mark.filterwarnings("ignore")
def test_what_stays_on_the_processor(monkeypatch):
    data = generated(40, 1)
    on_device(monkeypatch, "cpu")
    text = Bags(np.eye(40)[np.arange(80) % 40], np.arange(0, 81, 2))
    went = []
    learn = gpu_steps.learn_on_gpu
    monkeypatch.setattr(gpu_steps, "learn_on_gpu", lambda *given: went.append(given) or learn(*given))
    for bags, solver in ((data.bags, "em"), (text, "smooth"), (data.bags, "smooth")):
        settings = {"solver": solver, "max_iter": 2, "tol": 0.1, "random_state": 0}
        model = MMMIL(1, device="cuda", **settings).fit(bags, data.Y)
        expected = MMMIL(1, device="cpu", **settings).fit(bags, data.Y)
        np.testing.assert_allclose(model.expert_coef_, expected.expert_coef_, atol=1e-6)
        assert len(went) == (bags is data.bags and solver == "smooth")


def test_one_against_the_rest_goes_to_the_gpu_label_by_label(monkeypatch):
    data = generated(60, 2)
    settings = {"n_clusters": 1, "random_state": 0, "max_iter": 20}
    on_device(monkeypatch, "cpu")
    direct = MMMIL(device="cuda", **settings).fit(data.bags, data.Y)
    wrapped = OneVsRestMIL(MMMIL(device="cuda", **settings)).fit(data.bags, data.Y)
    expected = direct.decision_function(data.bags)
    np.testing.assert_allclose(
        wrapped.decision_function(data.bags), expected, atol=1e-4 * np.abs(expected).max()
    )
