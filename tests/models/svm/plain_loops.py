"""MIMLBoost and D-MIMLSVM as their papers tell them, in loops over bags and labels: slow, and easy to check.

Used by the tests of the two, and by ``benchmarks/baseline_methods.py`` for the ratio of times.
"""

import math

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from sklearn.svm import SVC


def boosted_votes(bags, T, *, gamma, C, n_rounds, rng):
    """Machines and the weights of their votes; every pair of a bag and a label is a bag of its own."""
    n_bags, n_labels = T.shape
    sizes = [len(bag) for bag in bags]
    places = [label / max(n_labels - 1, 1) for label in range(n_labels)]
    rows, classes, pairs = [], [], []
    for b in range(n_bags):
        for x in bags[b]:
            for label in range(n_labels):
                rows.append([*x, places[label]])
                classes.append(T[b, label])
                pairs.append((b, label))
    rows, classes = np.array(rows), np.array(classes)
    W = np.full((n_bags, n_labels), 1.0 / (n_bags * n_labels))
    machines, votes = [], []
    for _ in range(n_rounds):
        shares = np.array([W[b, label] / sizes[b] for b, label in pairs])
        drawn = np.repeat(np.arange(len(rows)), rng.multinomial(len(rows), shares / shares.sum()))
        machine = SVC(kernel="rbf", gamma=gamma, C=C).fit(rows[drawn], classes[drawn])
        wrong = np.zeros((n_bags, n_labels))
        for b in range(n_bags):
            for label in range(n_labels):
                pseudo_bag = np.column_stack([bags[b], np.full(sizes[b], places[label])])
                h = np.where(machine.decision_function(pseudo_bag) >= 0, 1.0, -1.0)
                wrong[b, label] = (h != T[b, label]).mean()
        if (wrong <= 0.5).all():
            machines.append(machine)
            votes.append(1.0)
            break
        loss = minimize_scalar(lambda c, W=W, e=wrong: (W * np.exp((2 * e - 1) * c)).sum(), bounds=(-20, 20))
        if loss.x <= 0:
            break
        machines.append(machine)
        votes.append(loss.x)
        W = W * np.exp((2 * wrong - 1) * loss.x)
        W /= W.sum()
    return machines, votes


def boosted_scores(machines, votes, bags, n_labels):
    """Sum of the votes of all instances, pair by pair."""
    S = np.zeros((len(bags), n_labels))
    for b, bag in enumerate(bags):
        for label in range(n_labels):
            rows = np.column_stack([bag, np.full(len(bag), label / max(n_labels - 1, 1))])
            for machine, c in zip(machines, votes):
                S[b, label] += c * np.where(machine.decision_function(rows) >= 0, 1.0, -1.0).sum()
    return S


def set_kernel_of_lists(first, second, gamma):
    """Averaged set kernel, pair by pair of instances."""
    K = np.zeros((len(first), len(second)))
    for i, A in enumerate(first):
        for j, B in enumerate(second):
            total = 0.0
            for a in A:
                for b in B:
                    total += math.exp(-gamma * float(((a - b) ** 2).sum()))
            K[i, j] = total / (len(A) * len(B))
    return K


def d_miml_svm(bags, T, *, gamma, C, alignment, sharing, n_rounds=5, widths=(0.1, 0.01)):
    """The objective over an expansion in all bags and instances, by rounds that fix the best instances.

    Each round replaces the largest value of a bag, where it enters with a minus, by that of the instance that
    is the best now (CCCP); hinge and absolute value are smoothed over a shrinking width. Returns the lowest
    value of the objective itself, and values of bags and instances.
    """
    n_bags, n_labels = T.shape
    alone = [row[None, :] for bag in bags for row in bag]
    everything = list(bags) + alone
    K = set_kernel_of_lists(everything, everything, gamma)
    firsts = np.concatenate([[0], np.cumsum([len(bag) for bag in bags])])
    G = np.eye(n_labels) + sharing / n_labels
    A = np.zeros((len(K), n_labels))

    def soft(u, width):
        """Smoothed max(0, u) and its slope."""
        if u <= 0:
            return 0.0, 0.0
        return (u * u / (2 * width), u / width) if u < width else (u - width / 2, 1.0)

    def smooth(flat, best, width):
        A = flat.reshape(len(K), n_labels)
        F = K @ A
        value, slopes = 0.5 * float((A * (F @ G)).sum()), np.zeros_like(F)
        for b in range(n_bags):
            for label in range(n_labels):
                v, s = soft(1 - T[b, label] * F[b, label], width)
                value += C * v
                slopes[b, label] -= C * s * T[b, label]
                # the larger of f(bag) - f(best now) and max f(x) - f(bag)
                top = (
                    n_bags + firsts[b] + int(np.argmax(F[n_bags + firsts[b] : n_bags + firsts[b + 1], label]))
                )
                low, high = F[b, label] - F[best[b, label], label], F[top, label] - F[b, label]
                v, s = soft(low - high, width)
                value += C * alignment * (high + v)
                slopes[top, label] += C * alignment * (1 - s)
                slopes[b, label] += C * alignment * (2 * s - 1)
                slopes[best[b, label], label] -= C * alignment * s
        return value, (K @ (A @ G + slopes)).ravel()

    def objective(A):
        F = K @ A
        value = 0.5 * float((A * (F @ G)).sum())
        for b in range(n_bags):
            for label in range(n_labels):
                largest = F[n_bags + firsts[b] : n_bags + firsts[b + 1], label].max()
                value += C * max(0.0, 1 - T[b, label] * F[b, label])
                value += C * alignment * abs(F[b, label] - largest)
        return value

    lowest, kept = np.inf, A
    for _ in range(n_rounds):
        F, best = K @ A, np.zeros((n_bags, n_labels), dtype=int)
        for b in range(n_bags):
            for label in range(n_labels):
                inside = F[n_bags + firsts[b] : n_bags + firsts[b + 1], label]
                best[b, label] = n_bags + firsts[b] + int(np.argmax(inside))
        for width in widths:
            found = minimize(
                smooth, A.ravel(), (best, width), jac=True, method="L-BFGS-B", options={"maxiter": 500}
            )
            A = found.x.reshape(A.shape)
        value = objective(A)
        if value >= lowest * (1 - 1e-4):
            break
        lowest, kept = value, A
    F = K @ kept
    return lowest, F[:n_bags], F[n_bags:]
