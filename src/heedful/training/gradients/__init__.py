"""Signal and noise of the gradient, prompt by prompt."""
