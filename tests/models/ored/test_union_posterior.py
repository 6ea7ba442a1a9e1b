"""Posteriors given the union of labels, against enumeration of all assignments and exact rational sums."""

import itertools
import math
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise.models.ored.predict import METHODS, UnionPass, union_posterior

# Weights of a bag in which Algorithm 2 of the paper loses all digits: powers of ten, rows to be normalised.
ADVERSARIAL = [[0, 9, 12, 9], [15, 0, 0, 0], [0, 15, 12, 12], [0, 12, 9, 12]]


def label_matrix(sets, n_classes):
    Y = np.zeros((len(sets), n_classes), dtype=np.int8)
    for b, labels in enumerate(sets):
        Y[b, list(labels)] = 1
    return Y


def one_bag(logits, labels, **options):
    logits = np.asarray(logits, dtype=float)
    Y = label_matrix([labels], logits.shape[1])
    Q, loglik, status = union_posterior(logits, np.array([0, len(logits)]), Y, **options)
    return Q, loglik[0], status[0]


def enumerate_assignments(logits, labels):
    """Sum over every assignment of classes, C^n of them."""
    n, n_classes = logits.shape
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    J, total = np.zeros((n, n_classes)), 0.0
    for y in itertools.product(range(n_classes), repeat=n):
        if set(y) == set(labels):
            weight = math.prod(p[i, c] for i, c in enumerate(y))
            total += weight
            for i, c in enumerate(y):
                J[i, c] += weight
    return J / total, math.log(total)


def exact_sums(weights):
    """Posterior by rationals, all labels: unions of the instances before and after each."""
    n, k = len(weights), len(weights[0])
    full = (1 << k) - 1

    def push(d, row):
        out = {}
        for s, v in d.items():
            for c, w in enumerate(row):
                if w:
                    out[s | 1 << c] = out.get(s | 1 << c, 0) + v * w
        return out

    before, after = [{0: Fraction(1)}], [{0: Fraction(1)}]
    for i in range(n):
        before.append(push(before[-1], weights[i]))
        after.append(push(after[-1], weights[n - 1 - i]))
    total = before[n].get(full, 0)
    Q = np.empty((n, k))
    for i in range(n):
        for c in range(k):
            joint = sum(
                v * w
                for s, v in before[i].items()
                for t, w in after[n - 1 - i].items()
                if s | t | 1 << c == full
            )
            Q[i, c] = float(joint * weights[i][c] / total)
    return Q, total


def logarithmic_reference(logits, dtype=np.longdouble):
    """Forward and backward sums over sets with np.logaddexp in extended precision, every class in the bag."""
    x = np.asarray(logits, dtype=dtype)
    x = x - np.logaddexp.reduce(x, axis=1, keepdims=True)
    n, k = x.shape
    sets = np.arange(1 << k)
    A = np.full((n + 1, 1 << k), -np.inf, dtype=dtype)
    B = A.copy()
    A[0, 0] = B[n, -1] = 0
    for i in range(n):
        for c in range(k):
            has = sets[sets >> c & 1 == 1]
            # Sets with c are reached from themselves and from themselves without c.
            step = x[i, c] + np.logaddexp(A[i, has], A[i, has ^ (1 << c)])
            A[i + 1, has] = np.logaddexp(A[i + 1, has], step)
    Q = np.empty((n, k))
    for i in range(n - 1, -1, -1):
        for c in range(k):
            B[i] = np.logaddexp(B[i], x[i, c] + B[i + 1, sets | 1 << c])
        for c in range(k):
            joint = np.logaddexp.reduce(A[i] + B[i + 1, sets | 1 << c])
            Q[i, c] = np.exp(joint + x[i, c] - A[n, -1])
    return Q, float(A[n, -1])


@st.composite
def small_bags(draw, largest_logit):
    n_classes = draw(st.integers(1, 4))
    n = draw(st.integers(1, 5))
    labels = draw(st.sets(st.integers(0, n_classes - 1), min_size=1, max_size=min(n, n_classes)))
    scale = draw(st.sampled_from([0.1, 1.0, largest_logit / 3]))
    seed = draw(st.integers(0, 2**32 - 1))
    logits = np.clip(
        np.random.default_rng(seed).normal(size=(n, n_classes)) * scale, -largest_logit, largest_logit
    )
    return logits, labels


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=300, deadline=None)
@given(bag=small_bags(3.0))
def test_every_method_agrees_with_enumeration(method, bag):
    logits, labels = bag
    Q, loglik, status = one_bag(logits, labels, method=method)
    expected, expected_loglik = enumerate_assignments(logits, labels)
    assert status == 0
    np.testing.assert_allclose(Q, expected, atol=1e-9, rtol=0)
    assert loglik == pytest.approx(expected_loglik, abs=1e-9)
    assert (Q[:, [c for c in range(logits.shape[1]) if c not in labels]] == 0).all()


@settings(max_examples=1000, deadline=None)
@given(bag=small_bags(30.0))
def test_default_agrees_with_enumeration_to_twelve_digits(bag):
    logits, labels = bag
    Q, loglik, _ = one_bag(logits, labels)
    expected, expected_loglik = enumerate_assignments(logits, labels)
    np.testing.assert_allclose(Q, expected, atol=1e-11, rtol=0)
    assert loglik == pytest.approx(expected_loglik, abs=1e-12, rel=1e-12)


@settings(max_examples=300, deadline=None)
@given(
    exponents=st.integers(2, 6).flatmap(
        lambda n: st.integers(2, min(n, 4)).flatmap(
            lambda k: st.lists(st.lists(st.integers(0, 900), min_size=k, max_size=k), min_size=n, max_size=n)
        )
    ),
    spread=st.sampled_from([1, 5, 50]),
)
def test_default_agrees_with_rationals_however_small_the_probabilities(exponents, spread):
    exponents = [[e * spread // 50 for e in row] for row in exponents]
    Q, loglik, status = one_bag(-np.array(exponents) * math.log(2.0), range(len(exponents[0])))
    expected, total = exact_sums([[Fraction(1, 2**e) for e in row] for row in exponents])
    for row in exponents:
        total /= sum(Fraction(1, 2**e) for e in row)
    assert status == 0
    np.testing.assert_allclose(Q, expected, atol=1e-10, rtol=0)
    expected_loglik = math.log(total.numerator) - math.log(total.denominator)
    assert loglik == pytest.approx(expected_loglik, abs=1e-9, rel=1e-12)


def test_adversarial_bag_of_the_paper_algorithm():
    weights = [[Fraction(1, 10**e) for e in row] for row in ADVERSARIAL]
    expected, _ = exact_sums(weights)
    logits = -np.array(ADVERSARIAL) * math.log(10.0)
    for method in ("auto", "forward_backward", "wide", "forward"):
        np.testing.assert_allclose(one_bag(logits, range(4), method=method)[0], expected, atol=1e-12)
    wrong = one_bag(logits, range(4), method="substitution")[0]
    assert not np.abs(wrong - expected).max() < 0.1
    # Why the guard exists: the alternating sum alone is wrong here as well.
    assert not np.abs(one_bag(logits, range(4), method="inclusion_exclusion")[0] - expected).max() < 1e-9


@pytest.mark.parametrize("scale", [10, 40, 160])
def test_confident_instances(scale):
    rng = np.random.default_rng(scale)
    for _ in range(20):
        logits = np.clip(np.rint(scale * rng.normal(size=(8, 5)) * 4) / 4, -1000, 1000)
        expected, expected_loglik = logarithmic_reference(logits)
        Q, loglik, status = one_bag(logits, range(5))
        assert status == 0
        np.testing.assert_allclose(Q, expected, atol=1e-11, rtol=0)
        assert loglik == pytest.approx(expected_loglik, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("n, k", [(4, 3), (30, 6), (500, 5)])
@pytest.mark.parametrize("method", ["auto", "wide"])
def test_logits_of_plus_and_minus_one_thousand(n, k, method):
    rng = np.random.default_rng(n)
    for logits in (rng.choice([-1000.0, 1000.0], size=(n, k)), rng.uniform(-1000, 1000, size=(n, k))):
        # A label nobody wants: the posterior hangs on ratios of probabilities around e^-2000.
        logits[:, 0] = -1000.0 + rng.uniform(0, 3, size=n)
        expected, expected_loglik = logarithmic_reference(logits)
        Q, loglik, _ = one_bag(logits, range(k), method=method)
        np.testing.assert_allclose(Q, expected, atol=1e-10, rtol=0)
        assert loglik == pytest.approx(expected_loglik, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize(
    "n, k, scale", [(500, 8, 1), (1000, 4, 30), (500, 6, 300), (30, 10, 20), (12, 12, 3)]
)
def test_large_bags(n, k, scale):
    logits = np.random.default_rng(n + k).normal(size=(n, k)) * scale
    expected, expected_loglik = logarithmic_reference(logits)
    Q, loglik, status = one_bag(logits, range(k))
    assert status == 0
    np.testing.assert_allclose(Q, expected, atol=1e-10, rtol=0)
    assert loglik == pytest.approx(expected_loglik, rel=1e-12, abs=1e-10)


@pytest.mark.parametrize("scale", [1, 100])
def test_sixteen_labels_in_thirty_instances(scale):
    logits = np.random.default_rng(0).normal(size=(30, 16)) * scale
    Q, loglik, status = one_bag(logits, range(16))
    assert status == 0
    # Extended precision takes ten times as long, and doubles are good to 1e-12 here.
    expected, expected_loglik = logarithmic_reference(logits, np.float64)
    np.testing.assert_allclose(Q, expected, atol=1e-10, rtol=0)
    assert loglik == pytest.approx(expected_loglik, rel=1e-12, abs=1e-10)


@pytest.mark.parametrize("method", ["forward_backward", "wide"])
def test_checkpointed_sums_equal_those_kept_whole(method):
    # 4200 * 2^9 sums exceed the limit, so that most rows are computed twice.
    logits = np.random.default_rng(1).normal(size=(4200, 9)) * 4
    logits[:, 0] -= 12
    expected = one_bag(logits, range(9), method="inclusion_exclusion")
    Q, loglik, _ = one_bag(logits, range(9), method=method)
    np.testing.assert_allclose(Q, expected[0], atol=1e-9, rtol=0)
    assert loglik == pytest.approx(expected[1], abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_one_and_two_instances(method):
    Q, loglik, status = one_bag([[1.0, 2.0, 0.0]], [1], method=method)
    assert Q.tolist() == [[0, 1, 0]] and status == 0
    assert loglik == pytest.approx(2 - np.logaddexp.reduce([1.0, 2.0, 0.0]))
    logits = np.array([[1.0, 2.0, 0.0], [0.0, 0.5, 3.0]])
    Q, loglik, _ = one_bag(logits, [0, 2], method=method)
    expected, expected_loglik = enumerate_assignments(logits, [0, 2])
    np.testing.assert_allclose(Q, expected, atol=1e-12)
    assert loglik == pytest.approx(expected_loglik)


@pytest.mark.parametrize("method", METHODS)
def test_impossible_bags_get_the_restricted_prior(method):
    logits = np.log([[0.5, 0.3, 0.2]])
    Q, loglik, status = one_bag(logits, [0, 1], method=method)
    np.testing.assert_allclose(Q, [[0.625, 0.375, 0]])
    assert loglik == -np.inf and status == 1
    Q, loglik, status = one_bag(logits, [], method=method)
    assert (Q == 0).all() and loglik == -np.inf and status == 1


def test_empty_bags():
    Y = label_matrix([[], [1], [0]], 2)
    Q, loglik, status = union_posterior(np.zeros((1, 2)), np.array([0, 0, 0, 1]), Y)
    assert status.tolist() == [0, 1, 0]
    np.testing.assert_allclose(loglik, [0, -np.inf, math.log(0.5)])
    assert Q.tolist() == [[1, 0]]


def test_zero_probabilities():
    inf = np.inf
    # Nobody can be label 1: impossible. In the second bag only one assignment is left.
    logits = np.array([[0, -inf, 0], [0, -inf, 0], [0, -inf, 0], [0, 0, -inf]])
    Q, loglik, status = union_posterior(logits, np.array([0, 2, 4]), label_matrix([[0, 1], [0, 1]], 3))
    assert status.tolist() == [1, 0]
    np.testing.assert_allclose(Q, [[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0]])
    np.testing.assert_allclose(loglik, [-inf, math.log(0.25)])
    # An instance without any label of the bag.
    Q, loglik, status = one_bag([[-inf, -inf, 0.0], [0.0, 0.0, 0.0]], [0, 1])
    assert status == 1 and np.isfinite(Q).all()


def test_too_many_labels_are_flagged():
    logits = np.random.default_rng(0).normal(size=(6, 5))
    Q, loglik, status = one_bag(logits, [0, 1, 2, 4], max_labels=3)
    prior = np.exp(logits[:, [0, 1, 2, 4]])
    np.testing.assert_allclose(Q[:, [0, 1, 2, 4]], prior / prior.sum(axis=1, keepdims=True))
    assert status == 2 and np.isnan(loglik)
    out = np.ones_like(logits)
    union_residual(logits, np.array([0, 6]), label_matrix([[0, 1, 2, 4]], 5), np.ones(1), out, max_labels=3)
    assert (out == 0).all()


def union_residual(logits, offsets, Y, weights, out, **how):
    """Log-likelihood and status of a pass that fills ``out`` with residuals."""
    return UnionPass(offsets, Y, **how).run(logits, weights, residual=True, out=out)[1:]


def random_bags(seed, n_bags=60, n_classes=7, scale=2.0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 12, size=n_bags)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    Y = (rng.random((n_bags, n_classes)) < 0.4).astype(np.int8)
    return rng.normal(size=(offsets[-1], n_classes)) * scale, offsets, Y


@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_residual_is_the_weighted_difference_of_posterior_and_prior(scale):
    logits, offsets, Y = random_bags(3, scale=scale)
    weights = np.random.default_rng(1).random(len(Y)) * 3
    weights[::7] = 0
    before = logits.copy()
    out = np.full_like(logits, np.nan)
    loglik, status = union_residual(logits, offsets, Y, weights, out)
    Q, expected_loglik, expected_status = union_posterior(logits, offsets, Y)
    p = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    used = (status == 0) * weights
    np.testing.assert_allclose(out, np.repeat(used, np.diff(offsets))[:, None] * (Q - p), atol=1e-13)
    skipped = weights == 0
    assert (status[skipped] == 3).all() and (loglik[skipped] == 0).all()
    np.testing.assert_array_equal(status[~skipped], expected_status[~skipped])
    np.testing.assert_array_equal(loglik[~skipped], expected_loglik[~skipped])
    np.testing.assert_array_equal(logits, before)


def test_residual_is_the_gradient():
    logits, offsets, Y = random_bags(5, n_bags=12)
    weights = np.linspace(0.5, 2, len(Y))
    out = np.empty_like(logits)
    _, status = union_residual(logits, offsets, Y, weights, out)

    def value(x):
        loglik = union_posterior(x, offsets, Y)[1]
        return (weights * loglik)[status == 0].sum()

    for i, c in itertools.product(range(0, len(logits), 5), range(logits.shape[1])):
        step = np.zeros_like(logits)
        step[i, c] = 1e-5
        assert out[i, c] == pytest.approx((value(logits + step) - value(logits - step)) / 2e-5, abs=1e-8)


@pytest.mark.parametrize("n_threads", [2, 5, 100])
def test_threads_change_nothing(n_threads):
    for scale in (1.0, 300.0):
        logits, offsets, Y = random_bags(11, n_bags=40, scale=scale)
        for a, b in zip(
            union_posterior(logits, offsets, Y), union_posterior(logits, offsets, Y, n_threads=n_threads)
        ):
            np.testing.assert_array_equal(a, b)


def test_read_only_input():
    logits, offsets, Y = random_bags(2, n_bags=10)
    expected = union_posterior(logits, offsets, Y)
    for array in (logits, offsets, Y):
        array.flags.writeable = False
    for a, b in zip(union_posterior(logits, offsets, Y), expected):
        np.testing.assert_array_equal(a, b)


def test_errors_name_what_is_wrong():
    logits, offsets, Y = random_bags(2, n_bags=10)
    with pytest.raises(ValueError, match="method must be one of"):
        union_posterior(logits, offsets, Y, method="magic")
    with pytest.raises(ValueError, match="max_labels must lie in"):
        union_posterior(logits, offsets, Y, max_labels=60)
    with pytest.raises(ValueError, match="expected Y of shape"):
        union_posterior(logits, offsets, Y[:-1])
    logits[4, 2] = np.nan
    with pytest.raises(ValueError, match="in row 4"):
        union_posterior(logits, offsets, Y)


def test_nan_logits_are_not_hidden_in_the_training_pass():
    logits = np.zeros((3, 4))
    logits[1, 1] = np.nan
    out = np.empty_like(logits)
    loglik, _ = union_residual(logits, np.array([0, 3]), label_matrix([[0, 1]], 4), np.ones(1), out)
    assert np.isnan(loglik[0])


def test_runs_without_compilation():
    code = (
        "import numpy as np\n"
        "from bagwise.models.ored.predict import METHODS, union_posterior\n"
        "x = np.log([[.8, .1, .1], [.5, .4, .1], [.2, .2, .6]])\n"
        "for m in METHODS:\n"
        "    for Y in ([[1, 1, 0]], [[1, 1, 1]]):\n"
        "        Q, l, s = union_posterior(x, np.array([0, 3]), np.array(Y, dtype=np.int8), method=m)\n"
        "        ok = np.allclose(Q.sum(axis=1), 1) and s[0] == 0\n"
        "        if not ok: raise SystemExit(m)\n"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, env=environment, timeout=120)


def test_a_fit_compiles_each_loop_once_and_no_rare_algorithm(tmp_path):
    """Constants as arguments and read-only twins would compile a second time."""
    code = (
        "from collections import Counter\n"
        "from numba.core import event\n"
        "from bagwise import load_dataset\n"
        "from bagwise.models import ORedLogisticRegression\n"
        "data = load_dataset('digits', n_bags=60)\n"
        "with event.install_recorder('numba:compile') as seen:\n"
        "    ORedLogisticRegression(max_iter=5).fit(data.bags, data.Y).predict(data.bags)\n"
        "loops = [e.data['dispatcher'].py_func for _, e in seen.buffer if e.is_start]\n"
        "loops = Counter(f'{f.__module__}.{f.__name__}' for f in loops)\n"
        "assert 'bagwise.models.ored.kernels_cover.forward_backward' in loops, loops\n"
        "twice = [name for name, times in loops.items() if times > 1 and name.startswith('bagwise')]\n"
        "rare = [name for name in loops if 'many' in name or 'wide' in name or 'paper' in name]\n"
        "if twice or rare: raise SystemExit(f'compiled twice: {twice}, though rare: {rare}')\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, env=environment
    )
    assert run.returncode == 0, run.stderr
