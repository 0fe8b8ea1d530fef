"""Libraries of layers and models."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from tests.ecosystem.libraries import library


@library(
    "timm", "a ResNet and a ViT with Mixup, adaptive clipping and an averaged model",
    gaps=("the names were not searched again",),  # on a slow machine: hundreds of modules hold names
)  # fmt: skip
def timm():
    from timm import create_model
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.utils import ModelEmaV3, adaptive_clip_grad

    mixup, made = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=10), []
    resnet = create_model("resnet10t", num_classes=10)
    vit = create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=10
    )
    for net in (resnet, vit):
        average = ModelEmaV3(net, decay=0.9)
        optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
        for _ in range(2):
            x, y = mixup(torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,)))
            optimizer.zero_grad()
            SoftTargetCrossEntropy()(net(x), y).backward()
            adaptive_clip_grad(net.parameters())
            optimizer.step()
            average.update(net)
        made.append((net.state_dict(), average.module.state_dict()))
    return made


@library("vit-pytorch", "a ViT, and distillation from a convolutional teacher")
def vit_pytorch():
    from vit_pytorch import ViT
    from vit_pytorch.distill import DistillableViT, DistillWrapper

    common = {"image_size": 16, "patch_size": 8, "num_classes": 10, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 32}
    teacher = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 256, 10))
    student = DistillableViT(**common)
    distiller = DistillWrapper(student=student, teacher=teacher, temperature=3, alpha=0.5)
    plain = ViT(**common)
    x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
    parameters = [*student.parameters(), distiller.distillation_token, *distiller.distill_mlp.parameters()]
    optimizer = torch.optim.Adam([*parameters, *plain.parameters()], 1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        (distiller(x, y) + F.cross_entropy(plain(x), y)).backward()
        optimizer.step()
    return student.state_dict(), plain.state_dict()


@library("einops", "`rearrange`, `repeat`, `einsum` and the layer `Rearrange` in an attention")
def einops():
    from einops import einsum, rearrange, repeat
    from einops.layers.torch import Rearrange

    project, head = nn.Linear(16, 48), nn.Sequential(Rearrange("b n d -> b (n d)"), nn.Linear(64, 3))
    optimizer = torch.optim.SGD([*project.parameters(), *head.parameters()], 0.1)
    x = torch.randn(8, 4, 16)
    for _ in range(4):
        q, k, v = rearrange(project(x), "b n (three h d) -> three b h n d", three=3, h=4)
        scores = einsum(q, k, "b h i d, b h j d -> b h i j").softmax(-1)
        out = rearrange(scores @ v, "b h n d -> b n (h d)")
        loss = F.mse_loss(head(out), repeat(torch.ones(3), "c -> b c", b=8))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return project.state_dict(), head.state_dict(), loss


@library("diffusers", "a UNet with a noise scheduler and an averaged model; then sampling")
def diffusers():
    from diffusers import DDPMScheduler, UNet2DModel
    from diffusers.training_utils import EMAModel

    net = UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, block_out_channels=(8, 16), norm_num_groups=4, layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    scheduler, average = DDPMScheduler(num_train_timesteps=10), EMAModel(net.parameters())
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    clean = torch.randn(4, 1, 8, 8)
    for _ in range(3):
        noise, steps = torch.randn_like(clean), torch.randint(0, 10, (4,))
        loss = F.mse_loss(net(scheduler.add_noise(clean, noise, steps), steps).sample, noise)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        average.step(net.parameters())
    sample = torch.randn(1, 1, 8, 8)
    with torch.no_grad():
        for step in scheduler.timesteps[-3:]:
            sample = scheduler.step(net(sample, step).sample, step, sample).prev_sample
    return net.state_dict(), sample, loss


@library(
    "kornia", "augmentations, a fit of a homography, filters", as_under_a_mode=True
)  # matmul: (4, 3, 3) @ (1, 3, 3)
def kornia():
    import kornia.augmentation as K
    from kornia.filters import gaussian_blur2d
    from kornia.geometry import warp_perspective

    augment = K.AugmentationSequential(
        K.RandomHorizontalFlip(), K.RandomAffine(15.0), K.ColorJiggle(0.1, 0.1), same_on_batch=False
    )
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    x, y = torch.rand(4, 3, 16, 16), torch.randint(0, 2, (4,))
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(net(augment(x)), y).backward()
        optimizer.step()
    homography = nn.Parameter(torch.eye(3)[None])
    optimizer = torch.optim.Adam([homography], 1e-3)
    source = gaussian_blur2d(x[:1], (3, 3), (1.0, 1.0))
    for _ in range(4):
        optimizer.zero_grad()
        F.l1_loss(warp_perspective(source, homography, (16, 16)), source.flip(-1)).backward()
        optimizer.step()
    return net.state_dict(), homography


@library("torch-geometric", "GCN and GAT on a random graph, and a batch of graphs")
def torch_geometric():
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GATConv, GCNConv, global_mean_pool

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GCNConv(8, 16), GATConv(16, 4, heads=2, dropout=0.2)
            self.head = nn.Linear(8, 3)

        def forward(self, x, edges, batch):
            hidden = F.dropout(self.first(x, edges).relu(), 0.5, self.training)
            return self.head(global_mean_pool(self.second(hidden, edges).relu(), batch))

    graphs = [Data(torch.randn(10, 8), torch.randint(0, 10, (2, 30)), y=torch.tensor([n % 3])) for n in range(12)]
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(2):
        for batch in DataLoader(graphs, 4, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(net(batch.x, batch.edge_index, batch.batch), batch.y).backward()
            optimizer.step()
    return net.state_dict()


@library("captum", "integrated gradients, DeepLift, Grad-CAM and a Shapley estimate")
def captum():
    from captum.attr import DeepLift, GradientShap, IntegratedGradients, LayerGradCam

    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5))
    x = torch.randn(3, 1, 8, 8, requires_grad=True)
    return (
        IntegratedGradients(net).attribute(x, target=1, n_steps=8, return_convergence_delta=True),
        DeepLift(net).attribute(x, target=2),
        LayerGradCam(net, net[0]).attribute(x, target=0),
        GradientShap(net).attribute(x, baselines=torch.zeros(2, 1, 8, 8), target=0, n_samples=3),
    )
