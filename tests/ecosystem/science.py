"""Libraries of probability, equations, optimization and reinforcement learning."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from tests.ecosystem.libraries import library


@library("gpytorch", "an exact Gaussian process, and a variational one")
def gpytorch():
    import gpytorch
    from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    class Approximate(gpytorch.models.ApproximateGP):
        def __init__(self, points):
            strategy = VariationalStrategy(self, points, CholeskyVariationalDistribution(len(points)))
            super().__init__(strategy)
            self.mean = gpytorch.means.ZeroMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x = torch.linspace(0, 1, 20)
    y = torch.sin(6 * x) + 0.1 * torch.randn(20)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    exact = Exact(x, y, likelihood)
    approximate, noise = Approximate(x[::4].clone()[:, None]), gpytorch.likelihoods.GaussianLikelihood()
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, exact)
    bound = gpytorch.mlls.VariationalELBO(noise, approximate, 20)
    for model, objective, inputs in ((exact, marginal, x), (approximate, bound, x[:, None])):
        model.train()
        objective.likelihood.train()
        parameters = [*model.parameters()] if model is exact else [*model.parameters(), *noise.parameters()]
        optimizer = torch.optim.Adam(parameters, 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            (-objective(model(inputs), y)).backward()
            optimizer.step()
    exact.eval()
    likelihood.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        said = likelihood(exact(x + 0.01))
    return exact.state_dict(), approximate.state_dict(), said.mean, said.variance


@library("botorch", "a Bayesian optimization: fit by L-BFGS, then the acquisition function's optimum")
def botorch():
    import warnings

    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    x = torch.rand(12, 2, dtype=torch.double)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            y = 1 - (x - 0.5).norm(dim=-1, keepdim=True) + 0.05 * torch.randn(len(x), 1, dtype=torch.double)
            model = SingleTaskGP(x, y)
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            point, value = optimize_acqf(
                LogExpectedImprovement(model, y.max()), torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double),
                q=1, num_restarts=2, raw_samples=8,
            )  # fmt: skip
            x = torch.cat([x, point])
    return model.state_dict(), x, value


@library(
    "pyro-ppl", "stochastic variational inference with a guide, and Hamiltonian sampling",
    finds=("TM401",),  # the first step size of the sampler overflows, and its proposal is refused
)  # fmt: skip
def pyro():
    import pyro
    import pyro.distributions as dist
    from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoNormal

    pyro.clear_param_store()
    data = torch.randn(20) + 2

    def model(data):
        location = pyro.sample("location", dist.Normal(0.0, 1.0))
        scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with pyro.plate("data", len(data)):
            pyro.sample("seen", dist.Normal(location, scale), obs=data)

    guide = AutoNormal(model)
    inference = SVI(model, guide, pyro.optim.Adam({"lr": 0.02}), Trace_ELBO())
    losses = [inference.step(data) for _ in range(8)]
    sampler = MCMC(NUTS(model, max_tree_depth=3), num_samples=4, warmup_steps=4, disable_progbar=True)
    sampler.run(data)
    return losses, dict(pyro.get_param_store().items()), sampler.get_samples()


@library(
    "torchdiffeq", "a neural ODE, solved by `odeint` and `odeint_adjoint`",
    gaps=("one pass went through the same graph several times", "several others gave a parameter a gradient"),
)  # fmt: skip
def torchdiffeq():
    from torchdiffeq import odeint, odeint_adjoint

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, _, y):
            return self.net(y)

    made = []
    for solve, method in ((odeint, "rk4"), (odeint, "dopri5"), (odeint_adjoint, "dopri5")):
        field, start, times = Field(), torch.tensor([[2.0, 0.0]]), torch.linspace(0, 1, 5)
        optimizer = torch.optim.RMSprop(field.parameters(), 1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            solve(field, start, times, method=method, rtol=1e-3, atol=1e-4).abs().mean().backward()
            optimizer.step()
        made.append(field.state_dict())
    return made


@library("tensordict", "a module of named inputs and outputs, parameters as one dictionary, memory-mapped data")
def tensordict():
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    net = TensorDictSequential(
        TensorDictModule(nn.Linear(4, 8), in_keys=["x"], out_keys=["hidden"]),
        TensorDictModule(nn.Linear(8, 2), in_keys=["hidden"], out_keys=["y"]),
    )
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    data = TensorDict({"x": torch.randn(16, 4), "target": torch.randn(16, 2)}, batch_size=[16])
    data = data.memmap()
    for _ in range(4):
        for part in data.split(8):
            out = net(part.clone())
            optimizer.zero_grad()
            F.mse_loss(out["y"], out["target"]).backward()
            optimizer.step()
    parameters = TensorDict.from_module(net)
    with parameters.data.mul(0.5).to_module(net):
        halved = net(data.clone())["y"]
    return net.state_dict(), halved


@library("torchrl", "advantages, a clipped policy loss, and a DQN with a target network and a replay buffer")
def torchrl():
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.modules import OneHotCategorical, ProbabilisticActor, QValueActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss, DQNLoss, SoftUpdate
    from torchrl.objectives.value import GAE

    policy = TensorDictModule(nn.Linear(4, 3), in_keys=["observation"], out_keys=["logits"])
    actor = ProbabilisticActor(policy, in_keys=["logits"], distribution_class=OneHotCategorical, return_log_prob=True)
    critic = ValueOperator(nn.Linear(4, 1), in_keys=["observation"])
    advantage, objective = GAE(gamma=0.9, lmbda=0.9, value_network=critic), ClipPPOLoss(actor, critic)
    optimizer = torch.optim.Adam(objective.parameters(), 1e-2)

    def steps():
        done = torch.zeros(2, 5, 1, dtype=torch.bool)
        later = {"observation": torch.randn(2, 5, 4), "reward": torch.randn(2, 5, 1), "done": done, "terminated": done}
        return TensorDict({"observation": torch.randn(2, 5, 4), "next": later}, batch_size=[2, 5])

    for _ in range(3):
        with torch.no_grad():
            data = actor(steps())
        advantage(data)
        losses = objective(data)
        optimizer.zero_grad()
        (losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]).backward()
        optimizer.step()
    values = QValueActor(nn.Linear(4, 3), in_keys=["observation"], action_space="one-hot")
    learning = DQNLoss(values, action_space="one-hot", delay_value=True)
    target, buffer = SoftUpdate(learning, eps=0.9), TensorDictReplayBuffer(storage=LazyTensorStorage(20), batch_size=4)
    buffer.extend(values(steps()).detach().reshape(-1))
    optimizer = torch.optim.Adam(learning.parameters(), 1e-2)
    for _ in range(3):
        loss = learning(buffer.sample())["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        target.step()
    return objective.state_dict(), values.state_dict(), loss
