"""The mathematics of the infinite relational model: dense, slow, straight from the definitions.

A second implementation for the tests, which shares nothing with the package: every fast kernel is
compared with a function of this file. Equations are cited by their LaTeX label in the paper,
"section" means a section of ``MODEL.md``, which wins where the two disagree.

Conventions
    X         (N1, N2) cells, 0 or 1; what stands in an unseen cell is ignored
    observed  (N1, N2), 0 = unseen cell
    kind      "bipartite", "directed" (the diagonal counts where it is observed) or "undirected"
              (X and observed symmetric, pairs i < j once, the diagonal never counts)
    q         memberships per domain: [q_row (N1, K1), q_col (N2, K2)], or [q (N, K)] in one domain
    labels    hard memberships, one integer sequence per domain
    a, b      Beta prior of the blocks, floats or (K1, K2) arrays (symmetric if undirected)
    alpha     concentrations, one per domain

Tables of an undirected relation are symmetric: entries (k, l) and (l, k) both hold the count of the
one unordered block {k, l}, every pair of objects counted once. ``each_block_once`` flattens them.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import betaln, digamma, gammaln, logsumexp, polygamma, xlogy

Array = np.ndarray
Real = float | Array  # one value shared by all blocks, or one per block


# Cells, objects and blocks


def masks(X: Array, observed: Array, kind: str) -> tuple[Array, Array]:
    """Links and observed non-links as 0/1 arrays, every cell that counts exactly once."""
    seen = np.asarray(observed) != 0
    if kind == "undirected":
        seen = np.triu(seen, 1)
    links = seen & (np.asarray(X) == 1)
    return links.astype(float), (seen & ~links).astype(float)


def one_hot(labels: Sequence[int], K: int) -> Array:
    """(len(labels), K) memberships of hard labels."""
    return np.eye(K)[np.asarray(labels, dtype=int)]


def sides(q: list[Array], kind: str) -> tuple[Array, Array]:
    """Memberships of the objects that index rows and columns (the same ones in one domain)."""
    return (q[0], q[1]) if kind == "bipartite" else (q[0], q[0])


def pair_probability(q: list[Array], kind: str) -> Array:
    """E[z_ik z_jl], shape (N1, N2, K1, K2); an object is not independent of itself (section 11)."""
    q_row, q_col = sides(q, kind)
    both = np.einsum("ik,jl->ijkl", q_row, q_col)
    if kind != "bipartite":
        for i, q_i in enumerate(q_row):
            both[i, i] = np.diag(q_i)
    return both


def unordered(table: Array) -> Array:
    """Symmetric table of unordered blocks from the sums over ordered ones."""
    return table + table.T - np.diag(np.diag(table))


def each_block_once(table: Array, kind: str) -> Array:
    """The entries of a block table as a vector: all of them, or those with k <= l if undirected."""
    return table[np.triu_indices(len(table))] if kind == "undirected" else table.ravel()


def touches(shape: tuple[int, int], kind: str, domain: int, i: int) -> Array:
    """Which cells belong to object ``i`` of ``domain``: its row, its column, or both."""
    mine = np.zeros(shape, dtype=bool)
    if domain == 0:
        mine[i] = True
    if domain == 1 or kind != "bipartite":
        mine[:, i] = True
    return mine


def put(q: list[Array], domain: int, i: int, k: int) -> list[Array]:
    """Copy of the memberships with z_i = k for certain."""
    q = [each.copy() for each in q]
    q[domain][i] = np.arange(q[domain].shape[1]) == k
    return q


# Counts


def counts(X: Array, observed: Array, q: list[Array], kind: str) -> tuple[Array, Array]:
    """Expected links n and observed non-links N of every block (eq:IRM_2dom_CVB_n_N_kl_E).

    Sections 3 and 11; the sum over cells of E[z_ik z_jl].
    """
    both = pair_probability(q, kind)
    n, N = (np.einsum("ij,ijkl->kl", y, both) for y in masks(X, observed, kind))
    return (unordered(n), unordered(N)) if kind == "undirected" else (n, N)


def brings(
    X: Array, observed: Array, q: list[Array], kind: str, domain: int, i: int, k: int
) -> tuple[Array, Array]:
    """Expected links and non-links object ``i`` adds to every block given z_i = k.

    eq:IRM_2dom_CVB_nN_1kl_approx_plus, eq:IRM_2dom_CVB_nN_2kl_approx_plus; section 11.
    """
    mine = observed * touches(X.shape, kind, domain, i)
    return counts(X, mine, put(q, domain, i, k), kind)


def counts_without(
    X: Array, observed: Array, q: list[Array], kind: str, domain: int, i: int
) -> tuple[Array, Array]:
    """Counts with object ``i`` and all its cells removed (eq:IRM_2dom_CVB_n_1kl_approx)."""
    return counts(X, observed * ~touches(X.shape, kind, domain, i), q, kind)


def tail(m: Array) -> Array:
    """M_k, the members of later clusters (eq:IRM_2dom_CVB_M_1k_2l)."""
    return np.array([np.sum(m[k + 1 :]) for k in range(len(m))])


# Priors over partitions


def stick_log_prior(m: Array, alpha: float) -> Array:
    """log p(z_i = k | rest) with the last stick 1; ``m`` excludes object i (section 4).

    eq:IRM_2dom_CVB_z_1_prior with its erratum.
    """
    m = np.asarray(m, dtype=float)
    M, K = tail(m), len(m)
    stop = np.log(m + 1) - np.log(m + M + alpha + 1)
    go_on = np.log(M + alpha) - np.log(m + M + alpha + 1)
    return np.array([(stop[k] if k < K - 1 else 0.0) + go_on[:k].sum() for k in range(K)])


def stick_log_probability(m: Array, alpha: float) -> float:
    """log p(Z) of the truncated sticks, v_K = 1 (eq:IRM_2dom_CVB_z_1_marginal and erratum)."""
    m, M = np.asarray(m, dtype=float)[:-1], tail(m)[:-1]
    return float(np.sum(betaln(1 + m, alpha + M) - betaln(1, alpha)))


def crp_log_probability(labels: Sequence[int], alpha: float) -> float:
    """log CRP(z | alpha) of the partition that ``labels`` draw (section 10; eq:CRP_def)."""
    m = np.unique(np.asarray(labels), return_counts=True)[1]
    return float(
        len(m) * math.log(alpha) + gammaln(m).sum() + gammaln(alpha) - gammaln(alpha + len(labels))
    )


# CVB0


def log_prior_of_object(q: list[Array], domain: int, i: int, alpha: Sequence[float]) -> Array:
    """``stick_log_prior`` of object ``i`` at the expected sizes of the others."""
    return stick_log_prior(np.delete(q[domain], i, axis=0).sum(axis=0), alpha[domain])


def cvb0_log_posterior(
    X: Array,
    observed: Array,
    q: list[Array],
    kind: str,
    domain: int,
    i: int,
    a: Real,
    b: Real,
    alpha: Sequence[float],
) -> Array:
    """log q(z_i = k) up to a constant, (K,) (eq:IRM_2dom_CVB_lowerbound_z_1i_posterior, order 0).

    Prior of section 4 plus eq:IRM_2dom_CVB_z_1_likelihood at expected counts (sections 5 and 11).
    """
    log_q = log_prior_of_object(q, domain, i, alpha)
    n_rest, N_rest = counts_without(X, observed, q, kind, domain, i)
    for k in range(len(log_q)):
        n_plus, N_plus = brings(X, observed, q, kind, domain, i, k)
        gain = betaln(a + n_rest + n_plus, b + N_rest + N_plus) - betaln(a + n_rest, b + N_rest)
        log_q[k] += each_block_once(gain, kind).sum()
    return log_q


# Moments of the counts


def without_or_fixed(
    X: Array,
    observed: Array,
    q: list[Array],
    kind: str,
    domain: int | None,
    i: int | None,
    k: int | None,
) -> tuple[Array, list[Array]]:
    """``observed`` and ``q`` with object ``i`` removed (k is None) or put into cluster ``k``."""
    if i is None:
        return observed, q
    domain = domain or 0
    if k is None:
        return observed * ~touches(X.shape, kind, domain, i), put(q, domain, i, 0)
    return observed, put(q, domain, i, k)


def with_totals(x1: Array, x0: Array) -> dict[str, Array]:
    """The three masks whose sums are n, N and T."""
    return {"n": x1, "N": x0, "T": x1 + x0}


def labelings(sizes: Sequence[int], K: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
    """Every assignment of the objects of all domains to clusters 0..K-1."""
    per_domain = [itertools.product(range(c), repeat=s) for s, c in zip(sizes, K, strict=True)]
    return (list(labels) for labels in itertools.product(*per_domain))


def count_moments(
    X: Array,
    observed: Array,
    q: list[Array],
    kind: str,
    domain: int | None = None,
    i: int | None = None,
    k: int | None = None,
) -> dict[str, dict[str, Array]]:
    """Mean and variance of n, N, T under independent z ~ q, by enumerating all assignments.

    ``result["mean"]["n"]``, ``result["variance"]["T"]``, ... With ``i`` and ``k``, object i is in
    cluster k for certain; with ``i`` alone, it and its cells are removed.
    """
    observed, q = without_or_fixed(X, observed, q, kind, domain, i, k)
    weights, tables = [], []
    for labels in labelings([len(each) for each in q], [each.shape[1] for each in q]):
        chosen = [each[np.arange(len(each)), list(z)] for each, z in zip(q, labels, strict=True)]
        weight = math.prod(float(each.prod()) for each in chosen)
        if weight > 0:
            weights.append(weight)
            tables.append(hard_counts(X, observed, labels, [e.shape[1] for e in q], kind))
    w, t = np.array(weights), np.array(tables)  # (S,), (S, 3, K1, K2)
    mean = np.einsum("s,stkl->tkl", w, t)
    variance = np.einsum("s,stkl->tkl", w, (t - mean) ** 2)
    names = ("n", "N", "T")
    return {
        "mean": dict(zip(names, mean, strict=True)),
        "variance": dict(zip(names, variance, strict=True)),
    }


def hard_counts(
    X: Array, observed: Array, labels: Sequence[Sequence[int]], K: Sequence[int], kind: str
) -> tuple[Array, Array, Array]:
    """n, N and T of hard labels, counted (eq:IRM_2dom_Gibbs_n_N_kl_def)."""
    z = [one_hot(each, c) for each, c in zip(labels, K, strict=True)]
    z_row, z_col = sides(z, kind)
    n, N = (z_row.T @ y @ z_col for y in masks(X, observed, kind))
    if kind == "undirected":
        n, N = unordered(n), unordered(N)
    return n, N, n + N


def exact_variance(
    X: Array,
    observed: Array,
    q: list[Array],
    kind: str,
    domain: int | None = None,
    i: int | None = None,
    k: int | None = None,
) -> dict[str, Array]:
    """Variance tables of n, N and T in closed form; equals ``count_moments(...)["variance"]``."""
    observed, q = without_or_fixed(X, observed, q, kind, domain, i, k)
    formula = bipartite_variance if kind == "bipartite" else one_domain_variance
    return {name: formula(y, q, kind) for name, y in with_totals(*masks(X, observed, kind)).items()}


def bipartite_variance(y: Array, q: list[Array], kind: str) -> Array:
    """The three sums of section 6 for the mask ``y`` (eq:IRM_2dom_CVB_n_kl_V has only the last)."""
    p, r = q
    U, W = y @ r, y.T @ p  # (N1, K2), (N2, K1)
    s_p, s_r = p * (1 - p), r * (1 - r)
    return s_p.T @ U**2 + (W**2).T @ s_r + s_p.T @ y @ s_r


def one_domain_variance(y: Array, q: list[Array], kind: str) -> Array:
    """Variance of sum_ij y_ij z_ik z_jl over the objects of one domain, block by block.

    The count of a block is S = sum_i A_i(z_i) + sum_{i<j} F_ij(z_i, z_j), where F_ij holds both
    cells of the pair and A_i a seen self link. The objects are independent, so by the Hoeffding
    decomposition V[S] is the sum over objects of V[E[S | z_i]] (first order), plus the sum over
    pairs of E[F^2] - E[E[F | z_i]^2] - E[E[F | z_j]^2] + E[F]^2 (what the pair has of its own).
    """
    K = q[0].shape[1]
    V = np.zeros((K, K))
    for k, l in itertools.product(range(K), repeat=2):
        A, F = block_functions(y, kind, K, k, l)
        V[k, l] = decomposed_variance(A, F, q[0])
    return V


def block_functions(y: Array, kind: str, K: int, k: int, l: int) -> tuple[Array, Array]:
    """A (N, K) and F (N, N, K, K): what z_i = c, and z_i = c with z_j = d, put into block (k, l).

    F[i, j, c, d] = F[j, i, d, c] speaks of the pair {i, j}.
    """
    hit = np.zeros((K, K))
    hit[k, l] = 1
    A = np.outer(np.diag(y), np.diag(hit))
    if kind == "undirected":
        F = np.einsum("ij,cd->ijcd", y + y.T, np.maximum(hit, hit.T))
    else:
        F = np.einsum("ij,cd->ijcd", y, hit) + np.einsum("ij,cd->ijcd", y.T, hit.T)
    F[np.arange(len(y)), np.arange(len(y))] = 0
    return A, F


def decomposed_variance(A: Array, F: Array, q: Array) -> float:
    """V[sum_i A_i(z_i) + sum_{i<j} F_ij(z_i, z_j)] for independent z_i ~ q_i."""
    given = np.einsum("ijcd,jd->ijc", F, q)  # E[F_ij | z_i = c]
    first = A + given.sum(axis=1)  # E[S | z_i = c] up to a constant
    first_order = np.sum(q * first**2) - np.sum(np.sum(q * first, axis=1) ** 2)
    square = np.einsum("ijcd,ic,jd->ij", F**2, q, q)
    explained = np.einsum("ijc,ic->ij", given**2, q)
    mean = np.einsum("ijc,ic->ij", given, q)
    own = square - explained - explained.T + mean**2
    return float(first_order + np.triu(own, 1).sum())


def paper_variance(
    X: Array,
    observed: Array,
    q: list[Array],
    kind: str,
    domain: int | None = None,
    i: int | None = None,
    k: int | None = None,
) -> dict[str, Array]:
    """Variance tables as the paper has them: cells taken as independent, third sum only.

    eq:IRM_2dom_CVB_n_kl_V; eq:IRM_2dom_CVB_n_1kl_approx_var with ``i`` removed; with ``i`` in
    cluster ``k`` that plus eq:IRM_2dom_CVB_nN_1kl_approx_var_plus. The mask of N is 1 - x on the
    observed cells (section 12).
    """
    spread = [each * (1 - each) for each in q]
    if i is None:
        return cell_variance(X, observed, spread, kind)
    mine = touches(X.shape, kind, domain or 0, i)
    V = cell_variance(X, observed * ~mine, spread, kind)
    if k is not None:
        if kind != "bipartite":
            mine[i, i] = False  # a self link of a fixed object is certain
        plus = cell_variance(X, observed * mine, put(spread, domain or 0, i, k), kind)
        V = {name: V[name] + plus[name] for name in V}
    return V


def cell_variance(X: Array, observed: Array, spread: list[Array], kind: str) -> dict[str, Array]:
    """Sum over cells of s_ik s_jl, and of s_ik on block (k, k) for a seen self link."""
    both = pair_probability(spread, kind)
    V = {}
    for name, y in with_totals(*masks(X, observed, kind)).items():
        table = np.einsum("ij,ijkl->kl", y, both)
        V[name] = unordered(table) if kind == "undirected" else table
    return V


# CVB, second order


def second_order(c: Real, mean: Array, variance: Array) -> Array:
    """E[lnGamma(c + S)] by the second-order expansion (eq:Taylor_2)."""
    return gammaln(c + mean) + 0.5 * polygamma(1, c + mean) * variance


def expected_log_beta(n: Array, N: Array, V: dict[str, Array], a: Real, b: Real) -> Array:
    """E[lnB(a + n, b + N)] to second order (eq:IRM_2dom_CVB_approx_example_likelihood)."""
    return (
        second_order(a, n, V["n"]) + second_order(b, N, V["N"]) - second_order(a + b, n + N, V["T"])
    )


def cvb_log_posterior(
    X: Array,
    observed: Array,
    q: list[Array],
    kind: str,
    domain: int,
    i: int,
    a: Real,
    b: Real,
    alpha: Sequence[float],
    variance: str = "exact",
) -> Array:
    """log q(z_i = k) up to a constant, (K,), second order in the counts (section 6).

    ``variance`` is "exact" or "paper"; the prior stays at order 0.
    """
    V = {"exact": exact_variance, "paper": paper_variance}[variance]
    log_q = log_prior_of_object(q, domain, i, alpha)
    n_rest, N_rest = counts_without(X, observed, q, kind, domain, i)
    rest = expected_log_beta(n_rest, N_rest, V(X, observed, q, kind, domain, i), a, b)
    for k in range(len(log_q)):
        n_plus, N_plus = brings(X, observed, q, kind, domain, i, k)
        V_full = V(X, observed, q, kind, domain, i, k)
        full = expected_log_beta(n_rest + n_plus, N_rest + N_plus, V_full, a, b)
        log_q[k] += each_block_once(full - rest, kind).sum()
    return log_q


# VB


def expected_log_beta_variable(a_hat: Real, b_hat: Real) -> tuple[Array, Array]:
    """E[ln v] and E[ln(1 - v)] for v ~ Beta(a_hat, b_hat)."""
    total = digamma(np.add(a_hat, b_hat))
    return digamma(a_hat) - total, digamma(b_hat) - total


def expected_log_sticks(stick_a: Array, stick_b: Array) -> Array:
    """E[ln pi_k], (K,), of K - 1 random sticks and a last one that is 1."""
    log_v, log_rest = expected_log_beta_variable(stick_a, stick_b)
    return np.append(log_v, 0.0) + np.append(0.0, np.cumsum(log_rest))


def vb_log_posterior(
    X: Array,
    observed: Array,
    q: list[Array],
    kind: str,
    domain: int,
    i: int,
    a_hat: Array,
    b_hat: Array,
    stick_a: Array,
    stick_b: Array,
) -> Array:
    """log pi_hat_ik up to a constant, (K,) (eq:IRM_2dom_VB_posterior_pihat_1ik; section 7)."""
    log_link, log_none = expected_log_beta_variable(a_hat, b_hat)
    log_q = expected_log_sticks(stick_a, stick_b)
    for k in range(len(log_q)):
        n_plus, N_plus = brings(X, observed, q, kind, domain, i, k)
        log_q[k] += each_block_once(n_plus * log_link + N_plus * log_none, kind).sum()
    return log_q


def expected_log_density(a: Real, b: Real, a_hat: Array, b_hat: Array) -> Array:
    """E[ln Beta(v; a, b)] for v ~ Beta(a_hat, b_hat)."""
    log_v, log_rest = expected_log_beta_variable(a_hat, b_hat)
    return np.subtract(a, 1) * log_v + np.subtract(b, 1) * log_rest - betaln(a, b)


def expected_log_likelihood(
    X: Array, observed: Array, q: list[Array], kind: str, a_hat: Array, b_hat: Array
) -> float:
    """E[ln p(X | Z, theta)], cell by cell (eq:IRM_2dom_VB_lowerbound_p_x)."""
    log_link, log_none = expected_log_beta_variable(a_hat, b_hat)
    both = pair_probability(q, kind)
    x1, x0 = masks(X, observed, kind)
    if_link = np.einsum("ijkl,kl->ij", both, log_link)
    if_none = np.einsum("ijkl,kl->ij", both, log_none)
    return float(np.sum(x1 * if_link + x0 * if_none))


def vb_bound(
    X: Array,
    observed: Array,
    q: list[Array],
    kind: str,
    a: Real,
    b: Real,
    a_hat: Array,
    b_hat: Array,
    alpha: Sequence[float],
    sticks: list[tuple[Array, Array]],
) -> float:
    """The VB lower bound, term by term; ``sticks`` holds (stick_a, stick_b) of every domain."""
    bound = expected_log_likelihood(X, observed, q, kind, a_hat, b_hat)
    for q_this, concentration, (stick_a, stick_b) in zip(q, alpha, sticks, strict=True):
        # eq:IRM_2dom_VB_lowerbound_p_z_1, eq:IRM_2dom_VB_lowerbound_p_v_1
        bound += np.sum(q_this * expected_log_sticks(stick_a, stick_b))
        bound += np.sum(expected_log_density(1.0, concentration, stick_a, stick_b))
        # eq:IRM_2dom_VB_lowerbound_q_z_1, eq:IRM_2dom_VB_lowerbound_q_v_1
        bound -= np.sum(xlogy(q_this, q_this))
        bound -= np.sum(expected_log_density(stick_a, stick_b, stick_a, stick_b))
    # eq:IRM_2dom_VB_lowerbound_p_theta, eq:IRM_2dom_VB_lowerbound_q_theta
    bound += each_block_once(expected_log_density(a, b, a_hat, b_hat), kind).sum()
    bound -= each_block_once(expected_log_density(a_hat, b_hat, a_hat, b_hat), kind).sum()
    return float(bound)


# Hard partitions: evidence, Gibbs, exact posteriors


def log_evidence_of_blocks(
    X: Array,
    observed: Array,
    labels: Sequence[Sequence[int]],
    K: Sequence[int],
    kind: str,
    a: Real,
    b: Real,
) -> float:
    """log p(X | Z) with the block probabilities integrated out (section 10)."""
    n, N, _ = hard_counts(X, observed, labels, K, kind)
    return float(each_block_once(betaln(a + n, b + N) - betaln(a, b), kind).sum())


def log_joint(
    X: Array,
    observed: Array,
    labels: Sequence[Sequence[int]],
    kind: str,
    a: Real,
    b: Real,
    alpha: Sequence[float],
) -> float:
    """log p(X, Z) of hard labels under the CRP (section 10)."""
    K = [max(z, default=-1) + 1 for z in labels]
    crp = sum(crp_log_probability(z, c) for z, c in zip(labels, alpha, strict=True))
    return log_evidence_of_blocks(X, observed, labels, K, kind, a, b) + crp


def gibbs_log_posterior(
    X: Array,
    observed: Array,
    labels: Sequence[Sequence[int]],
    kind: str,
    domain: int,
    i: int,
    a: float,
    b: float,
    alpha: Sequence[float],
) -> Array:
    """log p(z_i = k | rest) up to a constant for the K other clusters and a new one, (K + 1,).

    eq:IRM_2dom_Gibbs_z_1i_posterior as a difference of two log joints, with and without object i.
    The label of i is ignored; the others' labels are 0..K-1, none of them empty.
    """
    others = [list(map(int, z)) for z in labels]
    del others[domain][i]
    X_rest, seen_rest = X, observed
    for axis in (domain,) if kind == "bipartite" else (0, 1):
        X_rest, seen_rest = np.delete(X_rest, i, axis), np.delete(seen_rest, i, axis)
    rest = log_joint(X_rest, seen_rest, others, kind, a, b, alpha)
    out = []
    for k in range(max(others[domain], default=-1) + 2):
        full = [list(z) for z in others]
        full[domain].insert(i, k)
        out.append(log_joint(X, observed, full, kind, a, b, alpha) - rest)
    return np.array(out)


def partitions(n: int) -> Iterator[tuple[int, ...]]:
    """All set partitions of n objects as restricted growth strings."""
    if n == 0:
        yield ()
        return
    for head in partitions(n - 1):
        for k in range(max(head, default=-1) + 2):
            yield (*head, k)


def domain_sizes(X: Array, kind: str) -> list[int]:
    """Number of objects of every domain."""
    return list(X.shape) if kind == "bipartite" else [len(X)]


def exact_posterior(
    X: Array, observed: Array, kind: str, a: float, b: float, alpha: Sequence[float]
) -> tuple[dict[tuple[tuple[int, ...], ...], float], float]:
    """Posterior probability of every partition (CRP prior), and the log evidence log p(X).

    The keys hold one restricted growth string per domain.
    """
    every = list(itertools.product(*(partitions(size) for size in domain_sizes(X, kind))))
    log_p = np.array([log_joint(X, observed, z, kind, a, b, alpha) for z in every])
    log_evidence = float(logsumexp(log_p))
    return dict(zip(every, map(float, np.exp(log_p - log_evidence)), strict=True)), log_evidence


def truncated_log_joint(
    X: Array,
    observed: Array,
    labels: Sequence[Sequence[int]],
    kind: str,
    a: Real,
    b: Real,
    alpha: Sequence[float],
    K: Sequence[int],
) -> float:
    """log p(X, Z) of hard labels under truncated sticks (eq:IRM_2dom_CVB_z_1_marginal, v_K = 1)."""
    sizes = [one_hot(z, c).sum(axis=0) for z, c in zip(labels, K, strict=True)]
    prior = sum(stick_log_probability(m, c) for m, c in zip(sizes, alpha, strict=True))
    return log_evidence_of_blocks(X, observed, labels, K, kind, a, b) + prior


def truncated_log_evidence(
    X: Array,
    observed: Array,
    kind: str,
    a: Real,
    b: Real,
    alpha: Sequence[float],
    K: Sequence[int],
) -> float:
    """log p(X) under truncated sticks, summed over all labelings; the VB bound lies below it."""
    every = labelings(domain_sizes(X, kind), K)
    joint = (truncated_log_joint(X, observed, z, kind, a, b, alpha, K) for z in every)
    return float(logsumexp(list(joint)))


def exact_memberships(
    X: Array,
    observed: Array,
    kind: str,
    a: Real,
    b: Real,
    alpha: Sequence[float],
    K: Sequence[int],
) -> list[Array]:
    """P(z_i = z_j | X) under truncated sticks, one (N, N) matrix per domain (no label names)."""
    every = list(labelings(domain_sizes(X, kind), K))
    log_p = np.array([truncated_log_joint(X, observed, z, kind, a, b, alpha, K) for z in every])
    p = np.exp(log_p - logsumexp(log_p))
    together = []
    for domain in range(len(K)):
        z = np.array([labels[domain] for labels in every])
        together.append(np.einsum("s,sij->ij", p, z[:, :, None] == z[:, None, :]))
    return together


# Prediction


def link_probability(
    X: Array, observed: Array, q: list[Array], kind: str, a: Real, b: Real
) -> Array:
    """P(x_ij = 1) of every cell (section 13); a self link uses E[z_ik z_il] = [k = l] q_ik."""
    n, N = counts(X, observed, q, kind)
    return np.einsum("ijkl,kl->ij", pair_probability(q, kind), (a + n) / (a + b + n + N))


# Hyperparameters


def block_objective(n: Array, N: Array, a: Real, b: Real) -> float:
    """What ``block_fixed_point`` climbs: the block terms of eq:IRM_2dom_CVB_lowerbound_hyprm.

    ``n`` and ``N`` hold each block once (``each_block_once``).
    """
    return float(np.sum(betaln(a + n, b + N) - betaln(a, b)))


def block_fixed_point(n: Array, N: Array, a: float, b: float) -> tuple[float, float]:
    """One simultaneous step of the shared update of ``a`` and ``b`` (section 8).

    eq:IRM_2dom_CVB_lowerbound_a_kl_update and _b_kl_update summed over blocks; each block once.
    """
    both = np.sum(digamma(a + b + n + N) - digamma(a + b))
    a_new = a * np.sum(digamma(a + n) - digamma(a)) / both
    b_new = b * np.sum(digamma(b + N) - digamma(b)) / both
    return float(a_new), float(b_new)


def vb_block_fixed_point(n: Array, N: Array, a: float, b: float) -> tuple[float, float]:
    """One simultaneous step of VB's shared update of ``a`` and ``b``, block after block.

    eq:IRM_2dom_VB_posterior_lowerbound_a_kl_update and _b_kl_update summed over blocks.
    """
    above, below = np.zeros(2), np.zeros(2)
    for links, nonlinks in zip(n, N, strict=True):
        a_hat, b_hat = a + links, b + nonlinks
        above += digamma(a + b) - digamma([a, b])
        below += digamma(a_hat + b_hat) - digamma([a_hat, b_hat])
    a_new, b_new = np.array([a, b]) * above / below
    return float(a_new), float(b_new)


def concentration_objective(m: Array, alpha: float) -> float:
    """What ``concentration_fixed_point`` climbs: log p(Z) of the K - 1 random sticks."""
    return stick_log_probability(m, alpha)


def concentration_fixed_point(m: Array, alpha: float) -> float:
    """One step of eq:IRM_2dom_CVB_alpha_1_update with K - 1 random sticks (section 8).

    One cluster has no random stick: ``alpha`` stays.
    """
    m, M = np.asarray(m, dtype=float)[:-1], tail(m)[:-1]
    if len(m) == 0:
        return alpha
    return float(len(m) / np.sum(digamma(m + M + alpha + 1) - digamma(M + alpha)))
