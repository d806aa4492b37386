"""Makes `models.json` of `tests/devices/golden_models.rs`: both networks on a small typed graph, in dense float64, with
the terms of their losses and the gradients of all parameters.

Every relation is a matrix that counts its edges; gradients are written out by hand and checked against central
differences before anything is written. Nothing is shared with the program but the published formulas.

    python3 tests/golden/make_models.py tests/golden/models.json      # needs numpy; gives the same bytes everywhere
"""
import json
import math
import pathlib
import random
import sys

import numpy as np

COUNT = {"user": 9, "item": 7, "shop": 3}
TYPES = list(COUNT)
OFFSET = {"user": 0, "item": 9, "shop": 16}
STREAMS = ["buys", "sells", "knows"]
WIDTHS = [5, 6, 4]  # of the features, after the first and after the second layer
SLOPE = 0.2

draw = random.Random(17)


def number(scale=1.0):
    """A number that f32 holds exactly."""
    return round((2 * draw.random() - 1) * scale * 256) / 256


def matrix(rows, columns, scale=1.0):
    return np.array([[number(scale) for _ in range(columns)] for _ in range(rows)])


# The graph. `knows` is symmetric and holds some loops; `follows` leads one way and repeats an edge. User 8 has no edge
# at all, shop 2 sells nothing.
def random_edges(dst, src, share, skip_dst=(), skip_src=()):
    every = [(i, j) for i in range(COUNT[dst]) for j in range(COUNT[src])]
    return [e for e in every if e[0] not in skip_dst and e[1] not in skip_src and draw.random() < share]


bought = random_edges("user", "item", 0.3, skip_dst=(8,))
sold = [(item, item % 2) for item in range(COUNT["item"])] + [(3, 0)]
together = [(i, j) for i, j in random_edges("user", "user", 0.25, (8,), (8,)) if i < j]
knows = together + [(j, i) for i, j in together] + [(1, 1), (4, 4)]
follows = [(0, 5), (5, 2), (5, 2), (7, 0), (2, 7), (6, 6)]


def relation(name, src, dst, stream, edges, primary=True, one_way=False):
    edges = sorted(edges)
    counts = np.zeros((COUNT[dst], COUNT[src]))
    for i, j in edges:
        counts[i, j] += 1
    return dict(name=name, src=src, dst=dst, stream=stream, edges=edges, counts=counts, primary=primary, one_way=one_way)


def reverse(r):
    edges = [(j, i) for i, j in r["edges"]]
    return relation(r["name"] + "_T", r["dst"], r["src"], r["stream"], edges, primary=False)


buys, sells = relation("buys", "item", "user", "buys", bought), relation("sells", "shop", "item", "sells", sold)
RELATIONS = [
    buys,
    reverse(buys),
    sells,
    reverse(sells),
    relation("knows", "user", "user", "knows", knows),
    relation("follows", "user", "user", "knows", follows, one_way=True),
]
X = {t: matrix(COUNT[t], WIDTHS[0]) for t in TYPES}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def bce(logits, targets):
    """Mean binary cross-entropy and its gradient."""
    losses = np.maximum(logits, 0) - logits * targets + np.log1p(np.exp(-np.abs(logits)))
    return losses.mean(), (sigmoid(logits) - targets) / len(logits)


def zeros_like(parameters):
    return {name: np.zeros_like(value) for name, value in parameters.items()}


def assert_away_from_kinks(values):
    """A gradient at a kink would be a matter of rounding."""
    assert np.abs(values).min() > 1e-4


# Stage 1: A~ = D^-1/2 (A + I) D^-1/2 of every relation, where a row that holds its own loop gets no second one. Across
# types the added term is the destination's own features over its degree.
def normalised(r):
    counts = r["counts"]
    own = np.diag(counts) > 0 if r["src"] == r["dst"] else np.zeros(len(counts), bool)
    dst_degree = counts.sum(1) + ~own
    src_degree = counts.sum(0) + (~own if r["src"] == r["dst"] else 1)
    return counts / np.sqrt(np.outer(dst_degree, src_degree)), np.where(own, 0, 1 / dst_degree)[:, None]


def stage1_parameters():
    parameters = {}
    for layer in (1, 2):
        inner, outer = WIDTHS[layer - 1], WIDTHS[layer]
        for stream in STREAMS:
            parameters[f"gcn{layer}.W_{stream}.weight"] = matrix(inner, outer)
            parameters[f"gcn{layer}.W_{stream}.bias"] = matrix(1, outer, 0.5)[0]
        for t in TYPES:
            parameters[f"gcn{layer}.W_self_{t}.weight"] = matrix(inner, outer)
    return parameters


def stage1(p, pairs, tau):
    """Embeddings, logits, loss and gradients. `pairs` lists (destination type, source type, destinations, sources,
    targets)."""
    h, kept = X, []
    for layer in (1, 2):
        weight = lambda r: p[f"gcn{layer}.W_{r['stream']}.weight"]
        before = {t: h[t] @ p[f"gcn{layer}.W_self_{t}.weight"] for t in TYPES}
        sums = []
        for r in RELATIONS:
            between, own = normalised(r)
            sums.append(between @ h[r["src"]] + own * h[r["dst"]])
            before[r["dst"]] = before[r["dst"]] + sums[-1] @ weight(r) + p[f"gcn{layer}.W_{r['stream']}.bias"]
        kept.append((h, sums, before))
        h = {t: np.maximum(before[t], 0) if layer == 1 else before[t] for t in TYPES}
    for t in TYPES:
        assert_away_from_kinks(kept[0][2][t])
    length = {t: np.sqrt((h[t] ** 2).sum(1, keepdims=True)) for t in TYPES}
    z = {t: h[t] / length[t] for t in TYPES}
    logits = np.concatenate([tau * (z[d][i] * z[s][j]).sum(1) for d, s, i, j, _ in pairs])
    loss, dlogits = bce(logits, np.concatenate([targets for *_, targets in pairs]))

    dz, at = {t: np.zeros_like(z[t]) for t in TYPES}, 0
    for d, s, i, j, targets in pairs:
        own = tau * dlogits[at : at + len(targets), None]
        at += len(targets)
        np.add.at(dz[d], i, own * z[s][j])
        np.add.at(dz[s], j, own * z[d][i])
    dh = {t: (dz[t] - z[t] * (z[t] * dz[t]).sum(1, keepdims=True)) / length[t] for t in TYPES}
    g = zeros_like(p)
    for layer in (2, 1):
        h, sums, before = kept[layer - 1]
        dbefore = {t: dh[t] * (before[t] > 0) if layer == 1 else dh[t] for t in TYPES}
        dh = {}
        for t in TYPES:
            name = f"gcn{layer}.W_self_{t}.weight"
            g[name] += h[t].T @ dbefore[t]
            dh[t] = dbefore[t] @ p[name].T
        for r, sum_ in zip(RELATIONS, sums):
            name = f"gcn{layer}.W_{r['stream']}"
            own_gradient = dbefore[r["dst"]]
            g[f"{name}.weight"] += sum_.T @ own_gradient
            g[f"{name}.bias"] += own_gradient.sum(0)
            dsum = own_gradient @ p[f"{name}.weight"].T
            between, own = normalised(r)
            dh[r["src"]] += between.T @ dsum
            dh[r["dst"]] += own * dsum
    return z, logits, loss, g


def temperature(epoch, epochs, warmup, start, peak, end):
    if epoch <= warmup:
        return start + (peak - start) * ((epoch - 1) / (warmup - 1))
    return end + (peak - end) * (1 + math.cos(math.pi * (epoch - warmup) / (epochs - warmup))) / 2


# Stage 2.
def edge_names(layer, r):
    """Projection, attention vector, logarithms of frequencies and phases of what a relation's edges carry."""
    parts = ["W_edge_{}.weight", "a_edge_{}", "time_log_frequency_{}", "time_phase_{}"]
    return [f"gat{layer}." + part.format(r["name"]) for part in parts]


def stage2_parameters(own=False, connected=False):
    parameters = {}
    for layer in (1, 2):
        for stream in STREAMS:
            parameters[f"gat{layer}.W_{stream}.weight"] = matrix(WIDTHS[layer - 1], WIDTHS[layer])
            parameters[f"gat{layer}.a_{stream}"] = matrix(1, 2 * WIDTHS[layer])[0]
        for r in RELATIONS:
            columns = r.get("values", NONE).shape[2] + (1 + COSINES if "age" in r else 0)
            if columns == 0:
                continue
            weight, vector, frequency, phase = edge_names(layer, r)
            parameters[weight] = matrix(columns, WIDTHS[layer])
            parameters[vector] = matrix(1, WIDTHS[layer])[0]
            if "age" in r:
                parameters[frequency] = matrix(1, COSINES)[0]
                parameters[phase] = matrix(1, COSINES, 3.0)[0]
        for t in TYPES if own else ():
            parameters[f"gat{layer}.W_self_{t}.weight"] = matrix(WIDTHS[layer - 1], WIDTHS[layer])
        for t in TYPES if connected else ():
            parameters[f"gat{layer}.gate_{t}"] = matrix(1, 2 * WIDTHS[layer])[0]
        for part in ("scale", "shift") if connected else ():
            parameters[f"gat{layer}.norm_{part}"] = matrix(1, WIDTHS[layer])[0]
    parameters["score_head.weight"] = matrix(WIDTHS[2] + (WIDTHS[1] if connected else 0), 1)
    parameters["score_head.bias"] = matrix(1, 1)[0]
    return parameters


COSINES = 2  # of the age of an edge
NONE = np.zeros((1, 1, 0))


def carried(p, layer, r):
    """What every edge carries, [destinations, sources, columns], and the angles of the cosines of its age; nothing
    where the model reads nothing of it."""
    weight, _, frequency, phase = edge_names(layer, r)
    if weight not in p:
        return None, None
    parts, angles = [r["values"]] if "values" in r else [], None
    if "age" in r:
        age = r["age"][:, :, None]
        angles = np.exp(p[frequency]) * age + p[phase]
        parts += [np.log1p(np.maximum(age, 0)), np.cos(angles)]
    return np.concatenate(parts, 2) * (r["counts"] > 0)[:, :, None], angles


WORD = 0xFFFFFFFF


def philox(counter, key):
    """One block of Philox4x32-10 (Salmon et al., 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [b >> 32 ^ c[1] ^ k[0], b & WORD, a >> 32 ^ c[3] ^ k[1], a & WORD]
        k = [k[0] + 0x9E3779B9 & WORD, k[1] + 0xBB67AE85 & WORD]
    return c


def hashed(a, b):
    h = a * 0x9E3779B1 & WORD
    h ^= h >> 16
    h = (h + b & WORD) * 0x85EBCA6B & WORD
    h ^= h >> 13
    h = h * 0xC2B2AE35 & WORD
    return h ^ h >> 16


def masks(drop):
    """For each layer and relation a matrix: 1 where an edge from j to i is kept."""
    if drop is None:
        return [[np.ones_like(r["counts"]) for r in RELATIONS] for _ in range(2)]

    def mask(layer, at, r):
        key = philox([drop["epoch"], layer, at, 0], [drop["seed"] & WORD, drop["seed"] >> 32])
        kept = lambda i, j: hashed(i + OFFSET[r["dst"]] ^ key[0], j + OFFSET[r["src"]] ^ key[1])
        threshold = round((1 - drop["rate"]) * 2**32)
        shape = r["counts"].shape
        return np.array([[float(kept(i, j) < threshold) for j in range(shape[1])] for i in range(shape[0])])

    return [[mask(layer, at, r) for at, r in enumerate(RELATIONS)] for layer in range(2)]


class Even(Exception):
    """A row of nearly equal values: divided by its deviation, the rounding of f32 would be all that it has."""


def end_of_layer(p, layer, t, own, arrived):
    """A type's rows before the activation, out of what they have of themselves and what arrives: gated and normalised
    where there are parameters for it. With it comes what makes both gradients, and adds those of the parameters, out of
    its gradient."""
    width, gate = WIDTHS[layer], f"gat{layer}.gate_{t}"
    scale, shift = (f"gat{layer}.norm_{part}" for part in ("scale", "shift"))
    z, beta = own + arrived, None
    if gate in p:
        beta = sigmoid(own @ p[gate][:width] + arrived @ p[gate][width:])[:, None]
        z = beta * own + (1 - beta) * arrived
    if scale in p:
        if z.std(1).min() < 0.15:
            raise Even
        inverse = 1 / np.sqrt(z.var(1, keepdims=True) + 1e-5)
        even = (z - z.mean(1, keepdims=True)) * inverse
        z = even * p[scale] + p[shift]

    def back(dz, g):
        if scale in p:
            g[shift] += dz.sum(0)
            g[scale] += (dz * even).sum(0)
            deven = dz * p[scale]
            dz = inverse * (deven - deven.mean(1, keepdims=True) - even * (deven * even).mean(1, keepdims=True))
        if gate not in p:
            return dz, dz
        dscore = (dz * (own - arrived)).sum(1, keepdims=True) * beta * (1 - beta)
        g[gate] += np.concatenate([(own * dscore).sum(0), (arrived * dscore).sum(0)])
        return beta * dz + dscore * p[gate][:width], (1 - beta) * dz + dscore * p[gate][width:]

    return z, back


def stage2(p, heads, keep, labels, smooth, weight_unsup):
    """Embeddings, logits, the loss with its terms, and gradients. `labels` lists (type, node, label), `smooth` lists
    relations with the edges that are to agree."""
    into = {t: max(1, len({r["stream"] for r in RELATIONS if r["dst"] == t})) for t in TYPES}
    h, kept = X, []
    for layer in (1, 2):
        width = WIDTHS[layer] // heads
        total = {t: np.zeros((COUNT[t], WIDTHS[layer])) for t in TYPES}
        steps = []
        for at, r in enumerate(RELATIONS):
            w, a = p[f"gat{layer}.W_{r['stream']}.weight"], p[f"gat{layer}.a_{r['stream']}"]
            dst, src = h[r["dst"]] @ w, h[r["src"]] @ w
            edges = r["counts"] * keep[layer - 1][at]
            carries, angles = carried(p, layer, r)
            w_edge, a_edge = (p.get(name) for name in edge_names(layer, r)[:2])
            of_heads = []
            for k in range(heads):
                part = slice(k * width, (k + 1) * width)
                a_dst, a_src = a[: WIDTHS[layer]][part], a[WIDTHS[layer] :][part]
                raw = (dst[:, part] @ a_dst)[:, None] + (src[:, part] @ a_src)[None, :]
                if carries is not None:
                    raw = raw + carries @ (w_edge[:, part] @ a_edge[part])
                assert_away_from_kinks(raw[r["counts"] > 0])
                scores = np.where(raw > 0, raw, SLOPE * raw)
                largest = np.where(edges > 0, scores, -np.inf).max(1, keepdims=True)
                exponentials = edges * np.exp(scores - np.where(np.isfinite(largest), largest, 0))
                sums = exponentials.sum(1, keepdims=True)
                alpha = exponentials / np.where(sums > 0, sums, 1)
                total[r["dst"]][:, part] += alpha @ src[:, part]
                if carries is not None:
                    total[r["dst"]][:, part] += np.einsum("ij,ijc->ic", alpha, carries) @ w_edge[:, part]
                of_heads.append((part, raw, alpha))
            steps.append((dst, src, of_heads, carries, angles))
        of_itself = lambda t: p.get(f"gat{layer}.W_self_{t}.weight", np.zeros((WIDTHS[layer - 1], WIDTHS[layer])))
        ends = {t: end_of_layer(p, layer, t, h[t] @ of_itself(t), total[t] / into[t]) for t in TYPES}
        kept.append((h, steps, ends))
        h = {t: np.where(z > 0, z, np.expm1(np.minimum(z, 0))) for t, (z, _) in ends.items()}
    if len(p["score_head.weight"]) > WIDTHS[2]:  # the head reads both layers
        h = {t: np.concatenate([kept[1][0][t], h[t]], 1) for t in TYPES}
    logits = {t: (h[t] @ p["score_head.weight"])[:, 0] + p["score_head.bias"][0] for t in TYPES}

    dlogits = {t: np.zeros(COUNT[t]) for t in TYPES}
    supervised, of_labels = bce(np.array([logits[t][n] for t, n, _ in labels]), np.array([y for *_, y in labels], float))
    for (t, n, _), gradient in zip(labels, of_labels):
        dlogits[t][n] += gradient
    unsupervised = 0.0
    for r, edges in smooth:
        share = 1 / (len(smooth) * len(edges))
        for i, j in edges:
            a, b = sigmoid(logits[r["dst"]][i]), sigmoid(logits[r["src"]][j])
            unsupervised += share * (a - b) ** 2
            slope = 2 * weight_unsup * share * (a - b)
            dlogits[r["dst"]][i] += slope * a * (1 - a)
            dlogits[r["src"]][j] -= slope * b * (1 - b)
    loss = supervised + weight_unsup * unsupervised

    g = zeros_like(p)
    g["score_head.bias"] += sum(dlogits[t].sum() for t in TYPES)
    g["score_head.weight"][:, 0] += sum(h[t].T @ dlogits[t] for t in TYPES)
    djoined = {t: np.outer(dlogits[t], p["score_head.weight"][:, 0]) for t in TYPES}
    dh = {t: djoined[t][:, -WIDTHS[2] :] for t in TYPES}
    for layer in (2, 1):
        inputs, steps, ends = kept[layer - 1]
        dends = {t: back(dh[t] * np.where(z > 0, 1, np.exp(np.minimum(z, 0))), g) for t, (z, back) in ends.items()}
        dtotal = {t: dends[t][1] / into[t] for t in TYPES}
        dh = {t: np.zeros_like(inputs[t]) for t in TYPES}
        if layer == 2 and len(p["score_head.weight"]) > WIDTHS[2]:
            dh = {t: djoined[t][:, : WIDTHS[1]].copy() for t in TYPES}
        for t in TYPES:
            name = f"gat{layer}.W_self_{t}.weight"
            if name in p:
                g[name] += inputs[t].T @ dends[t][0]
                dh[t] += dends[t][0] @ p[name].T
        for r, (dst, src, of_heads, carries, angles) in zip(RELATIONS, steps):
            w_name, a_name = f"gat{layer}.W_{r['stream']}.weight", f"gat{layer}.a_{r['stream']}"
            a, width = p[a_name], WIDTHS[layer]
            ddst, dsrc = np.zeros_like(dst), np.zeros_like(src)
            weight, vector, frequency, phase = edge_names(layer, r)
            dcarries = None if carries is None else np.zeros_like(carries)
            for part, raw, alpha in of_heads:
                dout = dtotal[r["dst"]][:, part]
                dalpha = dout @ src[:, part].T
                if carries is not None:
                    dalpha = dalpha + np.einsum("ic,ijc->ij", dout @ p[weight][:, part].T, carries)
                dsrc[:, part] += alpha.T @ dout
                dpair = alpha * (dalpha - (alpha * dalpha).sum(1, keepdims=True)) * np.where(raw > 0, 1, SLOPE)
                g[a_name][:width][part] += dst[:, part].T @ dpair.sum(1)
                g[a_name][width:][part] += src[:, part].T @ dpair.sum(0)
                ddst[:, part] += np.outer(dpair.sum(1), a[:width][part])
                dsrc[:, part] += np.outer(dpair.sum(0), a[width:][part])
                if carries is not None:
                    w_edge, a_edge = p[weight][:, part], p[vector][part]
                    of_scores = np.einsum("ij,ijc->c", dpair, carries)
                    g[weight][:, part] += np.einsum("ij,ijc->ic", alpha, carries).T @ dout + np.outer(of_scores, a_edge)
                    g[vector][part] += of_scores @ w_edge
                    dcarries += alpha[:, :, None] * (dout @ w_edge.T)[:, None, :]
                    dcarries += dpair[:, :, None] * (w_edge @ a_edge)
            if angles is not None:
                dangles = -np.sin(angles) * dcarries[:, :, -COSINES:]
                g[phase] += dangles.sum((0, 1))
                g[frequency] += (dangles * r["age"][:, :, None]).sum((0, 1)) * np.exp(p[frequency])
            g[w_name] += inputs[r["dst"]].T @ ddst + inputs[r["src"]].T @ dsrc
            dh[r["dst"]] += ddst @ p[w_name].T
            dh[r["src"]] += dsrc @ p[w_name].T
    return h, logits, (loss, supervised, unsupervised), g


def check_gradients(parameters, gradients, loss):
    """Central differences of every single value."""
    for name, value in parameters.items():
        for index in np.ndindex(value.shape):
            moved = []
            for step in (1e-5, -1e-5):
                shifted = {n: v.copy() for n, v in parameters.items()}
                shifted[name][index] += step
                moved.append(loss(shifted))
            difference = (moved[0] - moved[1]) / 2e-5
            assert abs(difference - gradients[name][index]) < 1e-8, (name, index, difference, gradients[name][index])


def rounded(values):
    """Nine digits: more than f32 has, fewer than another order of summation changes."""
    return [float(f"{v:.9g}") + 0.0 for v in np.asarray(values, float).ravel()]


def tensors(named):
    """As in a PyTorch state dict: weights are [out, in]."""
    stored = {name: value.T if name.endswith(".weight") else value for name, value in named.items()}
    return {name: {"shape": list(value.shape), "values": rounded(value)} for name, value in stored.items()}


def all_types(per_type):
    return rounded(np.concatenate([per_type[t].ravel() for t in TYPES]))


# Pairs of the loss: all edges of primary relations once, and as many pairs whose destination is anything.
p1 = stage1_parameters()
primary = [r for r in RELATIONS if r["primary"]]
pairs = []
for r in primary:
    edges = sorted({(i, j) for i, j in r["edges"] if r["src"] != r["dst"] or i != j})
    i = [e[0] for e in edges] + [draw.randrange(COUNT[r["dst"]]) for _ in edges]
    j = [e[1] for e in edges] * 2
    pairs.append((r["dst"], r["src"], i, j, np.array([1.0] * len(edges) + [0.0] * len(edges))))
schedule = dict(epochs=60, warmup=20, start=2.0, peak=10.0, end=3.0)
epochs = [1, 2, 7, 20, 21, 33, 47, 60]
taus = [temperature(e, *schedule.values()) for e in epochs]
tau = taus[5]
z, logits, loss, g1 = stage1(p1, pairs, tau)
check_gradients(p1, g1, lambda p: stage1(p, pairs, tau)[2])
first = {
    "parameters": tensors(p1),
    "schedule": {**schedule, "at": epochs, "tau": rounded(taus)},
    "pairs": [
        {"relation": RELATIONS.index(r), "dst": i, "src": j, "positives": int(y.sum())}
        for r, (_, _, i, j, y) in zip(primary, pairs)
    ],
    "tau": tau,
    "embeddings": all_types(z),
    "logits": rounded(logits),
    "loss": rounded([loss])[0],
    "gradients": tensors(g1),
}

p2 = stage2_parameters()
labels = [("user", 0, 1), ("user", 3, 0), ("user", 8, 1), ("item", 2, 1), ("item", 6, 0), ("shop", 1, 0)]
smooth = [(r, sorted({e for e in r["edges"] if r["src"] != r["dst"] or e[0] != e[1]})[1::2]) for r in primary]


DROPS = (None, {"rate": 0.4, "seed": 2**33 + 5, "epoch": 3})


def runs_of(parameters):
    second = []
    for heads in (1, 2):
        for drop in DROPS:
            keep = masks(drop)
            run = lambda p: stage2(p, heads, keep, labels, smooth, 0.5)
            h, logits, terms, g2 = run(parameters)
            check_gradients(parameters, g2, lambda p: run(p)[2][0])
            edges = lambda layer: [[int(keep[layer][k][e]) for e in r["edges"]] for k, r in enumerate(RELATIONS)]
            if drop is not None:
                dropped = [1 - kept for layer in range(2) for of_relation in edges(layer) for kept in of_relation]
                assert 0.2 < sum(dropped) / len(dropped) < 0.6
            second.append(
                {
                    "heads": heads,
                    "drop_edge": drop,
                    "kept": None if drop is None else [edges(0), edges(1)],
                    "embeddings": all_types(h),
                    "logits": all_types(logits),
                    "terms": rounded(terms),
                    "gradients": tensors(g2),
                }
            )
    return second


second = runs_of(p2)


def stored(relations):
    return [
        {
            **{key: r[key] for key in ("name", "stream", "primary", "one_way")},
            "src": TYPES.index(r["src"]),
            "dst": TYPES.index(r["dst"]),
            "row_ptr": [sum(i < row for i, _ in r["edges"]) for row in range(COUNT[r["dst"]] + 1)],
            "col_idx": [j for _, j in r["edges"]],
        }
        for r in relations
    ]


def second_stage(parameters):
    return {
        "parameters": tensors(parameters),
        "labels": [[OFFSET[t] + n, y] for t, n, y in labels],
        "smooth": [{"relation": RELATIONS.index(r), "dst": [e[0] for e in es], "src": [e[1] for e in es]} for r, es in smooth],
        "lambda_unsup": 0.5,
        "runs": second,
    }


golden = {
    "types": [[t, COUNT[t]] for t in TYPES],
    "relations": stored(RELATIONS),
    "widths": WIDTHS,
    "features": all_types(X),
    "stage1": first,
    "stage2": second_stage(p2),
}

# A graph without loops, where a shop is nobody's destination: every type has a transform of its nodes themselves.
RELATIONS = [
    buys,
    reverse(buys),
    relation("sells", "shop", "item", "sells", sold, one_way=True),
    relation("knows", "user", "user", "knows", [e for e in knows if e[0] != e[1]]),
    relation("follows", "user", "user", "knows", [e for e in follows if e[0] != e[1]], one_way=True),
]
p2 = stage2_parameters(own=True)
smooth = [(r, sorted(set(r["edges"]))[1::2]) for r in RELATIONS if r["primary"]]
second = runs_of(p2)
golden["without_loops"] = {"relations": stored(RELATIONS), "stage2": second_stage(p2)}
# The same with gates, normalised rows, and a head that reads both layers.
for _ in range(10_000):
    p2 = stage2_parameters(own=True, connected=True)
    try:
        for heads in (1, 2):
            for drop in DROPS:
                stage2(p2, heads, masks(drop), labels, smooth, 0.5)
    except (Even, AssertionError):
        continue
    break
second = runs_of(p2)
golden["connected"] = second_stage(p2)

# Edges that carry something: both directions of `buys` the same values, `sells` ages of its own, and `knows` a value
# and an age by the times of its users, which may be negative.
by_name = {r["name"]: r for r in RELATIONS}
tensor = lambda r, width: np.array([matrix(r["counts"].shape[1], width) for _ in range(len(r["counts"]))])
by_name["buys"]["values"] = tensor(buys, 2)
by_name["buys_T"]["values"] = by_name["buys"]["values"].transpose(1, 0, 2)
by_name["sells"]["age"] = np.abs(matrix(*by_name["sells"]["counts"].shape, 4.0))
by_name["knows"]["values"] = tensor(by_name["knows"], 1)
times = [draw.randrange(7) for _ in range(sum(COUNT.values()))]
of_users = np.array(times[: COUNT["user"]], float)
by_name["knows"]["age"] = of_users[:, None] - of_users[None, :]
for _ in range(10_000):
    p2 = stage2_parameters(own=True)
    try:
        for heads in (1, 2):
            for drop in DROPS:
                stage2(p2, heads, masks(drop), labels, smooth, 0.5)
    except AssertionError:
        continue
    break
second = runs_of(p2)
of_edges = lambda name, key: rounded([by_name[name][key][edge] for edge in by_name[name]["edges"]])
golden["carried"] = {
    "values": {name: of_edges(name, "values") for name in ("buys", "knows")},
    "ages": {"sells": of_edges("sells", "age")},
    "times": times,
    "cosines": COSINES,
    "stage2": second_stage(p2),
}
pathlib.Path(sys.argv[1]).write_text(json.dumps(golden, separators=(",", ":")) + "\n")
