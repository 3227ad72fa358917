"""Signal and noise of the gradient, prompt by prompt."""

__all__: list[str] = []
