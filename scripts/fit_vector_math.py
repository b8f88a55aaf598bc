#!/usr/bin/env python3
"""Prints the coefficients of cpp/src/kernels/vec_math.h: near-minimax fits at Chebyshev nodes, in float64.

    python scripts/fit_vector_math.py

Each line names the fitted function, then its coefficients from the constant term upwards, rounded to float32, and the
relative error of the polynomial alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.polynomial import chebyshev, polynomial


def fit(function: Callable[[float], float], low: float, high: float, degree: int) -> np.ndarray:
    """Power-basis coefficients, constant term first, as float32."""
    nodes = np.cos((np.arange(4 * degree) + 0.5) * np.pi / (4 * degree))
    points = 0.5 * (high + low) + 0.5 * (high - low) * nodes
    series = chebyshev.Chebyshev.fit(points, [function(x) for x in points], degree, domain=[low, high])
    return series.convert(kind=polynomial.Polynomial).coef.astype(np.float32)


def show(name: str, coefficients: np.ndarray, error: float) -> None:
    print(f"{name}  (relative error {error:.1e})")
    for coefficient in coefficients:
        print(f"    {float(coefficient):.9g}f")


def fit_exp(degree: int = 6) -> None:
    """exp(r) = 1 + r + r^2 P(r) on |r| <= ln(2) / 2."""

    def tail(r: float) -> float:
        # (exp(r) - 1 - r) / r^2 by its series, which does not cancel near zero.
        return sum(r**k / math.factorial(k + 2) for k in range(20))

    half = math.log(2) / 2
    p = fit(tail, -half, half, degree - 2)
    r = np.linspace(-half, half, 10001)
    value = 1 + r + r * r * polynomial.polyval(r, p.astype(np.float64))
    show("exp: P(r)", p, float(np.max(np.abs(value / np.exp(r) - 1))))


def fit_tanh(limit: float = 0.625, degree: int = 4) -> None:
    """tanh(x) = x + x z P(z), z = x^2, on |x| <= limit."""

    def tail(z: float) -> float:
        if z < 1e-3:
            return -1 / 3 + z * (2 / 15 - z * (17 / 315 - z * 62 / 2835))
        x = math.sqrt(z)
        return (math.tanh(x) / x - 1) / z

    p = fit(tail, 0.0, limit * limit, degree)
    x = np.linspace(1e-3, limit, 10001)
    value = x + x * x * x * polynomial.polyval(x * x, p.astype(np.float64))
    show("tanh: P(z)", p, float(np.max(np.abs(value / np.tanh(x) - 1))))


def fit_erfc(degree: int = 9) -> None:
    """erfc(t) = u exp(-t^2 + P(u)), u = 1 / (1 + t / 2), for t >= 0; fitted up to t = 10."""

    def exponent(u: float) -> float:
        t = 2 / u - 2
        return math.log(math.erfc(t) / u) + t * t

    p = fit(exponent, 1 / 6, 1.0, degree)
    t = np.linspace(0, 9, 10001)
    u = 1 / (1 + t / 2)
    value = u * np.exp(-t * t + polynomial.polyval(u, p.astype(np.float64)))
    show("erfc: P(u)", p, float(np.max(np.abs(value / np.array([math.erfc(x) for x in t]) - 1))))


if __name__ == "__main__":
    fit_exp()
    fit_tanh()
    fit_erfc()
