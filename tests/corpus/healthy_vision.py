"""Training on images and features as tutorials write it, with their usual habits: nothing is wrong with it."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.utils.data import DataLoader, TensorDataset, random_split

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, digits, mlp


@healthy(family="a classifier with validation and early stopping")
def a_classifier_with_validation_and_early_stopping():
    """The loop of every first tutorial: loaders, train and eval mode, a running loss, the best weights kept."""
    images, classes = digits()
    train_set, valid_set = random_split(TensorDataset(images[:320], classes[:320]), [256, 64])
    train_loader, valid_loader = DataLoader(train_set, 64, shuffle=True), DataLoader(valid_set, 64)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2),
                          nn.Linear(32, 10))  # fmt: skip
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    best, waited, history = float("inf"), 0, []
    with tm.trace(namespace=locals()) as trace:
        for _ in range(4):
            model.train()
            running_loss = 0.0
            for inputs, labels in train_loader:
                optimizer.zero_grad()
                loss = criterion(model(inputs), labels)
                loss.backward()
                optimizer.step()
                running_loss += loss.item() * inputs.size(0)
            scheduler.step()
            history.append(running_loss / len(train_set))
            model.eval()
            correct, valid_loss = 0, 0.0
            with torch.no_grad():
                for inputs, labels in valid_loader:
                    outputs = model(inputs)
                    valid_loss += criterion(outputs, labels).item()
                    correct += (outputs.argmax(1) == labels).sum().item()
            if valid_loss < best:
                best, waited, state = valid_loss, 0, copy.deepcopy(model.state_dict())
            else:
                waited += 1
            if waited > 2:
                break
        model.load_state_dict(state)
    return trace.report


class UNet(nn.Module):
    """Down, up, and a skip connection."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU())
        self.middle = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 1, 1)

    def forward(self, x):
        skip = self.down(x)
        return self.out(torch.cat([skip, self.up(self.middle(skip))], dim=1))


@healthy(family="segmentation with a U-Net")
def segmentation_with_a_u_net():
    """Cross entropy and a soft Dice loss on masks."""
    model = UNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    with tm.trace(namespace=locals()) as trace:
        for images, _ in batches(4, 16):
            masks = (images > 0.5).float()
            logits = model(images)
            p = logits.sigmoid()
            dice = 1 - (2 * (p * masks).sum() + 1) / (p.sum() + masks.sum() + 1)
            loss = F.binary_cross_entropy_with_logits(logits, masks) + dice
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="denoising autoencoder")
def denoising_autoencoder():
    encoder, decoder = mlp(64, 32, 8), nn.Sequential(mlp(8, 32, 64), nn.Sigmoid())
    model = nn.Sequential(encoder, decoder)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for images, _ in batches(5):
            x = images.view(images.size(0), -1)
            noisy = (x + 0.3 * torch.randn_like(x)).clamp(0.0, 1.0)
            loss = F.mse_loss(model(noisy), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="multi-task learning")
def several_tasks_with_learnt_weights():
    """Two heads and the uncertainty of each task as a parameter."""
    body, kind, parity = mlp(64, 32), nn.Linear(32, 10), nn.Linear(32, 1)
    log_variance = nn.Parameter(torch.zeros(2))
    parameters = [*body.parameters(), *kind.parameters(), *parity.parameters(), log_variance]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for images, classes in batches(5):
            hidden = F.relu(body(images.flatten(1)))
            first = F.cross_entropy(kind(hidden), classes)
            second = F.binary_cross_entropy_with_logits(parity(hidden).squeeze(1), (classes % 2).float())
            losses = torch.stack([first, second])
            loss = (losses * torch.exp(-log_variance) + log_variance).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="fine-tuning with parameter groups")
def fine_tuning_with_parameter_groups():
    """A pretrained body at a small rate, its batch norms frozen in eval mode, a new head at a large one."""
    body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
    head = nn.Linear(288, 10)
    model = nn.Sequential(body, head)
    groups = [{"params": body.parameters(), "lr": 1e-4}, {"params": head.parameters()}]
    optimizer = torch.optim.SGD(groups, lr=1e-2, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[1e-3, 1e-1], total_steps=5)
    model.train()
    body[1].eval()
    with tm.trace(namespace=locals()) as trace:
        for images, classes in batches(5):
            optimizer.zero_grad()
            F.cross_entropy(model(images), classes, label_smoothing=0.1).backward()
            optimizer.step()
            scheduler.step()
    return trace.report


@healthy(family="gradual unfreezing")
def gradual_unfreezing():
    """Frozen at first; from the third step on the body learns as well, and joins the optimizer."""
    body, head = mlp(64, 32), nn.Linear(32, 10)
    model = nn.Sequential(body, nn.ReLU(), head)
    for parameter in body.parameters():
        parameter.requires_grad = False
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for step, (images, classes) in enumerate(batches(5)):
            if step == 2:
                body.requires_grad_(True)
                optimizer.add_param_group({"params": body.parameters(), "lr": 1e-4})
            optimizer.zero_grad()
            F.cross_entropy(model(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@healthy(family="adversarial training (PGD)")
def training_on_adversarial_examples():
    """The attack takes gradients of the input alone; the model's are not touched by it."""
    model = mlp(64, 32, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tm.trace(namespace=locals()) as trace:
        for images, classes in batches(4, 32):
            x = images.flatten(1)
            delta = torch.zeros_like(x).uniform_(-0.1, 0.1)
            for _ in range(2):
                delta.requires_grad_()
                (slope,) = torch.autograd.grad(F.cross_entropy(model(x + delta), classes), delta)
                delta = (delta.detach() + 0.05 * slope.sign()).clamp(-0.1, 0.1)
            optimizer.zero_grad()
            F.cross_entropy(model((x + delta).clamp(0, 1)), classes).backward()
            optimizer.step()
    return trace.report


@healthy(family="adversarial examples (FGSM)")
def the_fast_gradient_sign_method():
    """The tutorial's own way: data.requires_grad, model.zero_grad, loss.backward, data.grad.data."""
    model = mlp(64, 32, 10)
    model.eval()
    correct = 0
    with tm.trace(namespace=locals()) as trace:
        for images, classes in batches(4, 1):
            data = images.flatten(1).clone()
            data.requires_grad = True
            output = model(data)
            loss = F.nll_loss(F.log_softmax(output, dim=1), classes)
            model.zero_grad()
            loss.backward()
            perturbed = torch.clamp(data + 0.1 * data.grad.data.sign(), 0, 1)
            correct += (model(perturbed).argmax(1) == classes).item()
    return trace.report


@healthy(family="style transfer")
def an_image_that_is_optimised():
    """The network is fixed; LBFGS moves the image, clamped under no_grad before each step."""
    features = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3)).requires_grad_(False).eval()

    def gram(maps):
        flat = maps.flatten(2)
        return flat @ flat.transpose(1, 2) / flat[0].numel()

    content, style = digits()[0][:1], digits()[0][1:2]
    wanted_content, wanted_style = features(content).detach(), gram(features(style)).detach()
    image = content.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([image], max_iter=4)

    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        optimizer.zero_grad()
        maps = features(image)
        loss = F.mse_loss(maps, wanted_content) + 1e3 * F.mse_loss(gram(maps), wanted_style)
        loss.backward()
        return loss

    with tm.trace(namespace=locals()) as trace:
        for _ in range(2):
            optimizer.step(closure)
    return trace.report


@healthy(family="spectral normalisation")
def a_critic_with_spectral_norm():
    critic = nn.Sequential(spectral_norm(nn.Linear(64, 32)), nn.LeakyReLU(0.2), spectral_norm(nn.Linear(32, 1)))
    optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for images, _ in batches(4):
            real, fake = images.flatten(1), torch.rand(64, 64)
            loss = F.relu(1 - critic(real)).mean() + F.relu(1 + critic(fake)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="weight normalisation and averaging (SWA)")
def weight_norm_and_averaged_weights():
    model = nn.Sequential(weight_norm(nn.Linear(64, 32)), nn.SiLU(), weight_norm(nn.Linear(32, 10)))
    averaged = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05)
    with tm.trace(namespace=locals()) as trace:
        for step, (images, classes) in enumerate(batches(6)):
            optimizer.zero_grad()
            F.cross_entropy(model(images.flatten(1)), classes).backward()
            optimizer.step()
            if step >= 3:
                averaged.update_parameters(model)
                scheduler.step()
        with torch.no_grad():
            averaged(digits()[0][:8].flatten(1)).argmax(1)
    return trace.report


@healthy(family="uncertainty by dropout")
def predictions_with_dropout_left_on():
    """Monte Carlo dropout: train mode during prediction is meant."""
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 4), torch.randn(64, 1)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        model.train()
        with torch.no_grad():
            samples = torch.stack([model(x) for _ in range(5)])
        spread = samples.std(0).mean().item()
    assert spread > 0
    return trace.report


@healthy(family="deep ensemble")
def an_ensemble_trained_side_by_side():
    """A list of models, each with an optimizer of its own."""
    models = [mlp(4, 16, 2) for _ in range(3)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in models]
    x, y = torch.randn(64, 4), torch.randn(64)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(3):
            for model, optimizer in zip(models, optimizers, strict=True):
                mean, raw = model(x).unbind(1)
                loss = F.gaussian_nll_loss(mean, y, F.softplus(raw) + 1e-6)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return trace.report
