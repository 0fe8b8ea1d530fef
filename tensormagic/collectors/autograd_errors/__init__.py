"""What autograd refuses, or ought to: who saved a tensor, who wrote to it, who freed the graph."""
