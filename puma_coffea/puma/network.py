"""The network: embedding, transformer layers with banded attention, one weight per candidate.

Read from the bottom: :class:`PumaNetwork` is the whole, :class:`Layer` its repeated part,
:func:`banded_attention` the only thing that is not textbook. Shapes in comments: B events of a
batch, N places of the sequence, F inputs, D width, H heads, d = D / H.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

BLOCK = 16  # queries that share one window of keys; the fastest on CPUs for bands of 10 to 40
MASKED = -1e30  # score of a key that must not be seen: its softmax is exactly 0


@dataclass(frozen=True)
class NetworkConfig:
    """Everything that decides the shapes of a network's parameters, and how they are used."""

    inputs: int = 11
    """Number of features of a candidate."""
    width: int = 64
    """Numbers that stand for a candidate between the layers."""
    heads: int = 4
    """Parts of the attention; the width is a multiple of them."""
    layers: int = 6
    """Transformer layers, at least 1."""
    groups: int = 6
    """Sets of weights; layer i uses set i * groups // layers. Equal to layers: no sharing."""
    band: int = 15
    """One-sided: a candidate attends to this many before and after itself, and to itself."""
    feed_forward: int = 128
    """Width inside the second half of a layer."""
    norm: str = "pre"
    """LayerNorm before each part of a layer ("pre", and once at the end) or after ("post")."""
    norm_eps: float = 1e-5
    """Added to the variance in LayerNorm."""
    dropout: float = 0.0
    """Share of numbers that training sets to zero."""

    def __post_init__(self) -> None:
        problems = [
            (self.norm not in ("pre", "post"), f"norm must be 'pre' or 'post', not {self.norm!r}"),
            (
                min(self.inputs, self.width, self.heads, self.feed_forward) < 1,
                "inputs, width, heads and feed_forward must be at least 1",
            ),
            (self.width % max(self.heads, 1) != 0, "width must be a multiple of heads"),
            (not 1 <= self.groups <= self.layers, "groups must be between 1 and layers"),
            (self.band < 0, "band must not be negative"),
            (not 0 <= self.dropout < 1, "dropout must be in [0, 1)"),
        ]
        for wrong, sentence in problems:
            if wrong:
                raise ValueError(sentence)


PRESETS: dict[str, NetworkConfig] = {
    # 127,063 parameters; the paper's text says 127,074, which no arrangement of these parts gives.
    "paper": NetworkConfig(
        layers=12, groups=5, feed_forward=64, norm="post", norm_eps=1e-12, dropout=0.0
    ),
    "default": NetworkConfig(),
}


class PumaNetwork(nn.Module):
    """From features of candidates in the order of their sequence to weights in [0, 1].

    Calling it gives weights; :meth:`logits` gives what a training loss wants. The inputs are
    normalised inside, so a file of parameters is complete. Padding (``mask`` False) never
    changes the result of a real candidate beyond rounding: matrix products may sum in another
    order when their size changes (1e-6). One event by itself needs no mask.

    Parameters
    ----------
    config
        Shapes; ``PRESETS`` has two.

    Examples
    --------
    >>> network = PumaNetwork(PRESETS["paper"]).eval()
    >>> sum(p.numel() for p in network.parameters())
    127063
    >>> network(torch.zeros(1, 500, 11)).shape
    torch.Size([1, 500])
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.band, self.block = config.band, BLOCK
        self.input_norm = MaskedBatchNorm(config.inputs)
        self.embed = nn.Linear(config.inputs, config.width)
        self.embed_norm = MaskedBatchNorm(config.width)
        uses = [i * config.groups // config.layers for i in range(config.layers)]
        self.layers = nn.ModuleList(Layer(config, uses.count(g)) for g in range(config.groups))
        pre = config.norm == "pre"
        self.final_norm = nn.LayerNorm(config.width, config.norm_eps) if pre else nn.Identity()
        self.decode = nn.Linear(config.width, 1)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Weights in [0, 1]; 0 for padding.

        Parameters
        ----------
        x
            Features, (B, N, F), B of 1 or more, N of 0 or more.
        mask
            bool (B, N), True for candidates, False for padding; None: no padding.

        Returns
        -------
        torch.Tensor
            (B, N).
        """
        weights = torch.sigmoid(self.logits(x, mask))
        return weights if mask is None else weights.masked_fill(~mask, 0.0)

    @torch.jit.export
    def logits(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Logits of the weights, (B, N); those of padding mean nothing."""
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        length = x.shape[1]
        # Two blocks at least: torch.export would take a single one for a broadcast dimension.
        extra = 2 * self.block - length % self.block
        mask = functional.pad(mask, [0, extra])
        x = functional.pad(x, [0, 0, 0, extra])
        x = x.masked_fill(~mask.unsqueeze(-1), 0.0)  # padding may hold anything, even NaN
        h = self.embed_norm(torch.relu(self.embed(self.input_norm(x, mask))), mask)
        bias = band_bias(mask, self.band, h.dtype)
        for layer in self.layers:
            h = layer(h, bias)
        return self.decode(self.final_norm(h)).squeeze(-1)[:, :length]  # type: ignore[no-any-return]


class Layer(nn.Module):
    """A transformer layer, used ``repeats`` times in a row."""

    def __init__(self, config: NetworkConfig, repeats: int) -> None:
        super().__init__()
        self.repeats = repeats
        self.heads, self.band = config.heads, config.band
        self.pre = config.norm == "pre"
        self.attention_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.query_key_value = nn.Linear(config.width, 3 * config.width)
        self.attention_out = nn.Linear(config.width, config.width)
        self.feed_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.feed = nn.Linear(config.width, config.feed_forward)
        self.feed_out = nn.Linear(config.feed_forward, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, h: Tensor, bias: Tensor) -> Tensor:
        """(B, N, D) to (B, N, D); ``bias`` is from :func:`band_bias`."""
        for _ in range(self.repeats):
            if self.pre:
                h = h + self.dropout(self.attend(self.attention_norm(h), bias))
                h = h + self.dropout(self.feed_through(self.feed_norm(h)))
            else:
                h = self.attention_norm(h + self.dropout(self.attend(h, bias)))
                h = self.feed_norm(h + self.dropout(self.feed_through(h)))
        return h

    def attend(self, h: Tensor, bias: Tensor) -> Tensor:
        mixed = banded_attention(self.query_key_value(h), bias, self.heads, self.band)
        return self.attention_out(mixed)  # type: ignore[no-any-return]

    def feed_through(self, h: Tensor) -> Tensor:
        return self.feed_out(functional.gelu(self.feed(h), approximate="tanh"))  # type: ignore[no-any-return]


def band_bias(
    mask: Tensor, band: int, dtype: torch.dtype, block: int = BLOCK, masked: float = MASKED
) -> Tensor:
    """What is added to the scores, the same in all layers: 0 where a query sees a key.

    Parameters
    ----------
    mask
        bool (B, N), False for padding; N is a multiple of ``block``.
    band
        One-sided width w.
    dtype
        Of the scores.
    block, masked
        Constants (TorchScript takes them as arguments only).

    Returns
    -------
    torch.Tensor
        (B, 1, N / block, block, block + 2 w).
    """
    window = block + 2 * band
    seen = functional.pad(mask, [band, band]).unfold(1, window, block)  # (B, N / block, window)
    query = torch.arange(block, device=mask.device).unsqueeze(1)
    key = torch.arange(window, device=mask.device).unsqueeze(0) - band
    seen = seen.unsqueeze(1).unsqueeze(3) & ((key - query).abs() <= band)
    return torch.zeros(seen.shape, dtype=dtype, device=mask.device).masked_fill(~seen, masked)


def banded_attention(qkv: Tensor, bias: Tensor, heads: int, band: int) -> Tensor:
    """Softmax attention of each place to the ``band`` before it, itself, and the ``band`` after.

    Queries are taken in blocks; a block's keys are one window of block + 2 w places. The heads
    of all events lie one behind the other in memory, so all windows are one strided view; what
    a window sees of its neighbours in memory, ``bias`` hides.

    Parameters
    ----------
    qkv
        Queries, keys and values side by side, (B, N, 3 D); N is a multiple of the block.
    bias
        From :func:`band_bias`.
    heads, band
        H and w.

    Returns
    -------
    torch.Tensor
        (B, N, D).
    """
    batch, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    size, block, window = width // heads, bias.shape[3], bias.shape[4]
    apart = qkv.reshape(batch, length, 3, heads, size).permute(2, 0, 3, 1, 4)
    q, k, v = apart.reshape(3, batch * heads * length, size).unbind(0)
    q = q.reshape(-1, block, size) * size**-0.5  # (B H N / block, block, d)
    edge = torch.zeros([band, size], dtype=qkv.dtype, device=qkv.device)
    k = torch.cat([edge, k, edge]).unfold(0, window, block)  # (B H N / block, d, window)
    v = torch.cat([edge, v, edge]).unfold(0, window, block).transpose(1, 2)
    scores = torch.bmm(q, k).reshape(batch, heads, -1, block, window).add_(bias)
    shares = torch.softmax(scores, dim=-1).reshape(-1, block, window)
    mixed = torch.bmm(shares, v).reshape(batch, heads, length, size)
    return mixed.transpose(1, 2).reshape(batch, length, width)


class MaskedBatchNorm(nn.BatchNorm1d):
    """BatchNorm over the real candidates of a batch: padding does not enter the statistics."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        """Normalise x of (B, N, C); ``mask`` is bool (B, N)."""
        update = self.training and bool(mask.sum() > 1)  # a single candidate has no variance
        real = x[mask] if update else x.reshape(-1, x.shape[2])
        real = functional.batch_norm(
            real,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            update,
            0.1,
            self.eps,
        )
        if update:
            return torch.zeros_like(x).masked_scatter(mask.unsqueeze(-1), real)
        return real.reshape(x.shape)
