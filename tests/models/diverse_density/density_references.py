"""The objectives of diverse density as plain loops."""

import numpy as np
from scipy.optimize import minimize


def plain_q(x, h, s):
    return sum(s[k] ** 2 * (x[k] - h[k]) ** 2 for k in range(len(h)))


def plain_density(theta, bags, y):
    """Negative logarithm of the diverse density, instance by instance."""
    h, s = np.split(theta, 2)
    value = 0.0
    for bag, label in zip(bags, y):
        p = [np.exp(-plain_q(x, h, s)) for x in bag]
        none = np.prod([max(1.0 - v, 1e-10) for v in p])
        value -= np.log(max(1.0 - none, 1e-300) if label else none)
    return value


def scipy_minimum(function, start, limit):
    bounds = [(None, None) if np.isinf(m) else (-m, m) for m in limit]
    return minimize(function, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500})
