"""Training on sequences, graphs and tables as tutorials write it: nothing is wrong with it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import mlp


@healthy(family="truncated backpropagation through time")
def a_state_carried_from_window_to_window():
    """The hidden state is carried on from batch to batch, detached."""
    cell, head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 8)
    parameters = [*cell.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    signal = torch.randn(4, 61, 8)
    with tm.trace(namespace=locals()) as trace:
        state, total = None, 0.0
        for start in range(0, 60, 15):
            x, y = signal[:, start : start + 15], signal[:, start + 1 : start + 16]
            output, state = cell(x, state)
            state = tuple(part.detach() for part in state)
            loss = F.mse_loss(head(output), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.25)
            optimizer.step()
            total += loss.item()
    return trace.report


@healthy(family="sequence to sequence with teacher forcing")
def translation_with_teacher_forcing():
    """In half of the steps the decoder reads its own last guess, detached, instead of the right token."""
    embed, encoder, decoder = nn.Embedding(20, 16), nn.GRU(16, 16, batch_first=True), nn.GRUCell(16, 16)
    head = nn.Linear(16, 20)
    parameters = [p for module in (embed, encoder, decoder, head) for p in module.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for step in range(4):
            source = torch.randint(20, (8, 6))
            target = source.flip(1)
            _, hidden = encoder(embed(source))
            hidden, token, loss = hidden[0], torch.zeros(8, dtype=torch.long), 0
            for at in range(target.size(1)):
                hidden = decoder(embed(token), hidden)
                scores = head(hidden)
                loss += F.cross_entropy(scores, target[:, at])
                token = target[:, at] if step % 2 else scores.topk(1).indices.squeeze(1).detach()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


class TinyGPT(nn.Module):
    """A transformer language model whose embedding is also its last layer."""

    def __init__(self, words=30, width=16, length=12):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        length = x.size(1)
        hidden = self.tokens(x) + self.places(torch.arange(length))
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.norm(self.blocks(hidden, mask=mask, is_causal=True)))


@healthy(family="transformer language model")
def a_language_model_that_writes_in_between():
    """Accumulated over two batches, clipped, with a cosine schedule; then it generates under no_grad."""
    model = TinyGPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            for _ in range(2):
                text = torch.randint(30, (4, 13))
                logits = model(text[:, :-1])
                loss = F.cross_entropy(logits.reshape(-1, 30), text[:, 1:].reshape(-1)) / 2
                loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        model.eval()
        written = torch.zeros(1, 1, dtype=torch.long)
        with torch.no_grad():
            for _ in range(4):
                p = F.softmax(model(written)[:, -1], dim=-1)
                written = torch.cat([written, torch.multinomial(p, 1)], dim=1)
    return trace.report


@healthy(family="mixture of experts")
def a_mixture_of_experts():
    """Each token goes to one expert; an expert that nobody chose gets no gradient in that step."""
    gate, experts = nn.Linear(8, 4), nn.ModuleList(mlp(8, 16, 8) for _ in range(4))
    optimizer = torch.optim.Adam([*gate.parameters(), *experts.parameters()], lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(6):
            x = torch.randn(24, 8)
            weights, chosen = gate(x).softmax(dim=-1).max(dim=-1)
            y = torch.zeros_like(x)
            for number, expert in enumerate(experts):
                rows = (chosen == number).nonzero(as_tuple=True)[0]
                if len(rows):
                    y = y.index_add(0, rows, weights[rows, None] * expert(x[rows]))
            loss = F.mse_loss(y, x.flip(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


class GraphConvolution(nn.Module):
    """Adds up what the neighbours say, and divides by how many they are."""

    def __init__(self, before, after):
        super().__init__()
        self.linear = nn.Linear(before, after)

    def forward(self, x, edges):
        source, target = edges
        summed = torch.zeros(x.size(0), x.size(1)).index_add_(0, target, x[source])
        degree = torch.zeros(x.size(0)).index_add_(0, target, torch.ones(len(target)))
        return self.linear(summed / degree.clamp(min=1).unsqueeze(1))


@healthy(family="graph neural network")
def node_classification_on_a_graph():
    """The loss is taken on the nodes of the training mask alone; there are nodes without neighbours."""
    first, second = GraphConvolution(6, 16), GraphConvolution(16, 3)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-2, weight_decay=5e-4)
    x, edges, y = torch.randn(30, 6), torch.randint(25, (2, 80)), torch.randint(3, (30,))
    train_mask = torch.rand(30) < 0.5
    with tm.trace(namespace=locals()) as trace:
        for _ in range(5):
            optimizer.zero_grad()
            hidden = F.dropout(F.relu(first(x, edges)), 0.5)
            logits = second(hidden, edges)
            loss = F.cross_entropy(logits[train_mask], y[train_mask])
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="matrix factorisation")
def matrix_factorisation():
    """Ratings as dot products of embeddings with biases; most rows get no gradient in a step."""
    users, items = nn.Embedding(200, 8), nn.Embedding(100, 8)
    biases = nn.Embedding(200, 1)
    parameters = [*users.parameters(), *items.parameters(), *biases.parameters()]
    optimizer = torch.optim.Adagrad(parameters, lr=0.05)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(5):
            user, item, rating = torch.randint(200, (32,)), torch.randint(100, (32,)), torch.rand(32) * 5
            guess = (users(user) * items(item)).sum(1) + biases(user).squeeze(1)
            loss = F.mse_loss(guess, rating)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="word vectors")
def skip_gram_with_negative_samples():
    """Sparse gradients, two sparse optimizers."""
    centre, context = nn.Embedding(300, 16, sparse=True), nn.Embedding(300, 16, sparse=True)
    optimizers = [torch.optim.SparseAdam(table.parameters(), lr=0.01) for table in (centre, context)]
    with tm.trace(namespace=locals()) as trace:
        for _ in range(4):
            word, near, far = torch.randint(300, (32,)), torch.randint(300, (32,)), torch.randint(300, (32, 5))
            v = centre(word)
            positive = F.logsigmoid((v * context(near)).sum(1))
            negative = F.logsigmoid(-(context(far) @ v.unsqueeze(2)).squeeze(2)).sum(1)
            loss = -(positive + negative).mean()
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
    return trace.report


class TextCNN(nn.Module):
    """Kim's sentence classifier: windows of several widths, the maximum over time of each."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 16, padding_idx=0)
        self.windows = nn.ModuleList(nn.Conv1d(16, 8, width) for width in (2, 3, 4))
        self.dropout, self.head = nn.Dropout(0.5), nn.Linear(24, 2)

    def forward(self, tokens):
        x = self.embed(tokens).transpose(1, 2)
        pooled = [F.relu(window(x)).max(dim=2).values for window in self.windows]
        return self.head(self.dropout(torch.cat(pooled, dim=1)))


@healthy(family="text classification with convolutions")
def text_classification_with_convolutions():
    """Padding's row gets exactly zero, always: meant."""
    model = TextCNN()
    optimizer = torch.optim.Adadelta(model.parameters())
    with tm.trace(namespace=locals()) as trace:
        for _ in range(4):
            tokens, labels = torch.randint(1, 100, (16, 12)), torch.randint(2, (16,))
            tokens[:, 9:] = 0
            optimizer.zero_grad()
            F.cross_entropy(model(tokens), labels).backward()
            optimizer.step()
    return trace.report


class AttentionPooling(nn.Module):
    """Words of different sentences, weighted by a score, those that are padding masked out."""

    def __init__(self):
        super().__init__()
        self.embed, self.score, self.head = nn.Embedding(100, 16), nn.Linear(16, 1), nn.Linear(16, 2)

    def forward(self, tokens, lengths):
        x = self.embed(tokens)
        padding = torch.arange(tokens.size(1))[None] >= lengths[:, None]
        weights = self.score(x).squeeze(-1).masked_fill(padding, float("-inf")).softmax(dim=1)
        return self.head((weights.unsqueeze(-1) * x).sum(1))


@healthy(family="text classification with attention")
def text_classification_with_attention():
    """The score's bias shifts all scores alike: the softmax takes it away, and its gradient is zero up to rounding."""
    model = AttentionPooling()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(4):
            lengths = torch.randint(1, 10, (16,))
            optimizer.zero_grad()
            F.cross_entropy(model(torch.randint(100, (16, 10)), lengths), torch.randint(2, (16,))).backward()
            optimizer.step()
    return trace.report


@healthy(family="padded sequences")
def padded_sequences_packed():
    """Batches of another length each time; the loss leaves padding out."""
    embed, cell, head = nn.Embedding(50, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 5)
    optimizer = torch.optim.Adam([*embed.parameters(), *cell.parameters(), *head.parameters()])
    with tm.trace(namespace=locals()) as trace:
        for longest in (5, 9, 7, 12):
            lengths = torch.tensor([longest, longest - 2, 3, 2])
            tokens, tags = torch.randint(1, 50, (4, longest)), torch.randint(5, (4, longest))
            tags[torch.arange(longest)[None] >= lengths[:, None]] = -100
            packed = nn.utils.rnn.pack_padded_sequence(embed(tokens), lengths, batch_first=True)
            output, _ = nn.utils.rnn.pad_packed_sequence(cell(packed)[0], batch_first=True)
            loss = F.cross_entropy(head(output).flatten(0, 1), tags.flatten(), ignore_index=-100)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="speech recognition with CTC")
def speech_recognition_with_ctc():
    net = nn.GRU(13, 16, batch_first=True)
    head = nn.Linear(16, 6)
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=1e-3)
    ctc = nn.CTCLoss(blank=0, zero_infinity=True)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(3):
            frames, words = torch.randn(4, 20, 13), torch.randint(1, 6, (4, 5))
            log_p = head(net(frames)[0]).log_softmax(-1).transpose(0, 1)
            loss = ctc(log_p, words, torch.full((4,), 20), torch.full((4,), 5))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="sequence tagging with a conditional random field")
def a_conditional_random_field():
    """The forward algorithm by hand, with logsumexp."""
    emit = nn.Linear(8, 4)
    transitions = nn.Parameter(torch.zeros(4, 4))
    optimizer = torch.optim.SGD([*emit.parameters(), transitions], lr=0.1)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(3):
            x, tags = torch.randn(10, 8), torch.randint(4, (10,))
            scores = emit(x)
            alpha = scores[0]
            for score in scores[1:]:
                alpha = torch.logsumexp(alpha[:, None] + transitions, dim=0) + score
            gold = scores[torch.arange(10), tags].sum() + transitions[tags[:-1], tags[1:]].sum()
            loss = torch.logsumexp(alpha, dim=0) - gold
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="time series forecasting")
def forecasting_a_sine():
    """Windows of one long series; the next value of each."""
    model = nn.Sequential(nn.Conv1d(1, 8, 5, dilation=2), nn.GELU(), nn.Flatten(), nn.Linear(96, 1))
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)
    criterion = nn.HuberLoss()
    series = torch.sin(torch.arange(200) * 2 * math.pi / 25) + 0.1 * torch.randn(200)
    losses = []
    with tm.trace(namespace=locals()) as trace:
        for start in range(0, 160, 32):
            windows = series[start : start + 52].unfold(0, 21, 1)
            prediction = model(windows[:, None, :20]).squeeze(-1)
            loss = criterion(prediction, windows[:, 20])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean().item()
    assert mean > 0
    return trace.report


@healthy(family="learning to rank")
def learning_to_rank():
    """RankNet's loss on the pairs of one list; pairs of equal grade are masked."""
    model = mlp(6, 16, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(4):
            documents, grade = torch.randn(12, 6), torch.randint(3, (12,)).float()
            score = model(documents)
            difference, wanted = score - score.t(), (grade[:, None] - grade[None]).sign()
            loss = F.softplus(-difference * wanted)[wanted != 0].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report
