"""Libraries that own the training loop, or a part of it."""

from __future__ import annotations

import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.ecosystem.libraries import library


def digits(count=64):
    """Return pictures of 8 × 8 in ten classes, as vectors."""
    return torch.randn(count, 64), torch.randint(0, 10, (count,))


def mlp():
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))


@library(
    "lightning", "`Trainer.fit` with validation, clipping and a scheduler; `Fabric`",
    gaps=("the names were not searched again",),  # thousands of modules are imported: that takes long
)  # fmt: skip
def lightning():
    import lightning as L

    class Classifier(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = mlp()

        def training_step(self, batch, _):
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, _):
            self.log("validation", F.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), 1e-2)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    data = TensorDataset(*digits())
    model = Classifier()
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_epochs=2, gradient_clip_val=1.0, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=folder, accelerator="cpu", num_sanity_val_steps=0,
        )  # fmt: skip
        trainer.fit(model, DataLoader(data, 16, shuffle=True), DataLoader(data, 32))
    fabric = L.Fabric(accelerator="cpu", precision="bf16-mixed")
    net, optimizer = fabric.setup(mlp(), torch.optim.SGD(model.parameters(), 0.1))
    optimizer = fabric.setup_optimizers(torch.optim.SGD(net.parameters(), 0.1))
    for x, y in DataLoader(data, 32):
        optimizer.zero_grad()
        fabric.backward(F.cross_entropy(net(x), y))
        optimizer.step()
    return model.state_dict(), net.state_dict(), trainer.callback_metrics


class Sentences(torch.utils.data.Dataset):
    """Random tokens with a label, as a dictionary each."""

    def __init__(self, count=32):
        self.tokens = torch.randint(1, 100, (count, 12))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, at):
        return {"input_ids": self.tokens[at], "labels": self.tokens[at, 0] % 2}


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=16, num_labels=2,
    ))  # fmt: skip


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(
        vocab_size=100, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
    ))  # fmt: skip


@library("transformers", "`Trainer.train` on BERT, accumulated; GPT-2 with gradient checkpointing, then `generate`")
def transformers():
    from transformers import Trainer, TrainingArguments

    model = bert()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=6, per_device_train_batch_size=4, gradient_accumulation_steps=2, report_to=[],
            disable_tqdm=True, use_cpu=True, save_strategy="no", logging_strategy="no", seed=7, data_seed=7,
        )  # fmt: skip
        result = Trainer(model=model, args=arguments, train_dataset=Sentences()).train()
    language = gpt2()
    language.gradient_checkpointing_enable()
    language.train()
    optimizer = torch.optim.AdamW(language.parameters(), 1e-3)
    tokens = torch.randint(1, 100, (4, 12))
    for _ in range(3):
        language(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    written = language.eval().generate(tokens[:, :4], max_new_tokens=4, do_sample=True, pad_token_id=0)
    return model.state_dict(), result.training_loss, language.state_dict(), written


@library("accelerate", "`prepare`, `accumulate`, `backward`, `clip_grad_norm_`")
def accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = bert()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
    net, optimizer, data, scheduler = accelerator.prepare(model, optimizer, DataLoader(Sentences(), 8), scheduler)
    losses = []
    for _ in range(2):
        for batch in data:
            with accelerator.accumulate(net):
                loss = net(**batch).loss
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                losses.append(loss.item())
    return model.state_dict(), losses


@library("peft", "LoRA on GPT-2: training, disabling, merging")
def peft():
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(gpt2(), LoraConfig(r=4, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True))
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], 1e-2)
    tokens = torch.randint(1, 100, (4, 12))
    for _ in range(4):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with model.disable_adapter(), torch.no_grad():
        without = model(input_ids=tokens).logits
    return model.merge_and_unload().state_dict(), without, loss.item()


@library("skorch", "`NeuralNetClassifier.fit` and `predict_proba`")
def skorch():
    from skorch import NeuralNetClassifier

    x, y = digits()
    net = NeuralNetClassifier(
        mlp, max_epochs=3, lr=0.1, criterion=nn.CrossEntropyLoss, optimizer=torch.optim.Adam, verbose=0, batch_size=16
    )
    net.fit(x.numpy(), y.numpy())
    return net.module_.state_dict(), torch.from_numpy(net.predict_proba(x.numpy())), net.history[:, "train_loss"]


@library("pytorch-ignite", "a supervised trainer, an evaluator, metrics, an exponential average of the weights")
def ignite():
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.handlers import EMAHandler
    from ignite.metrics import Accuracy, Loss

    data, net = TensorDataset(*digits()), mlp()
    trainer = create_supervised_trainer(net, torch.optim.SGD(net.parameters(), 0.1), nn.CrossEntropyLoss())
    evaluator = create_supervised_evaluator(net, {"accuracy": Accuracy(), "loss": Loss(nn.CrossEntropyLoss())})
    average = EMAHandler(net, momentum=0.1)
    average.attach(trainer, event=Events.ITERATION_COMPLETED)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(DataLoader(data, 32)))
    trainer.run(DataLoader(data, 16), max_epochs=2)
    return net.state_dict(), average.ema_model.state_dict(), evaluator.state.metrics


@library("torchmetrics", "metrics in the loop, and a metric as the loss")
def torchmetrics():
    from torchmetrics import MetricCollection
    from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix
    from torchmetrics.image import StructuralSimilarityIndexMeasure

    x, y = digits()
    net, metrics = mlp(), MetricCollection([MulticlassAccuracy(10), MulticlassConfusionMatrix(10)])
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(3):
        out = net(x)
        metrics.update(out, y)
        optimizer.zero_grad()
        F.cross_entropy(out, y).backward()
        optimizer.step()
    similarity = StructuralSimilarityIndexMeasure(data_range=1.0)
    picture = nn.Parameter(torch.rand(1, 1, 16, 16))
    (1 - similarity(picture, torch.rand(1, 1, 16, 16))).backward()
    return net.state_dict(), metrics.compute(), picture.grad


@library("opacus", "`PrivacyEngine.make_private`: gradients per sample, clipped, with noise")
def opacus():
    from opacus import PrivacyEngine

    net, data = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)), DataLoader(TensorDataset(*digits()), 16)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net, optimizer, data = PrivacyEngine().make_private(
        module=net, optimizer=optimizer, data_loader=data, noise_multiplier=1.0, max_grad_norm=1.0
    )
    for x, y in data:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net.state_dict()


@library("torchao", "quantization-aware training, then 8-bit weights")
def torchao():
    from torchao.quantization import Int8WeightOnlyConfig, quantize_
    from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig

    x, y = digits()
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    weight = IntxFakeQuantizeConfig(torch.int8, group_size=32)
    quantize_(net, QATConfig(weight_config=weight, step="prepare"))
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    quantize_(net, QATConfig(step="convert"))
    trained = {name: each.clone() for name, each in net.state_dict().items()}
    quantize_(net, Int8WeightOnlyConfig(version=2))
    with torch.no_grad():
        return trained, net(x)
