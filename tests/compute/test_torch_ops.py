"""Tensor twins of the segment kernels: the same answers on the same bags, and right gradients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'bagwise[torch]')")

from bagwise.compute import segment, torch_ops  # noqa: E402

NAMES = [name for name in segment.__all__ if name != "segment_argmax"]
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


@st.composite
def ragged(draw):
    sizes = draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 7, 40]), min_size=0, max_size=12))
    k = draw(st.sampled_from([1, 2, 5, 33]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
    X = rng.standard_normal((offsets[-1], k)) * draw(st.sampled_from([1.0, 100.0]))
    if draw(st.booleans()):
        X = np.round(X)  # ties
    if draw(st.booleans()):
        values = np.array([np.inf, -np.inf, np.nan, 0.0])
        X = np.where(rng.random(X.shape) < 0.2, rng.choice(values, X.shape), X)
    return X, offsets


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=60, deadline=None)
@given(ragged())
def test_the_same_answers_as_the_compiled_kernels(device, data):
    X, offsets = data
    tensor, places = torch.tensor(X, device=device), torch.tensor(offsets, device=device)
    with np.errstate(all="ignore"):
        for name in segment.__all__:
            expected = getattr(segment, name)(X, offsets)
            got = getattr(torch_ops, name)(tensor, places).cpu().numpy()
            assert got.dtype == expected.dtype and got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*NAMES, "spread"])
def test_gradients_by_finite_differences(name, device):
    rng = np.random.default_rng(0)
    offsets = torch.tensor([0, 3, 4, 9], device=device)
    rows = 3 if name == "spread" else 9
    X = torch.tensor(rng.permutation(rows * 2).reshape(rows, 2) / 3.0, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: getattr(torch_ops, name)(x, offsets), (X,))


@pytest.mark.parametrize("device", DEVICES)
def test_one_column_and_empty_bags(device):
    offsets = torch.tensor([0, 0, 2, 2], device=device)
    x = torch.tensor([1.0, 3.0], device=device, requires_grad=True)
    for name in NAMES:
        answer = getattr(torch_ops, name)(x, offsets)
        matrix = getattr(torch_ops, name)(x[:, None], offsets)
        torch.testing.assert_close(answer, matrix[:, 0], equal_nan=True)
    torch_ops.segment_max(x, offsets)[1].backward()
    assert x.grad.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("device", DEVICES)
def test_long_bags_in_pieces(device):
    rng = np.random.default_rng(1)
    offsets = np.array([0, 5000, 5000, 5003, 20000, 20000])
    X = rng.standard_normal((20000, 2))
    tensor, places = torch.tensor(X, device=device), torch.tensor(offsets, device=device)
    pieces, of_bags = torch_ops._pieces(places)
    assert int(pieces.diff().max()) <= torch_ops._PIECE and int(of_bags[-1]) == len(pieces) - 1
    of = torch_ops.Segments.of
    two_steps = torch_ops._reduce(torch_ops._reduce(tensor, of(pieces), "sum"), of(of_bags), "sum")
    np.testing.assert_allclose(two_steps.cpu(), segment.segment_sum(X, offsets), rtol=1e-9)
    np.testing.assert_allclose(torch_ops.segment_max(tensor, places).cpu(), segment.segment_max(X, offsets))


@pytest.mark.parametrize("device", DEVICES)
def test_linear_relu_and_its_gradients(device):
    rng = np.random.default_rng(2)
    X, weight, bias = (
        torch.tensor(rng.normal(size=s), device=device, requires_grad=True) for s in [(7, 3), (4, 3), 4]
    )
    torch.testing.assert_close(torch_ops.linear_relu(X, weight, bias), torch.relu(X @ weight.T + bias))
    assert torch.autograd.gradcheck(torch_ops.linear_relu, (X, weight, bias))


@pytest.mark.parametrize("device", DEVICES)
def test_attended_is_softmax_and_sum(device):
    torch.manual_seed(0)
    offsets = torch.tensor([0, 3, 3, 4, 9], device=device)
    logits, scores = (torch.randn(9, 2, device=device, dtype=torch.float64, requires_grad=True) for _ in "ab")
    plain = torch_ops.segment_sum(torch_ops.segment_softmax(logits, offsets) * scores, offsets)
    torch.testing.assert_close(torch_ops.attended(logits, scores, offsets), plain, rtol=0, atol=0)
    assert torch.autograd.gradcheck(lambda a, b: torch_ops.attended(a, b, offsets), (logits, scores))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("share", [0.5, 0.2])
def test_dropout_leaves_out_a_share_and_its_gradients(device, share):
    torch.manual_seed(0)
    X = torch.randn(801, 3, device=device, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(41, 3, device=device, dtype=torch.float64, requires_grad=True)
    bias = torch.ones(41, device=device, dtype=torch.float64, requires_grad=True)
    out = torch_ops.linear_relu(X, weight, bias, dropout=share)
    whole = torch.relu(X @ weight.T + bias)
    kept = (out != 0).double()
    positive = whole > 0
    rows, columns = (kept[positive].mean() - (1 - share)).abs(), (kept * positive).sum(0) / positive.sum(0)
    assert rows < 0.01 and (columns - (1 - share)).abs().max() < 0.1
    expected = whole * kept / (1 - share)
    torch.testing.assert_close(out, expected)
    pull = torch.randn_like(out)
    for got, wanted in zip(*(torch.autograd.grad(o, (X, weight, bias), pull) for o in (out, expected))):
        torch.testing.assert_close(got, wanted)
    torch.manual_seed(1)
    first = torch_ops.linear_relu(X, weight, bias, dropout=share)
    torch.manual_seed(1)
    torch.testing.assert_close(torch_ops.linear_relu(X, weight, bias, dropout=share), first, rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_gates_and_scores_and_their_gradients(device):
    rng = np.random.default_rng(4)
    wide = torch.tensor(rng.normal(size=(50, 16)), device=device, dtype=torch.float32)
    for_gates = torch.tensor(rng.normal(size=(50, 5)), device=device, dtype=torch.float32)
    for_scores = torch.tensor(rng.normal(size=(50, 3)), device=device, dtype=torch.float32)

    def plain(P):
        return torch.tanh(P[:, :5]) * torch.sigmoid(P[:, 5:10]), P[:, 10:13]

    answers = []
    for function in (lambda P: torch_ops.gated(P, 5, 3), plain):
        P = wide.clone().requires_grad_()
        gates, scores = function(P)
        ((gates * for_gates).sum() + (scores * for_scores).sum()).backward()
        answers.append((gates, scores, P.grad))
    torch.testing.assert_close(answers[0], answers[1])
