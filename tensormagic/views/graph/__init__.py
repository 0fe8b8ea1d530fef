"""From an autograd graph to a drawing: folding, layout, words."""
