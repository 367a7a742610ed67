"""Those of places in space, of molecules and of systems that move: (weights, inputs ...) -> the loss."""
import math

import torch
import torch.nn.functional as F


def nerf(w, origin, direction, color):
    near, far, samples = 2, 6, 12
    width = (far - near) / samples
    middle = near + width * (torch.arange(samples, dtype=torch.float64) + 0.5)
    point = origin[:, None] + middle[:, None] * direction[:, None]
    angle = (point.unsqueeze(-1) * 2.0 ** torch.arange(4)).flatten(-2)
    at = torch.cat([angle.sin(), angle.cos()], -1)
    x = F.relu(at @ w["w_in"] + w["b_in"])
    for i in range(6):
        name, seen = (f"skip.{i}", torch.cat([x, at], -1)) if i == 4 else (f"layer.{i}", x)
        x = F.relu(seen @ w[f"{name}.w"] + w[f"{name}.b"])
    thick = width * F.softplus(x @ w["w_sigma"] + w["b_sigma"])
    seen = torch.cat([x, direction[:, None].expand(-1, samples, -1)], -1)
    tint = torch.sigmoid(F.relu(seen @ w["w_view"] + w["b_view"]) @ w["w_color"] + w["b_color"])
    pixel, left = 0, 1
    for n in range(samples):
        stopped = 1 - (-thick[:, n:n + 1]).exp()
        pixel, left = pixel + left * stopped * tint[:, n], left * (1 - stopped)
    return F.mse_loss(pixel, color)


def egnn(w, kind, place, real, energy):
    h, at, atoms = w["kinds"][kind], place, kind.shape[1]
    pairs = [(i, j) for i in range(atoms) for j in range(atoms) if i != j]
    for n in range(2):
        own = {name[len(f"h.{n}."):]: value for name, value in w.items() if name.startswith(f"h.{n}.")}
        sums, moves = [torch.zeros_like(h[:, 0])] * atoms, [torch.zeros_like(at[:, 0])] * atoms
        for i, j in pairs:
            away = at[:, i] - at[:, j]
            far = (away * away).sum(-1, keepdim=True)
            inner = F.silu(h[:, i] @ own["w_own"] + h[:, j] @ own["w_other"] + far * own["w_far"] + own["b_edge"])
            message = F.silu(inner @ own["w_edge"]) * real[:, j:j + 1]
            push = torch.tanh(F.silu(message @ own["w_move"]) @ own["v_move"]).unsqueeze(-1) / (far + 1).sqrt()
            sums[i], moves[i] = sums[i] + message, moves[i] + away * push * real[:, j:j + 1]
        at = at + torch.stack(moves, 1) / (atoms - 1)
        h = h + F.silu(h @ own["w_node"] + torch.stack(sums, 1) @ own["w_seen"] + own["b_node"]) @ own["w_back"]
    each = h @ w["w_out"] + 0.1 * (at * at).sum(-1)
    guess = (each * real).sum(1) / real.sum(1).clamp(min=1)
    return (guess - energy).abs().mean()


def evoformer(w, sequence, far):
    def plain(x):
        return F.layer_norm(x, x.shape[-1:])

    def attend(x, own, bias=None):
        q, k, v = (torch.einsum("...sw,whd->...hsd", x, own[name]) for name in ("wq", "wk", "wv"))
        y = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1]**0.5 + (0 if bias is None else bias), -1) @ v
        y = y * torch.einsum("...sw,whd->...hsd", x, own["wg"]).sigmoid() if "wg" in own else y
        return torch.einsum("...hsd,hdw->...sw", y, own["wo"])

    def of(name):
        return {key[len(name) + 1:]: value for key, value in w.items() if key.startswith(f"{name}.")}

    x, first, places = w["kinds"][sequence], sequence[:, 0], torch.arange(sequence.shape[2])
    z = w["left"][first][:, :, None] + w["right"][first][:, None] + w["near"][(places[:, None] - places).abs().clamp(max=len(w["near"]) - 1)]
    for n in range(2):
        bias = torch.einsum("bijp,ph->bhij", plain(z), w[f"scores.{n}.w"])[:, None]
        x = x + attend(plain(x), of(f"along.{n}"), bias)
        x = x + attend(plain(x).transpose(1, 2), of(f"column.{n}")).transpose(1, 2)
        own, y = of(f"products.{n}"), plain(x)
        z = z + torch.einsum("bria,brjc,acp->bijp", y @ own["w_from"], y @ own["w_to"], own["wo"]) / x.shape[1]
        for way, sides in (("out", "bikl,bjkl->bijl"), ("in", "bkil,bkjl->bijl")):
            own, y = of(f"{way}.{n}"), plain(z)
            a, b = ((y @ own[f"g_{side}"]).sigmoid() * (y @ own[f"w_{side}"]) for side in "ab")
            z = z + plain(torch.einsum(sides, a, b)) @ own["wo"] * (y @ own["gate"]).sigmoid()
    one_way = z @ w["w_out"]
    return F.mse_loss(one_way + one_way.transpose(1, 2), far)


def kalman(w, value, seen):
    """The measurements are numbers of one Gaussian distribution, whose covariance follows from the system."""
    move, sight, times = w["move"], w["sight"], value.shape[1]
    spreads, states = [], torch.eye(len(sight), dtype=value.dtype)
    for _ in range(times):
        states = move.T @ states @ move + torch.diag(w["log_q"].exp())
        spreads.append(states)
    rows = [[sight @ torch.linalg.matrix_power(move.T, abs(s - t)) @ spreads[min(s, t)] @ sight for t in range(times)] for s in range(times)]
    covariance = torch.stack([torch.stack(row) for row in rows]) + w["log_r"].exp() * torch.eye(times, dtype=value.dtype)
    likely = []
    for row, known in zip(value, seen):
        some = torch.distributions.MultivariateNormal(torch.zeros(int(known.sum()), dtype=value.dtype), covariance[known][:, known])
        likely.append(some.log_prob(row[known]) + known.sum() * math.log(2 * math.pi) / 2 if known.any() else value.new_zeros(()))
    return -torch.stack(likely).mean()
