"""DeepMIML: heads against plain loops, losses against sums over pairs, and what the contract promises."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'bagwise[torch]')")

import bagwise  # noqa: E402
from bagwise import Bags, load_dataset  # noqa: E402
from bagwise.checks import sample_bags  # noqa: E402
from bagwise.compute.scaling import learn_scaling  # noqa: E402
from bagwise.compute.torch_ops import Segments  # noqa: E402
from bagwise.errors import BagwiseError  # noqa: E402
from bagwise.metrics import average_precision  # noqa: E402
from bagwise.models import DeepMIML  # noqa: E402
from bagwise.models.deep.fit_members import bag_losses  # noqa: E402
from bagwise.models.deep.network import HEADS, Network, Plan, network_with, weights_of  # noqa: E402
from bagwise.models.deep.predict import Feed  # noqa: E402
from bagwise.models.deep.tune import POOLINGS  # noqa: E402

SMALL = {"n_members": 1, "hidden": 32, "dropout": 0.1, "max_epochs": 30, "random_state": 0}
OFFSETS = np.array([0, 3, 4, 9])


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def made(name, pooling, width=6, n_labels=3):
    torch.manual_seed(0)
    head = HEADS[name](width, n_labels, pooling).double().eval()
    H = torch.randn(9, width, dtype=torch.float64)
    return head, H, {key: value.detach().numpy() for key, value in head.state_dict().items()}


def bags_of(H):
    return [H.numpy()[a:b] for a, b in zip(OFFSETS[:-1], OFFSETS[1:])]


@pytest.mark.parametrize("pooling", POOLINGS["pool"])
def test_pool_head_by_hand(pooling):
    head, H, w = made("pool", pooling)
    for bag, got in zip(bags_of(H), head(H, Segments.of(OFFSETS)).detach().numpy()):
        kinds = {"mean": bag.mean(0), "max": bag.max(0), "lse": np.log(np.exp(bag).mean(0))}
        pooled = np.concatenate(list(kinds.values())) if pooling == "all" else kinds[pooling]
        np.testing.assert_allclose(got, w["scores.weight"] @ pooled + w["scores.bias"])


@pytest.mark.parametrize("pooling", POOLINGS["instance"])
def test_instance_head_by_hand(pooling):
    head, H, w = made("instance", pooling)
    for bag, got in zip(bags_of(H), head(H, Segments.of(OFFSETS)).detach().numpy()):
        p = sigmoid(bag @ w["scores.weight"].T + w["scores.bias"])
        n = np.log1p(np.exp(w["power"])) if pooling == "power" else 1.0
        P = (p ** (1.0 + n)).sum(0) / (p**n).sum(0)
        np.testing.assert_allclose(got, np.log(P / (1.0 - P)))


def test_attention_head_by_hand_and_contributions_add_up():
    head, H, w = made("attention", "softmax")
    inner = head.inner
    V, U, W = (w["project.weight"][k : k + n] for k, n in ((0, inner), (inner, inner), (2 * inner, 3)))
    v, u, b = (w["project.bias"][k : k + n] for k, n in ((0, inner), (inner, inner), (2 * inner, 3)))
    at = Segments.of(OFFSETS)
    said = head.instances(H, at).detach().numpy()
    for k, (bag, got) in enumerate(zip(bags_of(H), head(H, at).detach().numpy())):
        logits = (np.tanh(bag @ V.T + v) * sigmoid(bag @ U.T + u)) @ w["weights.weight"].T
        a = np.exp(logits) / np.exp(logits).sum(0)
        np.testing.assert_allclose(got, (a * (bag @ W.T + b)).sum(0))
        np.testing.assert_allclose(said[OFFSETS[k] : OFFSETS[k + 1]].sum(0), got)


@pytest.mark.parametrize("pooling", POOLINGS["prototype"])
def test_prototype_head_by_hand(pooling):
    head, H, w = made("prototype", pooling)
    C = w["prototypes"] / np.linalg.norm(w["prototypes"], axis=1, keepdims=True)
    for bag, got in zip(bags_of(H), head(H, Segments.of(OFFSETS)).detach().numpy()):
        cosines = (bag / np.linalg.norm(bag, axis=1, keepdims=True)) @ C.T
        near = np.log(np.exp(8.0 * cosines).reshape(len(bag), 3, 4).mean(2)) / 8.0
        s = 4.0 * math.log1p(math.exp(w["scale"])) * near + w["bias"]
        np.testing.assert_allclose(got, s.max(0) if pooling == "max" else np.log(np.exp(s).sum(0)))


def test_transformer_pads_without_a_trace():
    head, H, _ = made("transformer", "softmax", width=8)
    together = head(H, Segments.of(OFFSETS)).detach().numpy()
    for k, (a, b) in enumerate(zip(OFFSETS[:-1], OFFSETS[1:])):
        alone = head(H[a:b], Segments.of([0, b - a])).detach().numpy()
        np.testing.assert_allclose(alone[0], together[k])
    one = head.alone(H, None).detach().numpy()
    np.testing.assert_allclose(one, head(H, Segments.of(np.arange(10))).detach().numpy())


@pytest.mark.parametrize("name", HEADS)
def test_a_bag_of_one_instance_scores_what_the_instance_scores(name):
    head, H, _ = made(name, POOLINGS[name][0], width=8)
    singles = head(H, Segments.of(np.arange(len(H) + 1))).detach().numpy()
    np.testing.assert_allclose(head.alone(H, None).detach().numpy(), singles, atol=1e-10)


def test_losses_by_sums_over_labels_and_pairs():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(6, 5))
    Y = rng.integers(-1, 2, size=(6, 5)).astype(float)
    Y[0], Y[1] = 1.0, 0.0  # no pairs
    for name in ("bce", "asymmetric", "ranking", "ranking+bce"):
        expected = []
        for z, y in zip(Z, Y):
            p = sigmoid(z)
            q = np.maximum(p - 0.05, 0.0)
            bce = np.where(y > 0, -np.log(p), -np.log(1 - p))[y >= 0].mean()
            asymmetric = np.where(y > 0, -np.log(p), -(q**2) * np.log(1 - q))[y >= 0].mean()
            pairs = sum(np.exp(z[n] - z[m]) for m in range(5) for n in range(5) if y[m] == 1 and y[n] == 0)
            parts = {"bce": bce, "asymmetric": asymmetric, "ranking": np.log1p(pairs)}
            expected.append(sum(parts[part] for part in name.split("+")))
        got = bag_losses(name, torch.tensor(Z), torch.tensor(Y)).numpy()
        np.testing.assert_allclose(got, expected, err_msg=name)


def test_batches_hold_every_bag_once_and_unions_hold_both():
    bags, Y = sample_bags(n_bags=20)
    Y = Y.astype(float)
    Y[3, 0] = -1.0
    feed = Feed(bags, learn_scaling(bags.X, "none"), torch.device("cpu"), Y)
    rows = [batch.X for batch in feed.batches(np.arange(20), 6)]
    np.testing.assert_allclose(torch.cat(rows).numpy(), bags.X, rtol=1e-6)
    bag = feed._batch(np.array([3, 5]), np.array([7, -1]))
    assert bag.at.offsets.tolist() == [0, bags.sizes[3] + bags.sizes[7], bags.sizes[[3, 7, 5]].sum()]
    np.testing.assert_allclose(bag.X.numpy(), np.concatenate([bags[k].X for k in ([3], [7], [5])]), rtol=1e-6)
    expected = np.maximum(Y[3], Y[7])
    expected[0] = 1.0 if Y[7, 0] == 1 else -1.0
    np.testing.assert_array_equal(bag.Y.numpy(), [expected, Y[5]])
    for half, k in zip(bag.halves(), (0, 1)):
        np.testing.assert_array_equal(half.Y.numpy(), bag.Y.numpy()[[k]])
        assert half.at.offsets.tolist() == [0, len(half.X)]


def test_sparse_bags_are_fed_as_dense_ones():
    from scipy import sparse

    bags, Y = sample_bags(n_bags=12)
    scaling = learn_scaling(bags.X, "standard")
    thin = Bags(sparse.csr_array(bags.X), bags.offsets)
    dense, sparser = (Feed(b, scaling, torch.device("cpu"), Y) for b in (bags, thin))
    order = np.array([4, 2, 9])
    torch.testing.assert_close(next(dense.batches(order, 3)).X, next(sparser.batches(order, 3)).X)


def test_weights_make_the_same_network_again():
    plan = Plan("attention", "softmax", 5, 3, 16, 2, 0.5)
    network = Network(plan).eval()
    again = network_with(plan, weights_of(network), torch.device("cpu"), torch.float32)
    X, at = torch.randn(9, 5), Segments.of(OFFSETS)
    torch.testing.assert_close(network(X, at), again(X, at))


@pytest.mark.parametrize("head", HEADS)
def test_every_head_learns_and_is_saved(head, tmp_path):
    bags, Y = sample_bags(n_bags=120)
    model = DeepMIML(head, **SMALL).fit(bags[:90], Y[:90])
    assert (model.predict(bags[90:]) != Y[90:]).mean() < 0.1
    assert (model.annotate(bags[90:]) == bags[90:].instance_info["label"]).mean() > 0.8
    bagwise.save(model, tmp_path / "deep.skops")
    loaded = bagwise.load(tmp_path / "deep.skops")
    np.testing.assert_array_equal(loaded.decision_function(bags), model.decision_function(bags))
    if head in ("attention", "transformer"):
        said, scores = model.instance_scores(bags), model.decision_function(bags)
        sums = np.stack([said[a:b].sum(0) for a, b in zip(bags.offsets[:-1], bags.offsets[1:])])
        np.testing.assert_allclose(sums, scores, atol=1e-8)


def test_labels_not_known_are_left_out():
    bags, Y = sample_bags(n_bags=120)
    wrong = Y.astype(float)
    hidden = np.random.default_rng(0).random(Y.shape) < 0.4
    wrong[hidden] = np.nan
    model = DeepMIML(**SMALL).fit(bags[:90], wrong[:90])
    assert (model.predict(bags[90:]) != Y[90:]).mean() < 0.15
    with pytest.raises(ValueError, match="NaN"):
        bagwise.models.MIMLDummy().fit(bags, wrong)


def test_weights_of_zero_leave_bags_out():
    bags, Y = sample_bags(n_bags=100)
    spoiled = Y.copy()
    spoiled[60:] = 1 - spoiled[60:]
    weights = (np.arange(100) < 60).astype(float)
    model = DeepMIML(**SMALL).fit(bags, spoiled, sample_weight=weights)
    assert (model.predict(bags[60:]) != Y[60:]).mean() < 0.2


def test_partial_fit_goes_on():
    bags, Y = sample_bags(n_bags=200)
    model = DeepMIML(**{**SMALL, "max_epochs": 3}, refit=False)
    model.partial_fit(bags[:60], Y[:60])
    before = (model.predict(bags[160:]) != Y[160:]).mean()
    for _ in range(12):
        model.partial_fit(bags[60:160], Y[60:160])
    assert (model.predict(bags[160:]) != Y[160:]).mean() <= before


def test_the_defaults_learn():
    bags, Y = sample_bags(n_bags=60)
    model = DeepMIML(random_state=0).fit(bags[:40], Y[:40])
    assert len(model.members_) == 5 and (model.predict(bags[40:]) != Y[40:]).mean() < 0.1


def test_the_transformer_learns_at_a_rate_of_its_own():
    data = load_dataset("digits", n_bags=160, random_state=0)
    quick = {"n_members": 1, "max_epochs": 12, "refit": False, "device": "cpu", "random_state": 0}

    def found(**settings):
        model = DeepMIML("transformer", **quick, **settings).fit(data.bags[:120], data.Y[:120])
        return average_precision(data.Y[120:], model.decision_function(data.bags[120:]))

    assert found() > 0.8 > found(learning_rate=6e-3)  # that of the other heads


def test_clear_errors():
    bags, Y = sample_bags(n_bags=20)
    with pytest.raises(ValueError, match="the head 'attention' knows 'softmax'"):
        DeepMIML(pooling="max").fit(bags, Y)
    with pytest.raises(ValueError, match="device of DeepMIML must be"):
        DeepMIML(device="gpu").fit(bags, Y)
    if not torch.cuda.is_available():
        with pytest.raises(BagwiseError, match="torch sees"):
            DeepMIML(device="cuda").fit(bags, Y)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("head", HEADS)
def test_gpu_and_processor_agree(head):
    bags, Y = sample_bags(n_bags=120)
    model = DeepMIML(head, **SMALL, device="cuda").fit(bags, Y)
    on_gpu = model.decision_function(bags)
    here = model.set_params(device="cpu").decision_function(bags)
    scale = np.abs(here).max()
    np.testing.assert_allclose(on_gpu, here, rtol=1e-4, atol=1e-4 * scale)
    again = DeepMIML(head, **SMALL, device="cuda").fit(bags, Y).decision_function(bags)
    np.testing.assert_array_equal(again, on_gpu)
